"""Every function of ours on the way of a real loop raises once, one run each: the user's loop never notices."""

from __future__ import annotations

import pytest

from tests.support.fault_loops import LOOPS, TROUBLED
from tests.support.faults import Row, faults_of, picked, seconds_of, survey, swept

FIRSTS = 3
"""First faults whose handling is tried, a loop."""
pytestmark = pytest.mark.timeout(1100)


def told(row: Row) -> str:
    """What went wrong, and where the first of it came from."""
    lines = [f"{fault}: {wrong}" for fault, (wrong, _) in row.troubles.items()]
    heads = [head for _, head in row.troubles.values() if head]
    return "\n".join([f"{len(lines)} of {row.faults} faults in {row.loop}:", *lines, *heads[:1]])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*LOOPS, *TROUBLED])
def test_no_function_of_ours_that_raises_is_noticed_by_the_loop(name: str) -> None:
    """Each at its first call, or at a later one."""
    loop = {**LOOPS, **TROUBLED}[name]
    path = survey(loop)
    row = swept(loop, faults_of(loop, path, each=1), len(path.functions()))
    assert not row.troubles, told(row)
    assert row.faults > 20 and row.never <= max(5, row.faults // 20)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name, loop in LOOPS.items() if not loop.workers])
def test_an_error_in_what_handles_an_error_is_not_noticed_either(name: str) -> None:
    """After a first fault every function of ours that is still called raises once."""
    loop = LOOPS[name]
    faults = seconds_of(loop, picked(faults_of(loop, survey(loop), each=1), FIRSTS))
    row = swept(loop, faults, 0)
    assert not row.troubles, told(row)
    assert row.faults >= FIRSTS
