"""What the tests of steptable share."""

from __future__ import annotations

import numpy as np

from gpu_doctor.capture.step_table import DEVICE_COLUMNS
from gpu_doctor.recording.steps import STEP_COLUMNS


def row(**values: float) -> list[float]:
    """A row with a few columns set; the device's are not measured, as in a fresh step."""
    blank = {"count": 1.0, **dict.fromkeys(DEVICE_COLUMNS, np.nan)}
    return [{**dict.fromkeys(STEP_COLUMNS, 0.0), **blank, **values}[name] for name in STEP_COLUMNS]
