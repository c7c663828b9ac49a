"""The table of runs and trials: settings, samples/s, against the baseline, predicted, wait, device, memory, loss."""

from __future__ import annotations

import base64
import weakref
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis import Vitals
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Recording, describe
from gpu_doctor.report.losses import loss_lines
from gpu_doctor.report.trials import NO_GPU, TOO_SHORT, WARNS, Sides, loss_story, notes_of, sides_of
from gpu_doctor.report.words import CLEAN, RISK_MARK, columns
from gpu_doctor.trials.compare import UNMEASURED, Effect

VERDICTS: Final = {
    "faster": "▲\u00a0faster",
    "slower": "▼\u00a0slower",
    "no-difference": "=\u00a0no\u00a0difference",
    "inconclusive": "?\u00a0inconclusive",
}

_pictures: dict[int, tuple[weakref.ref[Recording], str]] = {}
_measured: dict[int, tuple[weakref.ref[Recording], Vitals]] = {}


def runs(
    recordings: tuple[Recording, ...], effects: tuple[Effect, ...], on_gpu: bool, trials: tuple[Sides, ...] = ()
) -> dict[str, Any]:
    """Head, rows and details; a cell is a text, its tone (`good`, `bad` or none) and what it says when pointed at.

    Details stand beside the rows: what a row unfolds (`losses`, `judged`, `notes`, `settings`), None for nothing.
    """
    unit = next((one.unit for one in effects if one.unit != "samples/s"), "samples/s")
    head = [unit if name == "samples/s" else name for name in columns(on_gpu)]
    base = next((one for one in reversed(recordings) if not one.settings), None)
    base_rate = None if base is None else vitals_of(base).samples_per_s
    numbered = [one for one in recordings if one is not base]
    rows = [] if base is None else [_run("baseline", base, None, on_gpu)]
    rows += [_run(f"run {number}", one, base_rate, on_gpu) for number, one in enumerate(numbered, 1)]
    sides = sides_of(effects, trials)
    details: list[dict[str, Any] | None] = [None] * len(rows)
    for number, (effect, both) in enumerate(zip(effects, sides, strict=True), 1):
        rows.append(_trial(number, effect, both, on_gpu))
        details.append(_unfolded(effect, both))
    return {"head": head, "rows": rows, "details": details}


def vitals_of(recording: Recording) -> Vitals:
    """`measure(recording)`, remembered as long as the recording lives: the panel asks for it twice a second."""
    key = id(recording)
    known = _measured.get(key)
    if known is None or known[0]() is not recording:
        known = weakref.ref(recording, lambda _: _measured.pop(key, None)), measure(recording)
        _measured[key] = known
    return known[1]


def _cell(text: str, tone: str = "", title: str = "") -> dict[str, str]:
    # A figure keeps its unit beside it where a narrow panel breaks its cells.
    return {"text": text.replace(" ", "\u00a0") if len(text) < 10 else text, "tone": tone, "title": title}


def _run(name: str, recording: Recording, base_rate: float | None, on_gpu: bool) -> list[dict[str, str]]:
    vitals = vitals_of(recording)
    rate = vitals.samples_per_s
    against = _cell("1.00x" if name == "baseline" and rate else formatting.DASH)
    if base_rate and rate:
        against = _cell(
            formatting.factor(rate / base_rate), title="Two single runs have no interval: a trial measures one."
        )
    if recording.outcome != "completed":
        name = f"{name} ({formatting.OUTCOME_LABELS.get(recording.outcome, recording.outcome)})"
    busy = vitals.gpu_util_pct if on_gpu else vitals.cpu_util_pct
    return [
        _cell(name, title=formatting.clean(recording.reason)),
        _cell(formatting.clean(describe(recording.settings), 120)),
        _cell(formatting.number(rate, formatting.DASH)),
        against,
        _cell(formatting.DASH),
        _cell(formatting.share(vitals.data_wait_share, formatting.DASH)),
        _cell(
            formatting.percent(busy, formatting.DASH), title="" if busy is not None else TOO_SHORT if on_gpu else NO_GPU
        ),
        _cell(formatting.size(vitals.peak_bytes, formatting.DASH)),
        _cell(formatting.loss(vitals.final_loss)),
    ]


def _unfolded(effect: Effect, sides: Sides | None) -> dict[str, Any]:
    """What a trial's row unfolds."""
    story = loss_story(effect, sides)
    return {
        "losses": _picture(sides, effect.loss_first_step) if sides is not None and story.judgement else "",
        "warns": story.warns,
        "judged": [one for one in (story.judgement, story.scaling) if one],
        "notes": list(notes_of(effect, sides)),
        "settings": dict(effect.settings),
        "measured": ", ".join(_measurement(effect)),
    }


def _measurement(effect: Effect) -> list[str]:
    """What a trial cost, and what was expected of it."""
    said = []
    if effect.steps:
        said = [formatting.count(effect.steps, "measured step"), f"took {formatting.seconds(effect.seconds)}"]
    if effect.predicted_speedup is not None:
        said.append(f"predicted {_foretold(effect)}")
    return said


def _foretold(effect: Effect) -> str:
    """The forecast with its range; a dash where there was none."""
    ends = formatting.interval(effect.predicted_low, effect.predicted_high)
    return formatting.forecast(effect.predicted_speedup, formatting.DASH) + (f" ({ends})" if ends else "")


def _picture(sides: Sides, differs_from: int | None) -> str:
    """Both sides' losses as the address of an image, drawn once a trial."""
    candidate = sides[1]
    key = id(candidate)
    known = _pictures.get(key)
    if known is None or known[0]() is not candidate:
        svg = loss_lines(sides[0].losses, candidate.losses, differs_from)
        drawn = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}" if svg else ""
        known = weakref.ref(candidate, lambda _: _pictures.pop(key, None)), drawn
        _pictures[key] = known
    return known[1]


def _device(sides: Sides | None, on_gpu: bool) -> dict[str, str]:
    """How busy the device was in the candidate's run, and beside it in the baseline's."""
    if sides is None:
        return _cell(formatting.DASH)
    base, candidate = (vitals_of(one) for one in sides)
    name = "gpu_util_pct" if on_gpu else "cpu_util_pct"
    busy = getattr(candidate, name)
    if busy is None:
        return _cell(formatting.DASH, title=TOO_SHORT if candidate.on_gpu or not on_gpu else NO_GPU)
    return _cell(formatting.percent(busy), title=f"baseline in this trial: {formatting.percent(getattr(base, name))}")


def _trial(number: int, effect: Effect, sides: Sides | None, on_gpu: bool) -> list[dict[str, str]]:
    settings = formatting.clean(describe(effect.settings), 120)
    if effect.baseline_settings:
        settings += f" (over {formatting.clean(describe(effect.baseline_settings), 120)})"
    loss = _cell(formatting.DASH)
    compared = effect.outcome not in UNMEASURED  # a side that failed has no loss to set beside another
    if compared and (effect.baseline_loss is not None or effect.candidate_loss is not None):
        both = f"{formatting.loss(effect.baseline_loss)}\u00a0→ {formatting.loss(effect.candidate_loss)}"
        warns = effect.loss_verdict in WARNS
        said = f"baseline → candidate: {effect.loss_words}".removesuffix(": ")
        loss = _cell(f"{both}\u00a0{RISK_MARK}" if warns else both, "bad" if warns else "", said)
    return [
        _cell(
            f"trial {number}",
            title=f"{formatting.count(effect.steps, 'measured step')}, {formatting.seconds(effect.seconds)}",
        ),
        _cell(settings),
        _cell(
            formatting.number(effect.candidate_samples_per_s, formatting.DASH),
            title=f"baseline in this trial: {formatting.rate(effect.baseline_samples_per_s, effect.unit)}",
        ),
        _against(effect),
        _cell(_foretold(effect)),
        _cell(
            formatting.share(effect.candidate_wait_share, formatting.DASH),
            title=f"baseline in this trial: {formatting.share(effect.baseline_wait_share)}",
        ),
        _device(sides, on_gpu),
        _cell(formatting.size(effect.peak_bytes, formatting.DASH)),
        loss,
    ]


def _against(effect: Effect) -> dict[str, str]:
    """The speed-up with its interval and verdict, or why there is none."""
    if effect.speedup is None or effect.outcome not in CLEAN:
        outcome = formatting.OUTCOME_LABELS.get(effect.outcome, effect.outcome)
        outcome = "nothing was measured" if effect.outcome in CLEAN else outcome
        reason = formatting.clean(effect.reason, 200)
        return _cell(f"{outcome}: {reason}" if reason else outcome, "bad" if effect.outcome != "stopped" else "")
    tone = {"faster": "good", "slower": "bad"}.get(effect.verdict, "")
    measured = formatting.speedup(effect.speedup, effect.low, effect.high).replace(" ", "\u00a0")
    return _cell(f"{measured} {VERDICTS.get(effect.verdict, effect.verdict)}", tone, formatting.clean(effect.reason))
