"""A cell with settings written into its own text, to be run as a person would paste it: no knob is turned."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_doctor.cell import Fix


@dataclass(frozen=True)
class Pasted:
    """The changed text of a case's cell, or why a trial cannot run it and turns knobs instead."""

    text: str = ""
    why_not: str = ""
    """A clause without a capital or a full stop; empty where there is a text."""


def pasted(fix: Fix, source: str, runs_texts: bool) -> Pasted:
    """What of a fix a trial of the cell can run.

    Args:
        fix: of the cells.
        source: the cell's own text, empty for a function.
        runs_texts: whether whoever runs the cell can run another text in its place.
    """
    if not source or not runs_texts:
        return Pasted(why_not="what is run is not given as text")
    if not fix.complete:
        return Pasted(why_not="the change could not be written into the cells")
    if not fix.cells:
        return Pasted(why_not="the cells have these settings already")
    if len(fix.cells) > 1 or fix.cells[0].before != source:
        return Pasted(why_not="the change lies in an earlier cell")
    return Pasted(fix.cells[0].after)
