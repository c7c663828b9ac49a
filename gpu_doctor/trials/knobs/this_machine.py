"""Gives access to this machine's torch for loops that ran on this machine."""

from __future__ import annotations

import sys
from typing import Any

from gpu_doctor.recording import Setup, is_elsewhere


def torch_of(setup: Setup) -> Any:
    """Returns torch if it can answer for the loop of `setup`, else None.

    A recording may come from another machine, or be read in a process that does not use torch.
    """
    return None if is_elsewhere(setup) else sys.modules.get("torch")
