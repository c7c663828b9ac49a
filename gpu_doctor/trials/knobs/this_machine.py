"""What this machine's torch can do is asked for the loops of this machine alone."""

from __future__ import annotations

import sys
from typing import Any

from gpu_doctor.recording import Setup, is_elsewhere


def torch_of(setup: Setup) -> Any:
    """torch, to be asked what it can do for the loop of `setup`; None where it says nothing of that loop.

    A recording may come from another machine, or be read in a process that does not use torch.
    """
    return None if is_elsewhere(setup) else sys.modules.get("torch")
