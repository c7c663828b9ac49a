"""Forecasts of the speed that settings should give, shown before they are tried.

The state contains the forecast for every single value that can be chosen, so that the page can answer a turned knob by
itself, even while the kernel is busy. For other choices, such as several knobs at once, the page sends a request.
"""

from __future__ import annotations

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis import Vitals
from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.diagnosis.words import NO_FORECAST, forecast_words, predicted_words
from gpu_doctor.recording import CLEAN, Settings
from gpu_doctor.report.contract import ForecastShown, KnobShown
from gpu_doctor.report.panel.recent import Recent
from gpu_doctor.report.panel_input import PanelInput
from gpu_doctor.report.runs import vitals_of

NONE_TOGETHER: Final = "no forecast for these together: try it"


def forecasts(
    shown: PanelInput, knobs: tuple[KnobShown, ...], recent: Recent[tuple[ForecastShown, ...]] | None = None
) -> tuple[ForecastShown, ...]:
    """Returns the forecasts against the loop as written; empty until that was measured.

    Args:
        shown: current state of the case.
        knobs: controls of the panel.
        recent: cache of the forecasts computed last, which depend only on the diagnosis, the runs and the trials; None
            to compute them.
    """
    vitals = _as_written(shown)
    if vitals is None:
        return ()
    runs = *shown.recordings, *(side for sides in shown.trials for side in sides)
    return (recent or Recent()).of(
        (vitals, knobs, *shown.effects, *runs), shown.asked, lambda: _worked_out(shown, vitals, knobs)
    )


def _worked_out(shown: PanelInput, vitals: Vitals, knobs: tuple[KnobShown, ...]) -> tuple[ForecastShown, ...]:
    single: list[Settings] = [
        {knob.name: choice.value}
        for knob in knobs
        for choice in knob.choices
        if choice.value is not None and choice.value != knob.written and not choice.refusal
    ]
    requested = [settings for settings in shown.asked if settings not in single]
    return tuple(_shown(shown, vitals, settings) for settings in (*single, *requested))


def _as_written(shown: PanelInput) -> Vitals | None:
    """Returns the vitals of the newest run as written, which may be the run in progress, or None if there is none."""
    diagnosis = shown.diagnosis
    if diagnosis is not None and not diagnosis.vitals.settings:
        return diagnosis.vitals
    written = next((run for run in reversed(shown.recordings) if not run.settings), None)
    return None if written is None else vitals_of(written)


def _shown(shown: PanelInput, vitals: Vitals, settings: Settings) -> ForecastShown:
    """Returns the measured gain of some settings if they were tried, else the forecast, else a phrase for neither."""
    known = _measured(shown, settings) or _predicted(shown, vitals, settings)
    none = NO_FORECAST if len(settings) < 2 else NONE_TOGETHER
    return ForecastShown(settings, known or none, bool(known))


def _measured(shown: PanelInput, settings: Settings) -> str:
    for number, effect in reversed(list(enumerate(shown.effects, 1))):
        if (
            effect.speedup is not None
            and effect.outcome in CLEAN
            and not effect.baseline_settings
            and effect.settings == settings
        ):
            judged = "" if effect.verdict == "faster" else f": {effect.verdict_words}"
            return f"measured {formatting.speedup(effect.speedup, effect.low, effect.high)} in trial {number}{judged}"
    return ""


def _predicted(shown: PanelInput, vitals: Vitals, settings: Settings) -> str:
    """Returns the gain that a finding predicts for its cure, else the forecast for the settings; '' if neither."""
    diagnosis = shown.diagnosis
    findings = diagnosis.findings if diagnosis is not None and diagnosis.vitals is vitals else ()
    for cure in (prescription for finding in findings for prescription in finding.prescriptions):
        if settings and cure.settings == settings and cure.predicted_speedup is not None:
            return predicted_words(cure)
    return _forecast(shown, vitals, settings)


def _forecast(shown: PanelInput, vitals: Vitals, settings: Settings) -> str:
    runs = (*shown.recordings, *(side for sides in shown.trials for side in sides))
    others = [run for run in runs if run.settings and run.setup.hardware == vitals.setup.hardware]
    found = forecast(vitals, settings, [vitals_of(run) for run in others])
    if found is None:
        return ""
    peak = f", peak memory about {formatting.size(found.peak_bytes)}" if found.peak_bytes is not None else ""
    return f"predicted {forecast_words(found.speedup, found.low, found.high)}{peak}"
