"""The usual slips on the lines of the magics: each is answered by what to write instead; and what `knobs` lists."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.error import UsageError

from gpu_doctor.notebook.line_magic import WIDTH, knob_list
from gpu_doctor.notebook.magic import GpuDoctorMagics, parsed_cell_line
from gpu_doctor.recording import Setup
from gpu_doctor.trials import knobs
from tests.support.recordings import starved


def answer(line: str) -> Any:
    return GpuDoctorMagics(None).ask(line)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--trial-stpes 5", "--trial-stpes 5"),
        ("--s 5", "--steps, --seconds, --set, --save"),
        ("--trial-seconds", "--trial-seconds: expected one argument"),
        ("--steps 0", "--steps: takes a whole number .* not '0'"),
        ("--steps 3 --seconds nan", "--seconds: takes a number of seconds above 0.* not 'nan'"),
        ("--price free", "--price: takes dollars an hour above 0, .* not 'free'"),
        ("--trial-seconds 0", "--trial-seconds: takes .* above 0, .* not '0'"),
        ("--trial-steps 2.5", "--trial-steps: takes a whole number .* not '2.5'"),
        ("--help", "--help"),
        ("num_workers=4", "num_workers=4"),
        ("--set num_workers 4", "arguments: 4"),
        ("--set num_workers=4,batch_size=2", "num_workers takes a whole number"),
        ("--set num_workers=4 --set num_workers=2", "num_workers is set twice"),
        ("--name my run", "arguments: run"),
        ("# as it was", "# as it was"),
        ("explain slow-getitem", "explain slow-getitem"),
    ],
)
def test_a_slip_on_the_cells_line(line: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as error:
        parsed_cell_line(line)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--steps 10", "%%gpudoctor, with two percent signs"),
        ("knob", "choose from 'check', 'knobs'"),
        ("check now", "check: too many positional arguments"),
        ("explain", "explain: missing a required argument: 'rule'"),
    ],
)
def test_a_slip_in_a_question(line: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        answer(line)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_a_question_is_understood_in_any_letters() -> None:
    assert "slow-getitem" in str(answer("Explain slow-getitem"))


def test_knobs_are_listed_with_what_they_can_be_and_why_not() -> None:
    listed = knob_list(knobs.KNOBS, starved().setup)
    lines = repr(listed).splitlines()
    assert lines[0].startswith("num_workers          as written 0; can be 1, 2")
    assert max(map(len, lines)) <= WIDTH
    assert "as written off; can be bf16" in repr(listed) and "as written as written" not in repr(listed)
    html = listed._repr_html_() or ""
    assert html.count("<tr") == len(knobs.KNOBS) + 1 and "table-layout:auto" in html


def test_of_a_knob_that_every_run_turned_nobody_knows_how_it_is_written() -> None:
    text = " ".join(repr(knob_list(knobs.KNOBS, starved().setup, turned={"num_workers": 0})).split())
    assert text.startswith("num_workers as written not run yet") and "(the last run used 0); can be 0, 1, 2" in text
    assert "as written off; can be bf16" in text and "run a cell with" not in text


def test_before_any_run_no_knob_says_what_a_loop_allows() -> None:
    said = " ".join(repr(knob_list(knobs.KNOBS, Setup())).split())
    assert said.count("run a cell with %%gpudoctor first") == len(knobs.KNOBS) and "uses no DataLoader" not in said
