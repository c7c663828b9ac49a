"""An effect that was measured while other programs used the machine says so."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time

import gpu_doctor
from gpu_doctor.diagnosis.vitals.machine import BUSY_FROM

SPIN = "import time\nend = time.time() + 20\nwhile time.time() < end: pass"


def test_a_real_neighbour_is_seen() -> None:
    """Another process that computes all the time; what else runs on this machine only adds to it."""
    # Started by a shell that ends at once: a child of ours would count as one of our workers.
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(SPIN)} >/dev/null 2>&1 & echo $!"
    neighbour = int(subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout)
    try:
        effect = gpu_doctor.case(lambda: time.sleep(1.5)).trial({"threads": 1}, steps=5, seconds=10.0, pairs=1)
    finally:
        os.kill(neighbour, signal.SIGKILL)
    assert effect.busy is not None and effect.busy >= BUSY_FROM
