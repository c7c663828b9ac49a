"""A case in words: plain text for a terminal, and self-contained HTML that stays in the saved notebook.

Both walk the sections of `sections.py`, verdict first. The HTML survives notebook sanitizers (see
`gpu_doctor.diagnosis.as_html`); everything that comes from the user's program, a loaded file or a device's driver is
cleaned and escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from gpu_doctor.diagnosis.as_html import whole
from gpu_doctor.report.sections import SECTIONS, Reported

MOST_LETTERS: Final = 140_000
"""Of the static result, which is saved with the notebook; the frame and a note are not counted."""
LEFT_OUT_FIRST: Final = ("lines", "trials", "plots", "not judged", "plan", "sweep")
"""Sections that a result which would be larger goes without, in this order: what is left says the same without them."""


def text(shown: Reported) -> str:
    """The report for a terminal, lines of about 100 characters."""
    return "\n\n".join(part for section in SECTIONS if (part := section.text(shown)))


def html(shown: Reported) -> str:
    """The static result: one `<div class="gpu-doctor-static">`, self-contained, readable on light and dark pages."""
    written = {section.name: section.html(shown) for section in SECTIONS}
    left_out = _left_out(written)
    if left_out:
        said = f"Left out here, to keep the notebook small: {', '.join(left_out)}."
        last = replace(shown, notes=(*shown.notes, said))
        written |= {section.name: section.html(last) for section in SECTIONS if section.name == "footer"}
    return whole(*(text for name, text in written.items() if name not in left_out))


def _left_out(written: Mapping[str, str]) -> list[str]:
    """The sections that the static result goes without, so that it takes at most `MOST_LETTERS`."""
    too_much = sum(map(len, written.values())) - MOST_LETTERS
    names = []
    for name in LEFT_OUT_FIRST:
        if too_much > 0 and written.get(name):
            too_much -= len(written[name])
            names.append(name)
    return names
