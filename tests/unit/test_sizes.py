"""The sizes that a test run prints are those of the files."""

from __future__ import annotations

from pathlib import Path

from tests.support import sizes


def test_the_longest_of_each_kind_and_the_names_over_walls(tmp_path: Path) -> None:
    for room in ("kitchen", "cellar"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text("")
    (tmp_path / "cellar" / "wine.py").write_text("class Bottle:\n    def opened(self):\n        return 1\n")
    (tmp_path / "kitchen" / "cook.py").write_text(
        "def cook():\n    from gpu_doctor.cellar.wine import Bottle, Cork\n\n    return Bottle\n"
    )
    assert sizes.told(tmp_path).splitlines() == [
        "longest file: kitchen/cook.py 4, cellar/wine.py 3, cellar/__init__.py 0",
        "longest class: cellar/wine.py:Bottle 3",
        "longest function: kitchen/cook.py:cook 4, cellar/wine.py:opened 2",
        "names over walls: cellar 2, kitchen 0",
    ]
