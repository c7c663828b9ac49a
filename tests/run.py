"""Runs the tests in tiers of named parts: `python -m tests.run quick`, `test`, `all`, or the names of parts.

Parts run one after another, so that each has the machine to itself; only those that no clock decides use all cores.
Each ends with its outcome, kept with the commit in `tests/artifacts/parts.json`: `all` goes on where it was cut off,
and says at its end which parts passed on which commit. CONTRIBUTING.md says what each tier leaves out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from tests.support.outcomes import FEW, KINDS, REPORT, ran_again
from tests.support.repository import ARTIFACTS, ROOT

KEPT: Final = ARTIFACTS / "parts.json"
MOST_MINUTES: Final = 20
"""A part that takes longer is ended and has failed."""


@dataclass(frozen=True)
class Part:
    """One named part of the tests: commands that all must end well."""

    name: str
    holds: str
    commands: tuple[tuple[str, ...], ...]


def python(*words: str) -> tuple[str, ...]:
    """A module of this environment as a command."""
    return (sys.executable, "-m", *words)


def pytest_of(*words: str) -> tuple[tuple[str, ...], ...]:
    """One pytest."""
    return (python("pytest", *words),)


OLD_PAGE: Final = "tests/browser/test_old_notebook.py"
"""It needs the environment with Colab's versions."""
OLD_KERNEL: Final = ("tests/kernel/test_old_kernel.py", "tests/kernel/test_colab_install.py")
"""So do they."""
ELSEWHERE: Final = ("old_kernel", "colab_install", "notebooks")
"""Of `tests/kernel`, in parts of their own."""
PAGES: Final = tuple(
    f"tests/browser/test_{one}.py"
    for one in ("accessible", "front_ends", "still", "still_asks", "still_kept", "still_story")
)
"""They need no Jupyter."""
APART: Final = ("taps", "restore", "faults", "test_binder.py", "test_clinic.py")
"""Of `real_clock`, parts of their own."""
PARTS: Final = {
    one.name: one
    for one in (
        Part(
            "lint",
            "ruff and its formatting; prints the longest files and functions",
            (python("ruff", "check"), python("ruff", "format", "--check"), python("tests.support.sizes")),
        ),
        Part("types", "mypy: strict for the product and tests/support", (python("mypy"),)),
        Part("frontend", "the panel's script: bundle, types, Node's tests", pytest_of("tests/frontend")),
        Part("unit", "tests/unit, on all cores", pytest_of("tests/unit", "-n", "logical")),
        Part(
            "kernel",
            "the magics in a real IPython shell, scripts, nbconvert, papermill",
            pytest_of("tests/kernel", *(f"--ignore=tests/kernel/test_{one}.py" for one in ELSEWHERE)),
        ),
        Part("core", "real_clock: what is marked core", pytest_of("tests/real_clock", "-m", "core")),
        Part("scene", "browser: the main job in JupyterLab", pytest_of("tests/browser", "-m", "core")),
        Part("quickstart", "the quickstart notebook", pytest_of("tests/kernel/test_notebooks.py", "-k", "quickstart")),
        Part("notebooks", "every notebook, from first to last cell", pytest_of("tests/kernel/test_notebooks.py")),
        Part("old-kernel", "a kernel as old as Colab's, and an upload there", pytest_of(*OLD_KERNEL, OLD_PAGE)),
        Part(
            "binder",
            "Binder acted out: its builder, its image, its limits",
            pytest_of("tests/real_clock/test_binder.py"),
        ),
        Part("pages", "the panel in pages of ours, which act out front ends", pytest_of(*PAGES)),
        Part(
            "browser",
            "every scene in JupyterLab, Notebook 7 and nbclassic",
            pytest_of("tests/browser", *(f"--ignore={one}" for one in (OLD_PAGE, *PAGES))),
        ),
        Part("external", "frameworks, Ray and trackers, run unchanged", pytest_of("tests/external")),
        Part("taps", "what each tap hears, in real time", pytest_of("tests/real_clock/taps")),
        Part(
            "real-clock",
            "loops in real time, all knobs on all kinds of loops",
            pytest_of("tests/real_clock", *(f"--ignore=tests/real_clock/{one}" for one in APART)),
        ),
        Part(
            "restore",
            "trials put everything back, on all cores",
            pytest_of("tests/real_clock/restore", "-n", "logical"),
        ),
        Part(
            "faults",
            "every function of ours raises in real loops, on all cores",
            pytest_of("tests/real_clock/faults", "-n", "logical"),
        ),
        Part("clinic", "sick and healthy cells run", pytest_of("tests/real_clock/test_clinic.py")),
        *(
            Part(name, f"the product with {holds}", (python("tests.support.environments", name, "--test"),))
            for name, holds in (
                ("lowest", "the lowest versions of pyproject.toml"),
                ("newest", "the newest versions"),
                ("colab", "the versions that Colab ships"),
            )
        ),
        Part(
            "gpu-rehearsal",
            "make gpu without a GPU: every part of the proof on a simulated one",
            (python("benchmarks.gpu", "--rehearse", "--anew"),),
        ),
        Part(
            "docs",
            "the documentation is built without a warning; its links, its search, axe in both themes",
            (("make", "--no-print-directory", "docs"), *pytest_of("tests/docs")),
        ),
        Part("pythons", "what needs no torch, and types, on other Pythons", (python("tests.support.other_pythons"),)),
    )
}
TIERS: Final = {
    "quick": ("lint", "types", "frontend", "unit"),
    "test": ("lint", "types", "frontend", "unit", "kernel", "core", "scene", "quickstart"),
    "all": tuple(name for name in PARTS if name not in ("core", "scene", "quickstart")),
}
"""`all` leaves out what is part of a larger one."""


@dataclass
class Outcome:
    """How a part ended."""

    part: str
    commit: str
    status: str
    """`passed` or `failed`."""
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    again: dict[str, list[str]] = field(default_factory=dict)
    """Tests that ran again, each with what it said first and how it ended."""
    troubles: list[str] = field(default_factory=list)
    """Why it failed though each of its tests passed in the end."""

    def line(self) -> str:
        """For the table at the end."""
        counts = ", ".join(f"{number} {kind}" for kind, number in self.counts.items() if number)
        return f"{self.part:<12} {self.status:<7} {self.seconds / 60:5.1f} min  {self.commit:<20} {counts}"


def commit() -> str:
    """The commit that is checked out; ` changed` follows where files differ from it, or where git cannot say."""
    head = _git("rev-parse", "--short=10", "HEAD")
    return head if head and not _git("status", "--porcelain") else f"{head or 'unknown'} changed"


def _git(*words: str) -> str:
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def run(part: Part, extra: Sequence[str] = ()) -> Outcome:
    """Runs a part and keeps its outcome; one that was run with options of its own may be less than the part."""
    begin, at = time.monotonic(), commit()
    print(f"\n=== {part.name}: {part.holds}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "outcomes.json"
        environment = {**os.environ, REPORT: str(report)}
        ended = [_ended([*words, *(extra if "pytest" in words else ())], environment) for words in part.commands]
        told: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {}
    counts: dict[str, int] = {kind: told[kind] for kind in KINDS if kind in told}
    status = "passed" if not any(ended) else "failed"
    seconds, again, troubles = time.monotonic() - begin, told.get("again", {}), told.get("troubles", [])
    outcome = Outcome(part.name, at, status, seconds, counts, again, troubles)
    if not extra:
        _keep(outcome)
    return outcome


def _ended(words: list[str], environment: dict[str, str]) -> int:
    """The exit status of a command; 1 where it took too long: it ends then, with all that it had started."""
    running = psutil.Popen(words, cwd=ROOT, env=environment)
    try:
        return int(running.wait(timeout=60 * MOST_MINUTES))
    except psutil.TimeoutExpired:
        print(f"Ended after {MOST_MINUTES} minutes: {' '.join(words[2:])}", flush=True)
        for one in (*running.children(recursive=True), running):
            with contextlib.suppress(psutil.Error):
                one.kill()
        running.wait()
        return 1


def kept() -> dict[str, Outcome]:
    """The last outcome of each part that ever ran here."""
    if not KEPT.exists():
        return {}
    return {name: Outcome(**told) for name, told in json.loads(KEPT.read_text()).items() if name in PARTS}


def passed_on(outcome: Outcome, at: str) -> bool:
    """Whether a part has passed on a commit, with nothing changed beside it."""
    return outcome.status == "passed" and outcome.commit == at and not at.endswith("changed")


def _keep(outcome: Outcome) -> None:
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    told = {name: asdict(one) for name, one in kept().items()} | {outcome.part: asdict(outcome)}
    KEPT.write_text(json.dumps(told, indent=1))


def told_at_the_end(outcomes: Sequence[Outcome]) -> tuple[str, bool]:
    """The table of a run, and whether it passed."""
    lines = ["", *(one.line() for one in outcomes)]
    again = {name: said for one in outcomes for name, said in one.again.items()}
    lines += [ran_again(name, first, then) for name, (first, then) in again.items()]
    lines += [f"{one.part}: {trouble}" for one in outcomes for trouble in one.troubles]
    good = all(one.status == "passed" for one in outcomes)
    if len(again) > FEW:
        lines.append(f"{len(again)} tests needed a second chance; {FEW} may. --again runs what has passed once more.")
        good = False
    lines.append(", ".join(f"{sum(one.counts.get(kind, 0) for one in outcomes)} {kind}" for kind in KINDS))
    return "\n".join(lines), good


def main(words: Sequence[str]) -> int:
    """Runs what is asked for; 0 where all of it passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__)
    parser.add_argument(
        "what",
        nargs="+",
        choices=[*TIERS, *PARTS],
        metavar="TIER|PART",
        help=f"{', '.join(TIERS)}, or parts: {', '.join(PARTS)}",
    )
    parser.add_argument("--again", action="store_true", help="also parts that have passed on this commit")
    parser.add_argument("--stop", action="store_true", help="end with the first part that fails")
    asked, extra = parser.parse_known_args(words)
    names = [name for one in asked.what for name in TIERS.get(one, (one,))]
    before, at = kept(), commit()
    outcomes = []
    for name in dict.fromkeys(names):
        old = before.get(name)
        if "all" in asked.what and not asked.again and old and passed_on(old, at):
            print(f"=== {name}: passed on {at} already", flush=True)
            outcomes.append(old)
            continue
        outcomes.append(run(PARTS[name], extra))
        if asked.stop and outcomes[-1].status != "passed":
            break
    table, good = told_at_the_end(outcomes)
    print(table, flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
