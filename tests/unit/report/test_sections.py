"""The text, the static HTML and the panel show the sections of one list, in its order."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.report import as_text
from gpu_doctor.report.panel import PanelInput, panel_state, state
from gpu_doctor.report.runs import columns
from gpu_doctor.report.sections import SECTIONS, Reported, Section
from gpu_doctor.trials.knobs import KNOBS
from tests.support.recordings import starved


def test_all_three_show_the_sections_in_the_order_of_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[str] = []

    def marked_as(section: Section) -> Section:
        def draw(_: Reported) -> str:
            return f"<{section.name}>"

        def piece(given: PanelInput) -> dict[str, Any]:
            walked.append(section.name)
            return section.panel(given)

        return Section(section.name, draw, draw, piece)

    one = starved()
    marked = tuple(marked_as(section) for section in SECTIONS)
    monkeypatch.setattr(as_text, "SECTIONS", marked)
    names = "".join(f"<{section.name}>" for section in SECTIONS)
    assert as_text.text(Reported(diagnose(one), (one,))).replace("\n\n", "") == names
    assert names in as_text.html(Reported(diagnose(one), (one,)))
    monkeypatch.setattr(panel_state, "SECTIONS", marked)
    state(PanelInput(recordings=(one,), diagnosis=diagnose(one)), KNOBS)
    assert walked == [section.name for section in SECTIONS]


def test_no_section_stands_twice_in_the_list() -> None:
    names = [section.name for section in SECTIONS]
    assert len(set(names)) == len(names)


def test_the_panels_table_has_the_columns_of_the_report() -> None:
    one = starved()
    shown = PanelInput(status="idle", setup=one.setup, recordings=(one,), diagnosis=diagnose(one))
    assert state(shown, KNOBS)["table"]["head"] == list(columns(one.setup.on_gpu))


def test_a_note_that_came_twice_is_said_once_in_both() -> None:
    one = starved(notes=("Seen twice.", "Seen twice."))
    diagnosis = diagnose(one)
    assert as_text.text(Reported(diagnosis, (one,))).count("Seen twice.") == 1
    assert as_text.html(Reported(diagnosis, (one,))).count("Seen twice.") == 1
