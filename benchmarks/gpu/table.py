"""Writes the table of a proof in Markdown: every block, every row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from benchmarks.gpu.plan import BLOCKS

MARKS: Final = {True: "yes", False: "**no**", None: ""}
SHOWN: Final = 200
"""A summary shows so many characters of a row."""
SIMULATED: Final = (
    "**Simulated.** No GPU took part: the CPU or a simulated device stood in for one, with shrunken sizes. This shows "
    "that the proof runs, and says nothing of any card."
)


def table(machine: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]]) -> str:
    """Writes all that is kept, with the machine it was found on."""
    lines = [f"# {heading(machine)}", ""]
    if machine.get("simulated"):
        lines += [SIMULATED, ""]
    for block in BLOCKS:
        one = found.get(block.name, {})
        lines += [f"## {block.name}: {block.holds}", "", state(one), ""]
        rows: Mapping[str, Mapping[str, Any]] = one.get("rows", {})
        if rows:
            lines += ["| | found | as it should be |", "|---|---|---|"]
            lines += [f"| {_cell(key)} | {_cell(row.get('said', ''))} | {_mark(row)} |" for key, row in rows.items()]
            lines.append("")
    return "\n".join(lines)


def heading(machine: Mapping[str, Any]) -> str:
    """Writes card, driver, torch, Python and date."""
    versions = [
        f"driver {machine['driver']}" if machine.get("driver") else "",
        f"torch {machine.get('torch', '?')}",
        f"Python {machine.get('python', '?')}",
        f"{machine.get('cores', '?')} cores",
        str(machine.get("date", "")),
    ]
    return ", ".join([str(machine.get("card", "?")), *filter(None, versions)])


def state(one: Mapping[str, Any]) -> str:
    """Tells how a block stands."""
    if not one:
        return "Not run."
    rows = list(one.get("rows", {}).values())
    failed = sum(bool(row.get("error")) for row in rows)
    missed = sum(row.get("good") is False and not row.get("error") for row in rows)
    said = f"{str(one.get('status') or 'begun').capitalize()} after {one.get('seconds', 0):.0f} s: {len(rows)} rows"
    said += f", {missed} not as they should be" if missed else ""
    return said + (f", {failed} failed." if failed else ".")


def summary(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Writes a line for each block, and one for each row that is not as it should be."""
    lines = []
    for block in BLOCKS:
        one = found.get(block.name, {})
        lines.append(f"{block.name:<11} {state(one)}")
        missed = [(key, row) for key, row in one.get("rows", {}).items() if row.get("good") is False]
        lines += [f"    {key}: {_cell(row.get('said', ''))[:SHOWN]}" for key, row in missed]
    return "\n".join(lines)


def _mark(row: Mapping[str, Any]) -> str:
    return "failed" if row.get("error") else MARKS.get(row.get("good"), "")


def _cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
