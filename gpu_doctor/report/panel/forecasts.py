"""What settings should give, told before they are tried: of every single value of a knob, and of several together.

All is sent along, so that a page answers a turned knob by itself, also while the kernel is busy. Combinations are
worked out while nothing runs, as there may be hundreds: while a loop runs for the first time the page asks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import prod
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis import Vitals
from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.recording import Settings, SettingValue, describe
from gpu_doctor.report.contract import Choice, ForecastShown, KnobShown, Together
from gpu_doctor.report.labels import LABELS
from gpu_doctor.report.panel_input import PanelInput
from gpu_doctor.report.runs import vitals_of
from gpu_doctor.report.words import CLEAN, NO_FORECAST, forecast_words, predicted_words

MOST_TOGETHER: Final = 300
"""Combinations that are worked out before they are asked for: 0.2 s at most, and 10 kB."""
NONE_TOGETHER: Final = Together((), (), ())

_told: list[tuple[Vitals, tuple[KnobShown, ...], tuple[int, tuple[Settings, ...]], tuple[ForecastShown, ...]]] = []
_together: list[tuple[Vitals, tuple[KnobShown, ...], int, Together]] = []
"""The newest: they change with the diagnosis and the trials alone, and the panel asks twice a second."""


def forecasts(shown: PanelInput, knobs: tuple[KnobShown, ...]) -> tuple[ForecastShown, ...]:
    """Against the loop as written; empty while it was not measured."""
    vitals = _as_written(shown)
    if vitals is None:
        return ()
    about = len(shown.effects), shown.asked
    last = next(iter(_told), None)
    if last is None or last[0] is not vitals or last[1] is not knobs or last[2] != about:
        wanted = list(_single(shown, vitals, knobs))
        for one in (*(one.settings for one in shown.effects if _measured(shown, one.settings)), *shown.asked):
            if one not in wanted:
                wanted.append(one)
        last = vitals, knobs, about, tuple(_foretold(shown, vitals, one) for one in wanted)
        _told[:] = [last]
    return last[3]


def together(shown: PanelInput, knobs: tuple[KnobShown, ...]) -> Together:
    """Against the loop as written; what is known already while something runs, which they must not slow down."""
    vitals, last = _as_written(shown), next(iter(_together), None)
    if vitals is None:
        return NONE_TOGETHER
    fits = last is not None and last[0] is vitals
    if shown.status != "idle":
        return last[3] if last is not None and fits else NONE_TOGETHER
    if last is None or not fits or last[1] is not knobs or last[2] != len(shown.effects):
        last = vitals, knobs, len(shown.effects), _combined(shown, vitals, knobs)
        _together[:] = [last]
    return last[3]


def _as_written(shown: PanelInput) -> Vitals | None:
    """Of the newest run as written, the one that goes on among them."""
    diagnosis = shown.diagnosis
    if diagnosis is not None and not diagnosis.vitals.settings:
        return diagnosis.vitals
    written = next((one for one in reversed(shown.recordings) if not one.settings), None)
    return None if written is None else vitals_of(written)


def _single(shown: PanelInput, vitals: Vitals, knobs: tuple[KnobShown, ...]) -> Iterator[Settings]:
    """What can be chosen now, what was tried or is advised, and what is offered with workers and has no forecast then.

    Of what has one beside workers alone nothing is said by itself.
    """
    for knob in knobs:
        now, foreseeable = _free(knob.choices, knob), _foreseeable(shown, vitals, knob)
        later = _free(knob.otherwise.choices, knob) if knob.otherwise is not None else []
        named = [one for one in foreseeable if one not in later]
        unknown = [one for one in later if one not in foreseeable]
        for one in dict.fromkeys((*now, *named, *unknown)):
            yield {knob.name: one}


def _free(choices: tuple[Choice, ...], knob: KnobShown) -> list[SettingValue]:
    return [one.value for one in choices if one.value is not None and one.value != knob.written and not one.refusal]


def _combined(shown: PanelInput, vitals: Vitals, knobs: tuple[KnobShown, ...]) -> Together:
    axes: dict[str, tuple[SettingValue | None, ...]] = {}
    for knob in knobs:
        values = tuple(_foreseeable(shown, vitals, knob))
        if values and prod(map(len, axes.values())) * (len(values) + 1) <= MOST_TOGETHER:
            axes[knob.name] = (knob.written, *values)
    turned = (
        {name: value for name, value in zip(axes, one, strict=True) if value is not None and value != axes[name][0]}
        for one in itertools.product(*axes.values())
    )
    return Together(tuple(axes), tuple(axes.values()), tuple(_predicted(shown, vitals, one) for one in turned))


def _foreseeable(shown: PanelInput, vitals: Vitals, knob: KnobShown) -> list[SettingValue]:
    """The values of a knob with a forecast, by itself or once there are workers: offered, tried or advised ones."""
    offered = (*knob.choices, *(knob.otherwise.choices if knob.otherwise is not None else ()))
    found = shown.diagnosis
    findings = (*found.findings, *found.hints) if found is not None else ()
    seen = [one.settings for one in shown.effects]
    seen += [cure.settings for one in findings for cure in one.prescriptions]
    named = [one[knob.name] for one in seen if one.get(knob.name, knob.written) != knob.written]
    values = dict.fromkeys((*_free(offered, knob), *named))
    return [one for one in values if _is_foreseeable(shown, vitals, knob.name, one)]


def _is_foreseeable(shown: PanelInput, vitals: Vitals, name: str, value: SettingValue) -> bool:
    ways: tuple[Settings, ...] = ({},) if vitals.workers or name == "num_workers" else ({}, {"num_workers": 1})
    return any(_forecast(shown, vitals, {**way, name: value}) for way in ways)


def _foretold(shown: PanelInput, vitals: Vitals, settings: Settings) -> ForecastShown:
    """`predicted 1.9x (1.5-2.4)`; where it was tried, what was measured; that there is none."""
    known = _known(shown, vitals, settings)
    name = formatting.clean(describe(settings), 80)
    alone = f"{name} alone {known}" if known else f"{name} has none"
    return ForecastShown(settings, known or _parts(shown, vitals, settings), bool(known), alone)


def _known(shown: PanelInput, vitals: Vitals, settings: Settings) -> str:
    return _measured(shown, settings) or _predicted(shown, vitals, settings)


def _measured(shown: PanelInput, settings: Settings) -> str:
    for number, one in reversed(list(enumerate(shown.effects, 1))):
        if one.speedup is not None and one.outcome in CLEAN and not one.baseline_settings and one.settings == settings:
            judged = "" if one.verdict == "faster" else f": {one.verdict.replace('-', ' ')}"
            return f"measured {formatting.speedup(one.speedup, one.low, one.high)} in trial {number}{judged}"
    return ""


def _predicted(shown: PanelInput, vitals: Vitals, settings: Settings) -> str:
    """What a finding says of its cure, else what the forecast says."""
    diagnosis = shown.diagnosis
    findings = diagnosis.findings if diagnosis is not None and diagnosis.vitals is vitals else ()
    for cure in (one for finding in findings for one in finding.prescriptions):
        if settings and cure.settings == settings and cure.predicted_speedup is not None:
            return predicted_words(cure)
    return _forecast(shown, vitals, settings)


def _forecast(shown: PanelInput, vitals: Vitals, settings: Settings) -> str:
    runs = (*shown.recordings, *(side for sides in shown.trials for side in sides))
    others = [one for one in runs if one.settings and one.setup.hardware == vitals.setup.hardware]
    found = forecast(vitals, settings, [vitals_of(one) for one in others])
    if found is None:
        return ""
    peak = f", peak memory about {formatting.size(found.peak_bytes)}" if found.peak_bytes is not None else ""
    return f"predicted {forecast_words(found.speedup, found.low, found.high)}{peak}"


def _parts(shown: PanelInput, vitals: Vitals, settings: Settings) -> str:
    """Of several knobs, what is known of each alone: as the page says it where it need not ask."""
    if len(settings) < 2:
        return NO_FORECAST
    told = {name: _foretold(shown, vitals, {name: value}) for name, value in settings.items()}
    # Of what has a forecast beside workers alone nothing is said by itself.
    alone = [
        one.alone for name, one in told.items() if one.known or not _is_foreseeable(shown, vitals, name, settings[name])
    ]
    return f"{LABELS.none_together} ({'; '.join(alone)})" if alone else LABELS.none_together
