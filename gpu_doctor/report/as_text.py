"""Reports on a case: plain text for a terminal, and self-contained HTML that stays in the saved notebook.

Both walk the sections of `sections.py`, verdict first. The HTML survives notebook sanitizers (see
`gpu_doctor.diagnosis.as_html`). Text from the user's program, a loaded file or a device driver is cleaned and escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from gpu_doctor.diagnosis.as_html import whole
from gpu_doctor.report.sections import SECTIONS, Reported

MOST_LETTERS: Final = 140_000
"""Largest size of the static result, in characters, because it is saved with the notebook. The frame and one note do
not count."""
LEFT_OUT_FIRST: Final = ("lines", "trials", "plots", "not judged", "plan", "sweep")
"""Sections dropped, in this order, until the result fits `MOST_LETTERS`. The other sections repeat their message."""


def text(shown: Reported) -> str:
    """Returns the report for a terminal, in lines of about 100 characters."""
    return "\n\n".join(part for section in SECTIONS if (part := section.text(shown)))


def html(shown: Reported) -> str:
    """Returns the static result: one self-contained `<div class="gpu-doctor-static">` for light and dark pages."""
    written = {section.name: section.html(shown) for section in SECTIONS}
    left_out = _left_out(written)
    if left_out:
        note = f"Left out here, to keep the notebook small: {', '.join(left_out)}."
        last = replace(shown, notes=(*shown.notes, note))
        written |= {section.name: section.html(last) for section in SECTIONS if section.name == "footer"}
    return whole(*(text for name, text in written.items() if name not in left_out))


def _left_out(written: Mapping[str, str]) -> list[str]:
    """Returns the names of the sections to drop so that the static result takes at most `MOST_LETTERS` characters."""
    too_much = sum(map(len, written.values())) - MOST_LETTERS
    names = []
    for name in LEFT_OUT_FIRST:
        if too_much > 0 and written.get(name):
            too_much -= len(written[name])
            names.append(name)
    return names
