"""How large the package is: its longest files, functions and classes, and the names that cross each room's wall.

Printed by the part `lint`, to look at. Nothing fails by it: a cap is met by splitting one thing in four.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.repository import ROOT

PACKAGE = ROOT / "gpu_doctor"
SHOWN = 3


@dataclass(frozen=True)
class Size:
    """One file, function or class, and how many lines it has."""

    lines: int
    name: str


def definitions(text: str, where: str) -> Iterator[tuple[str, Size]]:
    """Every function and class of a file, nested ones too, each with its kind."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            assert node.end_lineno is not None
            yield kind, Size(node.end_lineno - node.lineno + 1, f"{where}:{node.name}")


def crossing(text: str, room: str, rooms: set[str]) -> Iterator[tuple[str, str]]:
    """(room, name) of every name that a file of `room` imports from another room."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            package, _, path = node.module.partition(".")
            other = path.partition(".")[0]
            if package == "gpu_doctor" and other in rooms - {room}:
                yield from ((other, f"{path}.{alias.name}") for alias in node.names)


def told(package: Path = PACKAGE) -> str:
    """The longest of each kind, and the names over each wall, in a few lines."""
    rooms = {one.parent.name for one in package.glob("*/__init__.py")}
    found: dict[str, list[Size]] = {"file": [], "class": [], "function": []}
    over: dict[str, set[str]] = {room: set() for room in sorted(rooms)}
    for path in sorted(package.rglob("*.py")):
        where, text = path.relative_to(package).as_posix(), path.read_text(encoding="utf-8")
        found["file"].append(Size(text.count("\n"), where))
        for kind, size in definitions(text, where):
            found[kind].append(size)
        for room, name in crossing(text, where.partition("/")[0], rooms):
            over[room].add(name)
    lines = [
        f"longest {kind}: "
        + ", ".join(f"{one.name} {one.lines}" for one in sorted(sizes, key=lambda one: -one.lines)[:SHOWN])
        for kind, sizes in found.items()
    ]
    walls = ", ".join(f"{room} {len(names)}" for room, names in over.items())
    return "\n".join([*lines, f"names over walls: {walls}"])


if __name__ == "__main__":
    print(told())
