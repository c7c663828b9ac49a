"""The usual slips on the lines of the magics: each is answered by what to write instead; and what `knobs` lists."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError

from gpu_doctor.notebook.line_magic import WIDTH, answer, knob_list
from gpu_doctor.notebook.options import parsed_cell_line
from gpu_doctor.recording import Setup
from gpu_doctor.trials import knobs
from tests.support.recordings import starved


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--trial-step 5", r"no option --trial-step. Did you mean --trial-steps\?"),
        ("--trial-seconds", "--trial-seconds takes a value"),
        ("--trial-seconds 0", "--trial-seconds takes .* above 0, .* not '0'"),
        ("--trial-steps 2.5", "--trial-steps takes a whole number .* not '2.5'"),
        ("--stpes 5", r"no option --stpes. Did you mean --steps\? Use: "),
        ("--no-vew", r"no option --no-vew. Did you mean --no-view\?"),
        ("-n 5", r"no option -n. Use: %%gpudoctor \[--steps N\]"),
        ("--help", r"%%gpudoctor\? shows"),
        ("num_workers=4", "To turn a knob for .* --set num_workers=4"),
        ("--set num_workers 4", "'num_workers' is no setting: write KNOB=VALUE"),
        ("--set num_workers=4,batch_size=2", "own --set: --set num_workers=4 --set batch_size=2"),
        ("--name my run", "'run' belongs to no option: .* --name 'my run'"),
        ("--steps", "--steps takes a value, such as --steps 50."),
        ("--save", "--save takes a value, such as --save run.npz."),
        ("# as it was", "The line of %%gpudoctor takes options only"),
        ("explain slow-getitem", "Write %gpudoctor explain slow-getitem, with one"),
    ],
)
def test_a_slip_on_the_cells_line(line: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parsed_cell_line(line)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "write %%gpudoctor, with two percent signs"),
        ("--steps 10", "write %%gpudoctor, with two percent signs"),
        ("knob", "'knob'. Did you mean knobs? Use: %gpudoctor"),
        ("check now", "This takes no argument. Use: %gpudoctor check"),
        ("explain", "Use: %gpudoctor explain RULE, such as slow-"),
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
