"""Small things that a person sees: plurals, parts of a core, exceptions, progress bars, letters that can be read."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.rule import Prescription, Safety
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.diagnosis.words import NO_FORECAST, machine_facts, predicted_words
from gpu_doctor.recording import Recording
from gpu_doctor.report import as_text
from gpu_doctor.report.fix import MOST_LINES, fix_shown
from gpu_doctor.report.panel_parts import MOST_NOTES, footer, prescription
from gpu_doctor.report.plots import plots
from gpu_doctor.report.runs import rows
from gpu_doctor.report.sections import Reported
from gpu_doctor.svg import PHASE_COLOURS, ink
from tests.support.panel_parts import shown
from tests.support.recordings import starved
from tests.support.trial_parts import effects, fix, side, trials


def test_cores_seconds_left_and_exceptions_in_words() -> None:
    assert [formatting.cores(one) for one in (1.0, 4.0, 0.5, 2.5, None)] == [
        "1 core", "4 cores", "0.5 cores", "2.5 cores", formatting.NOT_MEASURED,
    ]  # fmt: skip
    assert "0.5 cores" in machine_facts(dataclasses.replace(starved().setup, usable_cores=0.5))
    assert [formatting.countdown(one) for one in (22.6, 125.0)] == ["23 s", "2 min 5 s"]
    assert formatting.raised(ValueError("seven")) == "ValueError: seven"
    assert formatting.raised(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_one_more_is_no_plural() -> None:
    notes = tuple(f"note {number}" for number in range(MOST_NOTES + 1))
    assert footer(shown(starved(), notes=notes)).notes[-1] == "The recording has 1 more note."
    changed = fix("a\n", "\n".join(map(str, range(MOST_LINES - 4))))  # and two heads, a place, two lines removed
    assert fix_shown(changed, {}).lines[-1] == ("place", "and 1 more line")


def test_how_sure_a_prediction_is_is_said_alike_everywhere() -> None:
    """A range and no bound where it was foretold; to be tried where nothing tells; nothing of what is done by hand."""
    for cure, words in (
        (Prescription("bf16", Safety.CHANGES_TRAINING, {"amp": "bf16"}), NO_FORECAST),
        (Prescription("Workers", Safety.SAFE, {"num_workers": 4}, "", 2.9, 2.6, 3.1), "predicted 2.9x (2.6-3.1)"),
        (Prescription("Look", Safety.BY_HAND), ""),
    ):
        assert predicted_words(cure) == prescription(cure).predicted == words


def test_a_diff_has_no_empty_line_behind_the_last_line_break() -> None:
    kinds = [kind for kind, _ in fix("a\n", "b\n").lines()]
    assert kinds == ["head", "head", "place", "removed", "added"]
    assert fix("a", "a\n").lines()[-1] == ("added", "+"), "a line break that the change adds is shown"


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("phase", PHASE_COLOURS)
def test_letters_on_a_phases_colour_can_be_read(phase: str) -> None:
    """WCAG 2.1 AA: 4.5 to 1."""
    darker, lighter = sorted(_luminance(one) for one in (PHASE_COLOURS[phase], ink(phase)))
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def test_the_wait_of_a_run_and_of_a_trial_is_the_same_measure() -> None:
    """On a GPU the exposed wait is shorter than the wait: beside each other they would show a cure that was none."""
    pairs = trials()
    table = rows([side()], effects(pairs))
    assert measure(side()).exposed_wait_share != measure(side()).data_wait_share
    assert table[0].cells[5].text == formatting.share(measure(side()).data_wait_share)


def test_a_memory_that_nothing_was_in_has_no_line() -> None:
    assert "process" in plots(starved()) and "workers" not in plots(starved())
    assert "workers" in plots(_with_workers())
    given = shown(starved())
    assert given.diagnosis is not None
    assert "peak 0 B" not in as_text.html(Reported(given.diagnosis, given.recordings))


def _with_workers() -> Recording:
    base = starved()
    filled = [dataclasses.replace(one, values=np.full(len(one.values), 2.0**30)) for one in base.series]
    return dataclasses.replace(base, series=tuple(filled))
