"""Where the checkout lies."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
ARTIFACTS: Final = ROOT / "tests" / "artifacts"
SAVED: Final = ROOT / "tests" / "unit" / "recording" / "saved"
"""Recordings as earlier versions wrote them."""
"""Screenshots, records of runs and what failed tests leave to be looked at; not in git."""
