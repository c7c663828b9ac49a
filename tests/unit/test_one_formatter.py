"""Figures that people read go through `formatting.py`: no other module writes decimals by a format of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.support.repository import ROOT

PRODUCT = ROOT / "gpu_doctor"
DRAWN = ("report/svg.py", "report/chart.py", "report/plan.py")
"""Write coordinates, which nobody reads."""
CODE = {"trials/knobs/cell_variables.py": 1, "notebook/representations.py": 1}
"""How often a number becomes part of code, or is listed raw beside its field's name."""
DECIMALS = re.compile(r"[fge%]$")
WRITTEN = re.compile(r"[\d},.:][fge%]\}")
"""How such a specification ends in the text: what has none of it needs no parsing."""


def own_formats(source: str) -> Iterator[str]:
    """Format specifications for decimals in f-strings and `format()`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            spec = ast.unparse(node.format_spec)
            if DECIMALS.search(spec.removeprefix("f").strip("'\"")):
                yield ast.unparse(node)


def test_a_format_of_its_own_is_found() -> None:
    assert len(list(own_formats("f'{x:.2f} {y:,} {z:>9} {share:.0%} {name:<{width}} {ratio:g} {text:.40}'"))) == 3


def test_only_the_formatter_writes_decimals() -> None:
    found = {}
    for path in sorted(PRODUCT.rglob("*.py")):
        name = path.relative_to(PRODUCT).as_posix()
        text = path.read_text()
        if name == "formatting.py" or name in DRAWN or not WRITTEN.search(text):
            continue
        if own := list(own_formats(text)):
            found[name] = own
    assert {name: len(own) for name, own in found.items()} == CODE, found
