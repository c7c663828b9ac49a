"""Sick and cured programs: of the corpus, of the proof on a GPU, and of people who had not read the rules.

A gain is shown only where a file of `benchmarks/` has it: `corpus.json` (`make evaluate EVALUATE_ARGS="--json ..."`),
what `make gpu` leaves (`gpu/<card>.json`), and what the authors of the unseen programs timed (`unseen/`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from benchmarks.gpu.loops import LOOPS, Loop, filled
from docs._ext import markdown
from tests.support.repository import ROOT
from tools.evaluate.program import CORPUS, UNSEEN, Program, programs

BENCHMARKS: Final = ROOT / "benchmarks"
FIGURES: Final = BENCHMARKS / "corpus.json"
"""The figures of the last evaluation that was kept; absent until one is."""
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
    curable = [one for one in programs(CORPUS) if not one.healthy and one.curable]
    found = [one for one in curable if one.causes[:1] == (rule,)] or [one for one in curable if rule in one.causes]
    if found:
        return _of_the_corpus(min(found, key=lambda one: sum(map(len, (one.above, one.cell, *(one.cured or ()))))))
    loops = [one for one in LOOPS if one.rule == rule and one.cured]
    return _of_a_card(loops[0]) if loops else None


def _of_the_corpus(program: Program) -> Pair:
    (above, sick), (after, cured) = program.cells(), program.cells(cured=True)
    change = markdown.difference(f"{above}{sick}", f"{after}{cured}")
    if not change:
        settings = ", ".join(f"{name}={value!r}" for name, value in program.settings.items())
        change = f"Cured by `{settings}`."
    gain = _measured().get(program.name)
    sentences = (f"Measured by `make evaluate`: {gain:.2f}x.",) if gain else ()
    return Pair(program.name, f"{above}\n{sick.rstrip()}", change, sentences)


def _of_a_card(one: Loop) -> Pair:
    above, after = (filled(cells, *ON_A_CARD) for cells in (one.above, one.better or one.above))
    sick, cured = (f"{cells.strip()}\n\n{cell.strip()}" for cells, cell in ((above, one.cell), (after, one.cured)))
    said = tuple(f"Measured on {card}: {gain:.2f}x." for card, gain in _cards(f"{one.key}: cure"))
    return Pair(one.key, sick, markdown.difference(sick, cured), said)


@lru_cache(maxsize=1)
def _measured() -> dict[str, float]:
    """Program -> what its cure gave by the clock, of those that have one."""
    evaluations = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else []
    return {one["name"]: one["real"] for one in evaluations if one["real"] is not None}


@lru_cache(maxsize=1)
def proofs() -> tuple[dict[str, Any], ...]:
    """What `make gpu` found, a card each."""
    return tuple(json.loads(path.read_text(encoding="utf-8")) for path in sorted((BENCHMARKS / "gpu").glob("*.json")))


def _cards(row: str) -> Iterator[tuple[str, float]]:
    """Card and gain of a row, of each proof that has it."""
    for proof in proofs():
        rows = proof["parts"].get("causes", {}).get("rows", {})
        gain = rows.get(row, {}).get("figures", {}).get("real")
        if gain is not None:
            yield str(proof["machine"]["card"]), float(gain)


def unseen(rule: str = "") -> list[Unseen]:
    """The programs whose trouble is of a rule, or all that are sick."""
    mended = json.loads((UNSEEN / "mended.json").read_text(encoding="utf-8"))
    found = [
        (
            one["rules"],
            Unseen(f"{one['set']}/{one['program']}", one["why"], one["cure"], one.get("cpu_gain"), one["patch"]),
        )
        for one in mended
        if one["patch"]
    ]
    for one in programs(UNSEEN):
        patch = UNSEEN / one.group / f"{one.name}.patch"
        if patch.exists():
            change = patch.read_text(encoding="utf-8").split("\n", 2)[2]
            found.append((one.causes, Unseen(f"{one.group}/{one.name}", one.why, one.cure, one.author_gain, change)))
    return [
        replace(one, change=markdown.code(one.change, "diff"))
        for rules, one in found
        if rules and (not rule or rules[0] == rule)
    ]
