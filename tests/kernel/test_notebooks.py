"""Every notebook of the repository runs from its first cell to its last, and its panels say what its text speaks of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import nbformat
import pytest

from gpu_doctor.labels import BOTTLENECK_LABELS
from tests.support import stored_notebooks
from tools import course

pytestmark = [pytest.mark.alone, pytest.mark.timeout(900)]

SAID: Final = {
    "01_quickstart": "loader-without-workers",
    "02_feeding_the_device": "loader-without-workers",
    "03_mixed_precision_and_batch_size": "compute",
    "04_waiting_for_your_own_code": "slow-python",
    "05_memory": "memory-growth",
    "06_lightning_accelerate_transformers": "loader-without-workers",
    "07_treat_and_sweep": "loader-without-workers",
}
"""By notebook, the first finding or risk of its first doctored cell, or the bottleneck where there is none to be cured.

On a CPU of several cores: its text says what differs elsewhere. The last doctored cell is cured of that finding.
"""
PROBE: Final = """
import gpu_doctor as _doctor, json as _json
_found = _doctor.last_case().diagnosis
_told = [*_found.findings, *(_one for _one in _found.hints if _one.risk)]
print(_json.dumps([_one.rule for _one in _told] or [_found.bottleneck]))
"""


@pytest.fixture
def executed(request: pytest.FixtureRequest) -> Any:
    """The notebook named by the parameter after a run in a folder and a kernel of its own."""
    return course.run(request.param, probe=PROBE)


def found(executed: Any) -> list[list[str]]:
    """What each doctored cell found, the dearest first; the bottleneck where it found nothing."""
    return [json.loads(cell.outputs[0].text) for cell in executed.cells if cell.source == PROBE]


@pytest.mark.parametrize("executed", course.NOTEBOOKS, ids=lambda path: path.stem, indirect=True)
def test_it_runs_and_its_panels_say_what_its_text_speaks_of(executed: Any, request: pytest.FixtureRequest) -> None:
    rules = found(executed)
    doctored = [cell for cell in executed.cells if cell.cell_type == "code" and stored_notebooks.doctored(cell.source)]
    assert doctored, "a notebook of ours shows the doctor at work"
    name = Path(request.node.callspec.params["executed"]).stem
    if name in SAID:
        assert rules[0][0] == SAID[name]
        assert len(rules) == 1 or SAID[name] in BOTTLENECK_LABELS or SAID[name] not in rules[-1]
    executed.cells = [cell for cell in executed.cells if cell.source != PROBE]
    assert stored_notebooks.complaints(course.stored(executed)) == []
    nbformat.validate(executed)
