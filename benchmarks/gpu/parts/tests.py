"""The tests that need a GPU, by pytest, a file at a time; a file that was cut off goes on after its last test.

Another torch or Python than the tested one may warn of things that ours does not: here a warning is no failure.
"""

from __future__ import annotations

import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu.kept import Row, Stage, row
from benchmarks.gpu.running import ROOT, ended

FOLDER: Final = ROOT / "tests" / "gpu"
LAST: Final = "test_trials_gpu.py"
"""The longest."""
OUTCOME: Final = re.compile(r"^(tests/\S+::.+?) (PASSED|FAILED|SKIPPED|ERROR|XFAIL|XPASS|RERUN)\b", re.M)
NOTHING_RAN: Final = 5
"""pytest's exit status where all tests are deselected."""
TOLD: Final = 12_000
"""Characters of the end of what pytest said that are kept: figures of the passed tests, tracebacks of the others."""
LEAST_S: Final = 15.0


class OutOfTime(Exception):
    """The time was over in the midst of a file."""


def run(stage: Stage) -> None:
    """A row a file."""
    files = sorted(FOLDER.glob("test_*.py"), key=lambda one: (one.name == LAST, one.name))
    for path in files:
        if path.name in stage.rows:
            continue
        if stage.seconds() < LEAST_S:
            stage.left.append(path.name)
            continue
        try:
            found = tested(path, stage)
        except OutOfTime:
            stage.left.append(path.name)
        else:
            stage.row(path.name, partial(dict, found))


def tested(path: Path, stage: Stage) -> Row:
    """Runs what is left of a file.

    Raises:
        OutOfTime: if the time is over; the tests that have ended are kept.
    """
    so_far = f"{path.name}: so far"
    before: dict[str, str] = stage.rows.get(so_far, {}).get("figures", {}).get("tests", {})
    log = stage.out / "logs" / f"{path.stem}.txt"
    log.unlink(missing_ok=True)
    words = [sys.executable, "-m", "pytest", str(path.relative_to(ROOT)), "-v", "-rAP", "--color=no", "--tb=short"]
    words += ["-o", "addopts=-p no:cacheprovider", "-W", "default"]
    words += [f"--deselect={one}" for one, how in before.items() if how == "PASSED"]
    code = ended(words, log, stage.seconds(), os.environ)
    said = log.read_text(encoding="utf-8", errors="replace")
    tests = {**before, **dict(OUTCOME.findall(said))}
    if code is None:
        if tests:
            stage.keep(so_far, row(counted(tests), None, tests=tests))
        raise OutOfTime
    stage.rows.pop(so_far, None)
    found: dict[str, Any] = row(counted(tests), judged(tests, code, stage.rehearse), tests=tests, said=said[-TOLD:])
    if not tests and code not in (0, NOTHING_RAN):
        found["error"] = f"pytest ended with {code}: {said[-TOLD:]}"
    return found


def judged(tests: dict[str, str], code: int, rehearse: bool) -> bool:
    """All tests passed; in the rehearsal they could be collected, and were skipped for want of a GPU."""
    if rehearse:
        return bool(tests) and set(tests.values()) == {"SKIPPED"}
    return code in (0, NOTHING_RAN) and "PASSED" in tests.values()


def counted(tests: dict[str, str]) -> str:
    """`12 passed, 1 failed: test_a`."""
    hows = list(tests.values())
    parts = [f"{hows.count(how)} {how.lower()}" for how in sorted(set(hows))]
    bad = [name.partition("::")[2] for name, how in tests.items() if how in ("FAILED", "ERROR")]
    return ", ".join(parts) + (f": {'; '.join(bad)}" if bad else "") or "no test ran"
