"""Patients handed to a process of their own, whose answers come back a line each; after a failure a new one goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu.running import ROOT

LEAST_S: Final = 1.0
SAID: Final = 500
"""Characters of a dead process' last words."""


def answers(
    module: str, patients: Sequence[Mapping[str, Any]], device: str, folder: Path, ends_s: Callable[[], float]
) -> Iterator[dict[str, Any]]:
    """What `python -m module TEXTS DEVICE` prints of each patient, in their order.

    Args:
        ends_s: a function that says how many seconds are left. After them no more comes.
    """
    left = list(patients)
    folder.mkdir(parents=True, exist_ok=True)
    while left and ends_s() > LEAST_S:
        texts, said = folder / "texts.json", folder / "said.txt"
        texts.write_text(json.dumps(left), encoding="utf-8")
        number = 0
        for one in _lines(module, texts, device, said, ends_s):
            number += 1
            yield one
        if not number and ends_s() > LEAST_S:
            last = said.read_text(encoding="utf-8", errors="replace")[-SAID:]
            yield {"key": left[0]["key"], "error": f"the process ended: {last}"}
            number = 1
        del left[:number]


def _lines(module: str, texts: Path, device: str, said: Path, ends_s: Callable[[], float]) -> Iterator[dict[str, Any]]:
    words = [sys.executable, "-m", module, str(texts), device]
    with said.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
        over = threading.Timer(max(ends_s(), LEAST_S), process.kill)
        over.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
        finally:
            over.cancel()
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
