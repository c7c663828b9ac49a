"""The table of runs and trials, as text, static HTML and panel draw it: one row each, with what it unfolds."""

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
"""Before the words of a verdict, by the first of them; `?` before others."""

TONES: Final[Mapping[str, Tone]] = {"faster": "good", "slower": "bad"}

_pictures: Remembered[str] = Remembered()
_measured: Remembered[Vitals] = Remembered()


@dataclass(frozen=True)
class Row:
    """A run or a trial."""

    cells: tuple[Cell, ...]
    """Under `columns`."""
    effect: Effect | None = None
    """Of a trial."""
    sides: Sides | None = None
    among: Sequence[Effect] = ()
    """All trials of the case."""

    def unfolded(self) -> Unfolded | None:
        """None for a run: it has nothing more to say."""
        return None if self.effect is None else _unfolded(self.effect, self.sides, self.among)


def columns(on_gpu: bool, effects: Sequence[Effect] = ()) -> tuple[str, ...]:
    """Head of the table; the cells of a row stand under it.

    Args:
        on_gpu: the device column is the GPU's.
        effects: of the trials in the table: a loop whose samples are not known is measured in steps/s.
    """
    unit = next((one.unit for one in effects if one.unit != "samples/s"), "samples/s")
    device = "GPU" if on_gpu else "CPU"
    return ("run", "settings", unit, "vs baseline (95 %)", "predicted", "wait", device, "peak mem", "loss")


def rows(
    recordings: Sequence[Recording],
    effects: Sequence[Effect],
    sides: Sequence[Sides | None] = (),
    on_gpu: bool = False,
) -> list[Row]:
    """The newest run as written, the other runs, then the trials, oldest first; all against the code as written.

    Args:
        recordings: of a case.
        effects: of the case.
        sides: the recordings of each effect (see `trials.sides_of`).
        on_gpu: the device column is the GPU's.
    """
    base = next((one for one in reversed(recordings) if not one.settings), None)
    base_rate = None if base is None else vitals_of(base).samples_per_s
    table = [] if base is None else [_run("baseline", base, None, on_gpu)]
    numbered = [one for one in recordings if one is not base]
    table += [_run(f"run {number}", one, base_rate, on_gpu) for number, one in enumerate(numbered, 1)]
    found = [*sides, *[None] * len(effects)]
    return table + [_trial(number, effects, found[number - 1], on_gpu) for number in range(1, len(effects) + 1)]


def _over_written(effect: Effect, before: Sequence[Effect]) -> float | None:
    """Its speed over that of the code as written: of a climb's step, the product of all steps up to it."""
    if not effect.baseline_settings or effect.speedup is None:
        return effect.speedup
    at = next((n for n in reversed(range(len(before))) if before[n].settings == effect.baseline_settings), None)
    so_far = None if at is None else _over_written(before[at], before[:at])
    return None if so_far is None else so_far * effect.speedup


def vitals_of(recording: Recording) -> Vitals:
    """`measure(recording)`, remembered as long as the recording lives."""
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
        judged=tuple(one for one in (story.judgement, story.scaling) if one),
        notes=notes_of(effect, sides, among),
        settings=dict(effect.settings),
        measured=", ".join(_measurement(effect)),
    )


def _measurement(effect: Effect) -> list[str]:
    """What a trial cost, and what was expected of it."""
    said = []
    if effect.steps:
        said = [formatting.count(effect.steps, "measured step"), f"took {formatting.seconds(effect.seconds)}"]
        said += [f"on {effect.device}"] if effect.device else []
    if effect.predicted_speedup is not None:
        said.append(
            f"predicted {forecast_words(effect.predicted_speedup, effect.predicted_low, effect.predicted_high)}"
        )
    return said


def _picture(sides: Sides, differs_from: int | None) -> str:
    """Both sides' losses as the address of an image, drawn once a trial."""

    def drawn() -> str:
        svg = loss_lines(sides[0].losses, sides[1].losses, differs_from)
        return address(svg) if svg else ""

    return _pictures.of(sides[1], drawn)


def _device(sides: Sides | None, on_gpu: bool) -> Cell:
    """How busy the device was in the candidate's run, and beside it in the baseline's."""
    if sides is None:
        return Cell(formatting.DASH)
    base, candidate = (vitals_of(one) for one in sides)
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
        settings += f" on {effect.device}"
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
    """Both sides' losses; a side that failed has none to set beside another."""
    compared = effect.outcome not in UNMEASURED
    if not compared or (effect.baseline_loss is None and effect.candidate_loss is None):
        return Cell(formatting.DASH)
    both = f"{formatting.loss(effect.baseline_loss)}\u00a0→ {formatting.loss(effect.candidate_loss)}"
    warns = effect.loss_changed
    said = f"baseline → candidate: {effect.loss_words}".removesuffix(": ")
    return Cell(f"{both}\u00a0{RISK_MARK}" if warns else both, "bad" if warns else "", said)


def _predicted(effect: Effect) -> Cell:
    """The forecast; of a climb's step it is one over the step before, and is written so."""
    said = forecast_words(effect.predicted_speedup, effect.predicted_low, effect.predicted_high)
    if not effect.baseline_settings:
        return Cell(said)
    return Cell(formatting.over(said), title=f"over {formatting.clean(describe(effect.baseline_settings), 120)}")


def _against(effect: Effect, over_written: float | None) -> Cell:
    """The speed-up over the code as written with its interval and verdict, or why there is none.

    That of a climb's step is a product, which has no interval: what was measured stands beside it.
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
