"""What the page alone says: buttons, what they are for, what it waits for. Written once, sent with the panel's state.

What stands between braces the page fills in: a figure that a person has just ticked, the label of a cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_doctor.report.labels import LABELS


@dataclass(frozen=True)
class Purposes:
    """What the buttons that ask for something are for, by what they ask."""

    trial: str = (
        "Runs the code as written and with these settings in turn, from the same state, then restores everything"
    )
    treat: str = "Tries each recommendation, and keeps what is confirmed when it is measured again"
    real: str = "Runs the whole cell once more, in your namespace, under these settings"
    largest: str = "Finds the largest batch that fits and the best one for samples/s, in at most three short trials"
    sweep: str = "Compares every combination of the values that you tick with the code as written"


@dataclass(frozen=True)
class Words:
    """What the page alone says."""

    purposes: Purposes = Purposes()

    stop: str = "Stop"
    stop_run: str = "Stop the run"
    stop_request: str = "Stop: cancel the request before it begins"
    stopping: str = "stopping"
    unheard: str = f"No answer yet: {LABELS.interrupt}."
    lost: str = "The kernel that ran this cell is gone: run the cell again."
    gone: str = "no kernel"
    no_news: str = "no news"
    silent: str = "No news from the kernel for half a minute. If it has ended, run the cell again."
    unanswered: str = "No answer yet: the kernel is busy. If it was restarted, run the cell again."
    progress: str = "progress of the trial"

    try_it: str = "Try it"
    why: str = "why?"
    code: str = "code"
    code_tip: str = "Your cells with the change: the changed lines or the whole cells"
    unmeasured: str = "no step was measured yet"

    seconds_since: str = "seconds since the start"
    pointed_at: str = "at {seconds} s"
    epoch: str = "epoch"
    evaluation: str = "evaluation"
    line_tip: str = "{line}: hides or shows the line"
    plot: str = "{title} in {unit} over seconds; the figures are above"
    plots_wait: str = "The plots come as soon as the kernel is free."
    plots_failed: str = "The plots could not be drawn ({why}). The run is not affected."

    turn_first: str = "turn a knob first"
    trial: str = "Rerun as a trial"
    treat: str = "Treat: find the best safe settings"
    treat_more: str = "treat may change batch size and precision"
    real: str = "Run for real with these settings"
    real_again: str = "Run for real again"
    reset_tip: str = "Reset every knob"
    code_of_these: str = "code of these"
    unchangeable: str = "cannot be changed:"
    more: str = "more"
    more_turned: str = "more •"
    length: str = "length of a trial"
    length_before: str = "trial of"
    length_steps: str = "steps,"
    length_seconds: str = "s"
    budget_tip: str = (
        "Steps of each side, and seconds to measure in all: they count from the end of the warm-up. Set-up, compile "
        "and downloads have their own time, told while they last."
    )
    before: str = (
        "A trial restores model, optimizer, loaders, random generators, your variables and the files that your cell "
        "writes. It does not undo data that it sends."
    )

    sweep: str = "Sweep"
    largest: str = "Find the largest batch"
    sweep_values: str = "values of the sweep"
    sweep_run: str = "Run the sweep"
    sweep_empty: str = "Tick values: every combination is compared with the code as written."
    sweep_count: str = "Combinations: {count}, each compared with the code as written. Slower ones stop early."
    sweep_many: str = "{count} combinations are too many: a sweep takes at most {most}. Tick fewer values."
    more_knobs: str = "more knobs"
    sweep_rows: str = "combinations of the sweep"
    sweep_head: tuple[str, ...] = ("setting", "state", "samples/s", "vs the code as written", "loss", "")
    sweep_later: str = "the other combinations"
    largest_bars: str = "memory of each batch size"
    set_knobs: str = "set the knobs to this"
    set_knob: str = "set the knob to {value}"
    gains: str = "measured gains"

    runs: str = "runs and trials"
    row_tip: str = "losses, notes, code"
    no_losses: str = "There are no losses to compare."
    picture: str = "picture {number} of the run"

    copy: str = "copy"
    copied: str = "copied"
    copy_lines: str = "Copy these lines"
    copy_whole: str = "copy whole cell"
    copy_cell: str = "copy {cell}"
    copy_changed: str = "Copy {cell} with the change"
    whole_cell: str = "whole cell"
    whole: str = "{cell}, whole"
    changed_lines: str = "lines that change"
    looking: str = "Looking at your cells …"
    cells_wait: str = "The kernel is busy: the changed cells appear when it is free."
    or_paste: str = "Or, to paste:"

    findings: str = "findings"
    findings_of: str = "lost: measured, would be gone. At most: a bound. Shares of the wall-clock; they overlap"
    hints: str = LABELS.hints


WORDS: Final = Words()
