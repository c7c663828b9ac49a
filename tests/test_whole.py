"""The run of the whole suite misses no file, forgives noise twice, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests import whole

NOW = (0.0, 0.0)
"""Runs what failed again at once."""
FLAKY = """
TIMES = 1
from pathlib import Path
import pytest

def test_noise():
    mark = Path(__file__).with_suffix(".seen")
    seen = mark.stat().st_size if mark.exists() else 0
    mark.write_text("." * (seen + 1))
    assert seen >= TIMES
"""


TEARDOWN = """
import pytest

@pytest.fixture
def f():
    yield
    1 / 0

def test_f(f): pass
"""


def suite(tmp_path: Path, **files: str) -> Path:
    """A project with its own copy of the runner and these test files."""
    (tmp_path / "tests" / "part").mkdir(parents=True)
    shutil.copy(whole.__file__, tmp_path / "tests" / "whole.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    for name, text in files.items():
        (tmp_path / "tests" / f"{name.replace('__', '/')}.py").write_text(text)
    return tmp_path


def test_every_file_is_in_one_part() -> None:
    files = [name for part in whole.parts(whole.ROOT / "tests") for name in part]
    assert sorted(files) == sorted(
        str(path.relative_to(whole.ROOT)) for path in (whole.ROOT / "tests").rglob("test_*.py")
    )
    assert max(len(part) for part in whole.parts(whole.ROOT / "tests")) <= whole.AT_ONCE


@pytest.mark.parametrize("times", [1, 2])
def test_noise_is_forgiven_twice_and_said(times: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    flaky = FLAKY.replace("TIMES = 1", f"TIMES = {times}")
    root = suite(tmp_path, test_flaky=flaky, part__test_well="def test_well(): pass\n")
    assert whole.main([], root, NOW) == 0
    said = capfd.readouterr().out
    assert said.count("1 failed and run again") == times
    assert "tests/test_flaky.py::test_noise" in said and "noise of the machine" in said


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ({"test_sick": "def test_sick(): assert False\n"}, 1),
        ({"test_sick": "import pytest\n@pytest.mark.parametrize('k', range(17))\ndef test_sick(k): assert False\n"}, 1),
        (
            {"part__test_sick": TEARDOWN},
            1,
        ),
        ({"test_sick": "import os\ndef test_gone(): os._exit(1)\n"}, whole.UNFINISHED),
        ({"test_sick": "import os\ndef test_gone(): os._exit(0)\n"}, whole.UNFINISHED),
        ({"test_flaky": FLAKY, "test_sick": "import os\ndef test_gone(): os._exit(1)\n"}, whole.UNFINISHED),
        ({"test_flaky": FLAKY.replace("assert seen >= TIMES", "pytest.skip() if seen else pytest.fail()")}, 1),
        ({"test_sick": "import nothing_of_that_name\n"}, 2),
        ({"test_well": "def test_well(): pass\n"}, 0),
    ],
    ids=["each-time", "too-many", "teardown", "gone", "quietly", "noise-and-gone", "skipped", "import", "well"],
)
def test_a_defect_is_not(files: dict[str, str], status: int, tmp_path: Path) -> None:
    assert whole.main([], suite(tmp_path, **files), NOW) == status


def test_nothing_chosen_and_a_first_failure_that_ends_the_run_are_no_success(tmp_path: Path) -> None:
    root = suite(tmp_path, test_flaky=FLAKY, test_later="def test_well(): pass\n")
    assert whole.main(["-k", "no_such_test"], root) == 5
    assert whole.main(["-x"], root) == whole.UNFINISHED
