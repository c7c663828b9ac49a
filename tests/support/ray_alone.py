"""A sweep on a Ray that it starts itself, in a process of its own: `python -m tests.support.ray_alone`."""

from __future__ import annotations

import contextlib

import psutil
import ray

import gpu_doctor
from tests.support.ray_parts import BUDGET, CELL, namespace, once_running


def main() -> None:
    """Fails where Ray can be reached from elsewhere, or does not end with the sweep."""
    case, heard = gpu_doctor.case(CELL, namespace()), set[str]()

    def listen() -> None:
        for one in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                ports = [at for at in one.net_connections("inet") if at.status == psutil.CONN_LISTEN]
                heard.update(f"{one.name()} {at.laddr.ip}" for at in ports if not at.laddr.ip.endswith("127.0.0.1"))

    thread = once_running(case, listen)
    (effect,) = case.sweep({"num_workers": [0]}, **BUDGET).effects
    thread.join()
    assert effect.speedup is not None, effect
    assert heard == set() and not ray.is_initialized(), heard
    assert not [one for one in psutil.Process().children(recursive=True) if "ray" in one.name()]


if __name__ == "__main__":
    main()
