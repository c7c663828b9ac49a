"""Every function of ours on the way of a real loop raises once, one run each: the user's loop never notices."""

from __future__ import annotations

import pytest

from tests.support.cells import FAULTY, TROUBLED
from tests.support.faults import Row, faults_of, picked, seconds_of, survey, swept

FIRSTS = 3
"""First faults whose handling is tried, a loop."""
pytestmark = pytest.mark.timeout(1100)


def told(row: Row) -> str:
    """What went wrong, and where the first of it came from."""
    lines = [f"{fault}: {wrong}" for fault, (wrong, _) in row.troubles.items()]
    heads = [head for _, head in row.troubles.values() if head]
    return "\n".join([f"{len(lines)} of {row.faults} faults:", *lines, *heads[:1]])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*FAULTY, *TROUBLED])
def test_no_function_of_ours_that_raises_is_noticed_by_the_cell(name: str) -> None:
    """Each at its first call, or at a later one."""
    cell = {**FAULTY, **TROUBLED}[name]
    row = swept(cell, faults_of(cell, survey(cell)))
    assert not row.troubles, told(row)
    assert row.faults > 20 and row.never <= max(5, row.faults // 20)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name, cell in FAULTY.items() if not cell.workers])
def test_an_error_in_what_handles_an_error_is_not_noticed_either(name: str) -> None:
    """After a first fault every function of ours that is still called raises once."""
    cell = FAULTY[name]
    faults = seconds_of(cell, picked(faults_of(cell, survey(cell)), FIRSTS))
    row = swept(cell, faults)
    assert not row.troubles, told(row)
    assert row.faults >= FIRSTS
