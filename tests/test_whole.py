"""The run of the whole suite misses no file, forgives noise once, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests import whole

FLAKY = """
from pathlib import Path

def test_noise():
    mark = Path(__file__).with_suffix(".seen")
    seen = mark.exists()
    mark.touch()
    assert seen
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


def test_noise_is_forgiven_once_and_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = suite(tmp_path, test_flaky=FLAKY, part__test_well="def test_well(): pass\n")
    assert whole.main([], root) == 0
    said = capfd.readouterr().out
    assert "1 failed and run once more" in said and "tests/test_flaky.py::test_noise" in said and "noise" in said


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ({"test_sick": "def test_sick(): assert False\n"}, 1),
        ({"test_sick": "import pytest\n@pytest.mark.parametrize('k', range(9))\ndef test_sick(k): assert False\n"}, 1),
        ({"part__test_sick": "import pytest\n@pytest.fixture\ndef f():\n    yield\n    1 / 0\ndef test_f(f): pass\n"}, 1),
        ({"test_sick": "import os\ndef test_gone(): os._exit(1)\n"}, 1),
        ({"test_sick": "import nothing_of_that_name\n"}, 2),
        ({"test_well": "def test_well(): pass\n"}, 0),
    ],
    ids=["twice", "too-many", "teardown", "gone", "import", "well"],
)
def test_a_defect_is_not(files: dict[str, str], status: int, tmp_path: Path) -> None:
    assert whole.main([], suite(tmp_path, **files)) == status
