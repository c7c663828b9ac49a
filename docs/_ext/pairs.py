"""Sick and cured programs: of the clinic, of the proof on a GPU, and of people who had not read the rules.

A gain is shown only where a file of `benchmarks/` has it: `clinic.json` (`make clinic CLINIC_ARGS="--json ..."`), what
`make gpu` leaves (`gpu/<card>.json`), and what the authors of the unseen programs timed (`unseen/`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from benchmarks.gpu.loops import PATIENTS, Loop, filled
from docs._ext import markdown
from tests.support.clinic.cell import Cell
from tests.support.clinic.ward import FAMILIES
from tests.support.repository import ROOT

BENCHMARKS: Final = ROOT / "benchmarks"
CLINIC: Final = BENCHMARKS / "clinic.json"
"""The last examination that was kept; absent until one is."""
ON_A_CARD: Final = ("cuda", 300, True, 8192)
"""Device, steps, full sizes, and rows with which a GPU's program is shown; the rows of a run fit its card."""


@dataclass(frozen=True)
class Pair:
    """One program, and how it is cured."""

    name: str
    source: str
    """As people write it, with its trouble."""
    change: str
    """Markdown: the change that cures it."""
    gains: tuple[str, ...] = ()
    """Sentences, one for each file that has a figure."""


@dataclass(frozen=True)
class Unseen:
    """A program by somebody who had not read the rules."""

    name: str
    why: str
    cure: str
    gain: float | None
    """Timed bare on a CPU, sick over cured; None where it was not."""
    change: str


def shown(rule: str) -> Pair | None:
    """The pair of a rule that is read most quickly; None where this repository has no program that can be run."""
    cells = [one for one in _cells() if one.top[:1] == (rule,)] or [one for one in _cells() if rule in one.top]
    if cells:
        return _of_the_clinic(min(cells, key=lambda one: len(one.before) + len(one.sick) + len(one.cured)))
    found = [one for one in PATIENTS if one.rule == rule and one.cured]
    return _of_a_card(found[0]) if found else None


def _cells() -> Iterator[Cell]:
    """Sick cells that run on any machine."""
    for family in FAMILIES.values():
        for one in family:
            if isinstance(one, Cell) and not one.healthy and (one.cured or one.cure):
                yield one


def _of_the_clinic(cell: Cell) -> Pair:
    before, sick = cell.notebook()
    after, cured = cell.notebook(cell.cured)
    above = before.strip("\n")
    change = markdown.difference(f"{above}\n{sick}", f"{after.strip(chr(10))}\n{cured}")
    if not change:
        settings = ", ".join(f"{name}={value!r}" for name, value in cell.cure.items())
        change = f"Cured by `{settings}`."
    gain = _clinic().get(cell.name)
    said = (f"Measured by the clinic: {gain:.2f}x.",) if gain else ()
    return Pair(cell.name, f"{above}\n\n{sick.strip(chr(10))}", change, said)


def _of_a_card(one: Loop) -> Pair:
    above, after = (filled(cells, *ON_A_CARD) for cells in (one.above, one.better or one.above))
    sick, cured = (f"{cells.strip()}\n\n{cell.strip()}" for cells, cell in ((above, one.cell), (after, one.cured)))
    said = tuple(f"Measured on {card}: {gain:.2f}x." for card, gain in _cards(f"{one.key}: cure"))
    return Pair(one.key, sick, markdown.difference(sick, cured), said)


@lru_cache(maxsize=1)
def _clinic() -> dict[str, float]:
    """Patient -> what its cure gave by the clock, of those that have one."""
    visits = json.loads(CLINIC.read_text(encoding="utf-8")) if CLINIC.exists() else []
    return {one["name"]: one["real"] for one in visits if one["real"] is not None}


@lru_cache(maxsize=1)
def proofs() -> tuple[dict[str, Any], ...]:
    """What `make gpu` found, a card each."""
    return tuple(json.loads(path.read_text(encoding="utf-8")) for path in sorted((BENCHMARKS / "gpu").glob("*.json")))


def _cards(row: str) -> Iterator[tuple[str, float]]:
    """Card and gain of a row, of each proof that has it."""
    for proof in proofs():
        rows = proof["parts"].get("patients", {}).get("rows", {})
        gain = rows.get(row, {}).get("figures", {}).get("real")
        if gain is not None:
            yield str(proof["machine"]["card"]), float(gain)


def unseen(rule: str = "") -> list[Unseen]:
    """The programs whose trouble is of a rule, or all that are sick."""
    folder = BENCHMARKS / "unseen"
    mended = json.loads((folder / "mended.json").read_text(encoding="utf-8"))
    told = [(f"{one['set']}/{one['program']}", one, one["patch"]) for one in mended if one["patch"]]
    for path in sorted(folder.glob("*/truth.json")):
        for name, truth in json.loads(path.read_text(encoding="utf-8")).items():
            cure = path.with_name(f"{name}.patch")
            if cure.exists():
                change = cure.read_text(encoding="utf-8").split("\n", 2)[2]
                told.append((f"{path.parent.name}/{name}", truth, change))
    return [
        Unseen(name, str(truth["why"]), str(truth["cure"]), truth.get("cpu_gain"), markdown.code(change, "diff"))
        for name, truth, change in told
        if truth["rules"] and (not rule or truth["rules"][0] == rule)
    ]
