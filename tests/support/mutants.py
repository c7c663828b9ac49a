"""What the unit tests would catch: mutants drawn by seed from where a wrong figure would do most harm.

`make mutants` copies the checkout to `build/mutants`, has mutmut make every mutant of the files below, draws
as many of each area, and runs the tests that reach the changed function. A mutant that no test notices has to be killed
by a test of behaviour, or be listed in `equivalent_mutants.toml` with the reason why nobody could notice it. Texts are
not drawn: a test that repeats a sentence is worth nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import tomllib

from tests.support.repository import ARTIFACTS, ROOT

AREAS: Final = {
    "fold": ("gpu_doctor/capture/spans.py", "gpu_doctor/capture/step_clock.py", "gpu_doctor/capture/step_table.py"),
    "interval": ("gpu_doctor/trials/compare/*.py",),
    "forecast": ("gpu_doctor/diagnosis/forecast/*.py",),
    "verdict": ("gpu_doctor/diagnosis/verdict.py",),
    "cell edits": tuple(
        f"gpu_doctor/{one}.py"
        for one in ("cell/arguments", "cell/calls", "cell/constructors", "cell/fix", "cell/statements", "cell/switches")
    ),
    "snapshots": ("gpu_doctor/trials/snapshot/*.py",),
}
"""Where mutants are drawn from, as patterns of files."""
TESTS: Final = ("tests/unit/capture", "tests/unit/cell", "tests/unit/diagnosis", "tests/unit/trials")
EQUIVALENT: Final = ROOT / "tests" / "support" / "equivalent_mutants.toml"
WORKSPACE: Final = ROOT / "build" / "mutants"
LOG: Final = ARTIFACTS / "mutants.log"
COPIED: Final = (
    "gpu_doctor",
    "tests",
    "benchmarks",
    "docs",
    "notebooks",
    "pyproject.toml",
    "CONTRIBUTING.md",
    "README.md",
)
GENERATE: Final = (
    "from mutmut.__main__ import copy_also_copy_files, copy_src_dir, create_mutants, os;"
    "os.makedirs('mutants', exist_ok=True); copy_src_dir(); copy_also_copy_files(); create_mutants(os.cpu_count())"
)
UNNOTICED: Final = (0, 33)
"""mutmut's exit codes for a mutant whose tests passed, and for one that no test reaches."""


@dataclass(frozen=True)
class Mutant:
    """One change of one function: its name with mutmut, and the lines that it took away and put there."""

    name: str
    area: str
    path: str
    was: str
    becomes: str

    def told(self) -> str:
        """Where it is and what it changes, as four lines."""
        function = (
            self.name.rpartition("__mutmut_")[0]
            .rpartition(".")[2]
            .replace("x_", "", 1)
            .replace("xǁ", "")
            .replace("ǁ", ".")
        )
        return f"{self.path}: {function}  [{self.name}]\n  - {self.was}\n  + {self.becomes}"


def prepare() -> None:
    """Copies the checkout, without what tests do not read, and tells mutmut which files to change."""
    shutil.rmtree(WORKSPACE, ignore_errors=True)
    WORKSPACE.mkdir(parents=True)
    skipped = shutil.ignore_patterns("node_modules", "artifacts", "__pycache__", "_build")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, WORKSPACE / name, ignore=skipped)
        else:
            shutil.copy2(source, WORKSPACE / name)
    patterns = "\n  ".join(pattern for files in AREAS.values() for pattern in files)
    (WORKSPACE / "setup.cfg").write_text(
        "[mutmut]\nsource_paths = gpu_doctor\n"
        f"only_mutate =\n  {patterns}\n"
        f"also_copy =\n  {chr(10).join(f'  {one}' for one in COPIED[1:]).strip()}\n"
        f"pytest_add_cli_args_test_selection =\n  {chr(10).join(f'  {one}' for one in TESTS).strip()}\n"
        "process_isolation = forkserver\ndebug = true\n",
        encoding="utf-8",
    )


def run(*words: str) -> None:
    """Runs mutmut's Python in the copy.

    Raises:
        SystemExit: if it did not end well.
    """
    # Mutants run in forks of a process that has run tests: one that has threads of OpenMP hangs there in a convolution,
    # and what hangs passes for killed after five minutes.
    environment = {**os.environ, "PYTHONPATH": "", "GPU_DOCTOR_UNIT_CPU_S": "120", "OMP_NUM_THREADS": "1"}
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("w", encoding="utf-8") as log:
        done = subprocess.run(
            (sys.executable, *words), cwd=WORKSPACE, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode:
        last = LOG.read_text(encoding="utf-8").replace("\r", "\n").splitlines()[-20:]
        raise SystemExit("\n".join((*last, f"mutmut ended with {done.returncode}; all that it said lies in {LOG}.")))


def codes() -> dict[str, dict[str, int | None]]:
    """mutmut's exit code of every mutant, by file and name; None where it has not run."""
    found = {}
    for meta in sorted((WORKSPACE / "mutants").rglob("*.py.meta")):
        path = str(meta.relative_to(WORKSPACE / "mutants"))[: -len(".meta")]
        found[path] = json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
    return found


def difference(name: str, path: str) -> tuple[str, str]:
    """The code that a mutant takes away, and what it puts there."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    lines = get_diff_for_mutant(name, path=Path(path)).splitlines()[2:]
    return tuple(" ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")  # type: ignore[return-value]


def without_texts(code: str) -> str:
    """Code with every text taken out, to tell whether two pieces differ in more than a text."""
    return re.sub(r"(?:[rbf]*)(\"[^\"]*\"|'[^']*')", '""', code)


def drawn(seed: int, number: int) -> Iterator[Mutant]:
    """As many mutants of each area, in the order that the seed gives; none that changes a text alone."""
    by_file = codes()
    os.chdir(WORKSPACE)
    for area, patterns in AREAS.items():
        names = [
            (name, path)
            for path, of_file in by_file.items()
            if any(Path(path).match(pattern) for pattern in patterns)
            for name in of_file
        ]
        # By each one's own name: a change elsewhere leaves the draw as it was.
        names.sort(key=lambda one: hashlib.blake2b(f"{seed} {one[0]}".encode()).digest())
        kept = 0
        for name, path in names:
            was, becomes = difference(name, path)
            if without_texts(was) != without_texts(becomes):
                yield Mutant(name, area, path, was, becomes)
                kept += 1
            if kept * len(AREAS) >= number:
                break


def equivalent() -> set[tuple[str, str, str]]:
    """The mutants that nobody could notice, as listed with their reasons."""
    listed = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("mutant", [])
    return {(one["file"], one["was"], one["becomes"]) for one in listed}


def main() -> None:
    """Makes, draws, runs and judges; ends with 1 where a mutant lives that is not listed."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seed", type=int, default=24)
    words.add_argument("--number", type=int, default=300)
    asked = words.parse_args()
    begin = time.monotonic()
    prepare()
    run("-c", GENERATE)
    mutants = list(drawn(asked.seed, asked.number))
    run("-m", "mutmut", "run", *(one.name for one in mutants))
    outcome = {name: code for of_file in codes().values() for name, code in of_file.items()}
    alive = [one for one in mutants if outcome[one.name] in UNNOTICED]
    known = equivalent()
    unexplained = [one for one in alive if (one.path, one.was, one.becomes) not in known]
    for one in unexplained:
        print(one.told())
    for area in AREAS:
        number, living, listed = (
            sum(one.area == area for one in some) for some in (mutants, alive, set(alive) - set(unexplained))
        )
        killed, unlisted = number - living, living - listed
        print(f"{area:12} {number:4} drawn, {killed:4} killed, {listed:3} equivalent, {unlisted:3} alive")
    print(f"{len(mutants)} mutants, seed {asked.seed}, {(time.monotonic() - begin) / 60:.0f} min")
    raise SystemExit(bool(unexplained))


if __name__ == "__main__":
    main()
