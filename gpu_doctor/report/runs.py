"""Builds the table of runs and trials for the text, the static HTML and the panel: one row each, with its details."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis import Vitals
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.diagnosis.words import RISK_MARK, forecast_words
from gpu_doctor.labels import OUTCOME_LABELS
from gpu_doctor.recording import CLEAN, Recording, describe
from gpu_doctor.report.contract import Cell, Tone, Unfolded
from gpu_doctor.report.losses import loss_lines
from gpu_doctor.report.remembered import Remembered
from gpu_doctor.report.trials import NO_GPU, TOO_SHORT, Sides, loss_story, notes_of
from gpu_doctor.svg import address
from gpu_doctor.trials.compare import UNMEASURED, Effect

MARKS: Final = {"faster": "▲", "slower": "▼", "no": "=", "at": "≤"}
"""Mark before the words of a verdict, by their first word; other verdicts get `?`."""

TONES: Final[Mapping[str, Tone]] = {"faster": "good", "slower": "bad"}

_pictures: Remembered[str] = Remembered()
_measured: Remembered[Vitals] = Remembered()


@dataclass(frozen=True)
class Row:
    """A row of the table: a run or a trial."""

    cells: tuple[Cell, ...]
    """Cells in the order of `columns`."""
    effect: Effect | None = None
    """Effect of the trial; None for a run."""
    sides: Sides | None = None
    among: Sequence[Effect] = ()
    """Effects of all trials of the case."""

    def unfolded(self) -> Unfolded | None:
        """Returns the details that the row unfolds; None for a run, which has none."""
        return None if self.effect is None else _unfolded(self.effect, self.sides, self.among)


def columns(on_gpu: bool, effects: Sequence[Effect] = ()) -> tuple[str, ...]:
    """Returns the table's column titles.

    Args:
        on_gpu: True if the device column shows the GPU.
        effects: effects of the trials in the table. They name the unit of throughput: steps/s if the loop's samples
            are unknown.
    """
    unit = next((effect.unit for effect in effects if effect.unit != "samples/s"), "samples/s")
    device = "GPU" if on_gpu else "CPU"
    return ("run", "settings", unit, "vs baseline (95 %)", "predicted", "wait", device, "peak mem", "loss")


def rows(
    recordings: Sequence[Recording],
    effects: Sequence[Effect],
    sides: Sequence[Sides | None] = (),
    on_gpu: bool = False,
) -> list[Row]:
    """Returns the rows: the newest run as written, the other runs, then the trials, oldest first.

    All are compared with the code as written.

    Args:
        recordings: runs of a case.
        effects: effects of the case.
        sides: recordings of each effect (see `trials.sides_of`).
        on_gpu: True if the device column shows the GPU.
    """
    base = next((run for run in reversed(recordings) if not run.settings), None)
    base_rate = None if base is None else vitals_of(base).samples_per_s
    table = [] if base is None else [_run("baseline", base, None, on_gpu)]
    numbered = [run for run in recordings if run is not base]
    table += [_run(f"run {number}", run, base_rate, on_gpu) for number, run in enumerate(numbered, 1)]
    found = [*sides, *[None] * len(effects)]
    return table + [_trial(number, effects, found[number - 1], on_gpu) for number in range(1, len(effects) + 1)]


def _over_written(effect: Effect, before: Sequence[Effect]) -> float | None:
    """Returns a trial's speed over the code as written, or None if it is unknown.

    A treatment compares each step with the step before; the result is then the product of all steps up to this one.
    """
    if not effect.baseline_settings or effect.speedup is None:
        return effect.speedup
    at = next((n for n in reversed(range(len(before))) if before[n].settings == effect.baseline_settings), None)
    so_far = None if at is None else _over_written(before[at], before[:at])
    return None if so_far is None else so_far * effect.speedup


def vitals_of(recording: Recording) -> Vitals:
    """Returns `measure(recording)`, cached for as long as the recording lives."""
    return _measured.of(recording, lambda: measure(recording))


def _run(name: str, recording: Recording, base_rate: float | None, on_gpu: bool) -> Row:
    vitals = vitals_of(recording)
    rate = vitals.samples_per_s
    against = Cell("1.00x" if name == "baseline" and rate else formatting.DASH)
    if base_rate and rate:
        against = Cell(formatting.factor(rate / base_rate), title="Single runs have no interval. A trial measures one.")
    if recording.outcome != "completed":
        name = f"{name} ({OUTCOME_LABELS.get(recording.outcome, formatting.clean(recording.outcome))})"
    busy = vitals.gpu_util_pct if on_gpu else vitals.cpu_util_pct
    why = "" if busy is not None else TOO_SHORT if on_gpu else NO_GPU
    return Row(
        (
            Cell(name, title=formatting.clean(recording.reason)),
            Cell(formatting.clean(describe(recording.settings), 120)),
            Cell(_per_s(vitals)),
            against,
            Cell(formatting.DASH),
            Cell(
                formatting.share(vitals.data_wait_share, formatting.DASH)
            ),  # of the wall-clock, as in the trials' rows
            Cell(formatting.percent(busy, formatting.DASH), title=why),
            Cell(formatting.size(vitals.peak_bytes, formatting.DASH)),
            Cell(formatting.loss(vitals.final_loss)),
        )
    )


def _per_s(vitals: Vitals) -> str:
    if vitals.samples_per_s is not None:
        return formatting.number(vitals.samples_per_s, formatting.DASH)
    return formatting.rate(vitals.steps_per_s, "steps/s", formatting.DASH)


def _unfolded(effect: Effect, sides: Sides | None, among: Sequence[Effect]) -> Unfolded:
    story = loss_story(effect, sides)
    return Unfolded(
        losses=_picture(sides, effect.loss_first_step) if sides is not None and story.judgement else "",
        warns=story.warns,
        judged=tuple(sentence for sentence in (story.judgement, story.scaling) if sentence),
        notes=notes_of(effect, sides, among),
        settings=dict(effect.settings),
        measured=", ".join(_measurement(effect)),
    )


def _measurement(effect: Effect) -> list[str]:
    """Returns phrases on a trial's measured steps, its duration and its predicted speed-up."""
    parts = []
    if effect.steps:
        parts = [formatting.count(effect.steps, "measured step"), f"took {formatting.seconds(effect.seconds)}"]
        parts += [f"on {formatting.clean(effect.device, 120)}"] if effect.device else []
    if effect.predicted_speedup is not None:
        parts.append(
            f"predicted {forecast_words(effect.predicted_speedup, effect.predicted_low, effect.predicted_high)}"
        )
    return parts


def _picture(sides: Sides, differs_from: int | None) -> str:
    """Returns the address of an image of both sides' losses, drawn once per trial; '' if there is nothing to draw."""

    def drawn() -> str:
        svg = loss_lines(sides[0].losses, sides[1].losses, differs_from)
        return address(svg) if svg else ""

    return _pictures.of(sides[1], drawn)


def _device(sides: Sides | None, on_gpu: bool) -> Cell:
    """Returns the cell of the device's utilization in the candidate's run, with the baseline's as its tooltip."""
    if sides is None:
        return Cell(formatting.DASH)
    base, candidate = (vitals_of(side) for side in sides)
    name = "gpu_util_pct" if on_gpu else "cpu_util_pct"
    busy = getattr(candidate, name)
    if busy is None:
        return Cell(formatting.DASH, title=TOO_SHORT if candidate.on_gpu or not on_gpu else NO_GPU)
    return Cell(formatting.percent(busy), title=f"baseline in this trial: {formatting.percent(getattr(base, name))}")


def _trial(number: int, effects: Sequence[Effect], sides: Sides | None, on_gpu: bool) -> Row:
    effect = effects[number - 1]
    over_written = _over_written(effect, effects[: number - 1])
    settings = formatting.clean(describe(effect.settings), 120)
    if effect.elsewhere:
        settings += f" on {formatting.clean(effect.device, 120)}"
    took = f"{formatting.count(effect.steps, 'measured step')}, {formatting.seconds(effect.seconds)}"
    per_s = formatting.number(effect.candidate_samples_per_s, formatting.DASH)
    before = formatting.rate(effect.baseline_samples_per_s, effect.unit)
    waited = formatting.share(effect.baseline_wait_share)
    cells = (
        Cell(f"trial {number}", title=took),
        Cell(settings),
        Cell(per_s, title=f"baseline in this trial: {before}"),
        _against(effect, over_written),
        _predicted(effect),
        Cell(formatting.share(effect.candidate_wait_share, formatting.DASH), title=f"baseline in this trial: {waited}"),
        _device(sides, on_gpu),
        Cell(formatting.size(effect.peak_bytes, formatting.DASH)),
        _loss(effect),
    )
    return Row(cells, effect, sides, effects)


def _loss(effect: Effect) -> Cell:
    """Returns the cell of both sides' losses; a dash if a side failed."""
    compared = effect.outcome not in UNMEASURED
    if not compared or (effect.baseline_loss is None and effect.candidate_loss is None):
        return Cell(formatting.DASH)
    both = f"{formatting.loss(effect.baseline_loss)}\u00a0→ {formatting.loss(effect.candidate_loss)}"
    warns = effect.loss_changed
    comparison = f"baseline → candidate: {effect.loss_words}".removesuffix(": ")
    return Cell(f"{both}\u00a0{RISK_MARK}" if warns else both, "bad" if warns else "", comparison)


def _predicted(effect: Effect) -> Cell:
    """Returns the cell of the forecast; for a treatment's step it names the step before, which it is relative to."""
    words = forecast_words(effect.predicted_speedup, effect.predicted_low, effect.predicted_high)
    if not effect.baseline_settings:
        return Cell(words)
    return Cell(formatting.over(words), title=f"over {formatting.clean(describe(effect.baseline_settings), 120)}")


def _against(effect: Effect, over_written: float | None) -> Cell:
    """Returns the cell of the speed-up over the code as written with its interval and verdict, or why there is none.

    For a treatment's step the speed-up is a product, which has no interval: the measured gain of the step follows it in
    small text.
    """
    if effect.speedup is None or effect.outcome not in CLEAN:
        outcome = OUTCOME_LABELS.get(effect.outcome, formatting.clean(effect.outcome))
        outcome = "nothing was measured" if effect.outcome in CLEAN else outcome
        reason = formatting.clean(effect.reason, 200)
        return Cell(f"{outcome}: {reason}" if reason else outcome, "bad" if effect.outcome != "stopped" else "")
    tone = TONES.get(effect.verdict, "")
    words, why = effect.verdict_words, formatting.clean(effect.reason)
    verdict = f"{MARKS.get(words.split()[0], '?')} {words}".replace(" ", "\u00a0").replace(",\u00a0", ", ")
    measured = formatting.speedup(effect.speedup, effect.low, effect.high)
    if not effect.baseline_settings:
        return Cell(measured.replace(" ", "\u00a0") + f" {verdict}", tone, why)
    step = f"{formatting.over(measured)} over {formatting.clean(describe(effect.baseline_settings), 120)} {verdict}"
    return Cell(formatting.factor(over_written, formatting.DASH), tone, why, step)
