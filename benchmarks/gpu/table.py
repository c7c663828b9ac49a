"""The table of a proof: every part, every row, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.gpu.kept import DONE
from benchmarks.gpu.plan import Part

MARKS: Final = {True: "yes", False: "**no**", None: ""}
SIMULATED: Final = (
    "**Simulated.** No GPU took part: the CPU and a simulated device stood in for one, with shrunken sizes. This shows "
    "that the proof runs, and says nothing of any card."
)


def table(machine: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]], parts: Sequence[Part]) -> str:
    """All that is kept, with the machine it was found on."""
    lines = [f"# {heading(machine)}", ""]
    if machine.get("simulated"):
        lines += [SIMULATED, ""]
    for part in parts:
        one = found.get(part.name, {})
        lines += [f"## {part.name}: {part.holds}", "", state(one), ""]
        rows: Mapping[str, Mapping[str, Any]] = one.get("rows", {})
        if rows:
            lines += ["| | found | as it should be |", "|---|---|---|"]
            lines += [f"| {_cell(key)} | {_cell(row.get('said', ''))} | {_mark(row)} |" for key, row in rows.items()]
            lines.append("")
    return "\n".join(lines)


def heading(machine: Mapping[str, Any]) -> str:
    """Card, driver, torch, Python, date."""
    versions = [
        f"driver {machine['driver']}" if machine.get("driver") else "",
        f"torch {machine.get('torch', '?')}",
        f"Python {machine.get('python', '?')}",
        f"{machine.get('cores', '?')} cores",
        str(machine.get("date", "")),
    ]
    return ", ".join([str(machine.get("card", "?")), *filter(None, versions)])


def state(one: Mapping[str, Any]) -> str:
    """How a part stands, in a line; the end of what went wrong."""
    if not one:
        return "Not run."
    rows = list(one.get("rows", {}).values())
    failed = sum(bool(row.get("error")) for row in rows)
    missed = sum(row.get("good") is False and not row.get("error") for row in rows)
    said = f"{str(one.get('status', '?')).capitalize()} after {one.get('seconds', 0):.0f} s: {len(rows)} rows"
    said += f", {missed} not as they should be" if missed else ""
    said += f", {failed} failed" if failed else ""
    said += f"; left: {', '.join(one['left'])}" if one.get("left") and one.get("status") != DONE else ""
    last = str(one.get("error", "")).strip().splitlines()[-1:]
    return f"{said}." + (f" {last[0]}" if last else "")


def summary(found: Mapping[str, Mapping[str, Any]], parts: Sequence[Part]) -> str:
    """A line a part."""
    return "\n".join(f"{part.name:<14} {state(found.get(part.name, {}))}" for part in parts)


def _mark(row: Mapping[str, Any]) -> str:
    return "failed" if row.get("error") else MARKS.get(row.get("good"), "")


def _cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
