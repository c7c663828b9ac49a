"""What settings should give, told before they are tried.

That of every single value that can be chosen is sent along, so that a page answers a turned knob by itself, also while
the kernel is busy. What else a person chooses, such as several knobs at once, the page asks for.
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
    """Against the loop as written; empty while it was not measured.

    Args:
        shown: the case as it stands.
        knobs: the controls of the panel.
        recent: the forecasts of the panel's last look, which change with the diagnosis, the runs and the trials alone;
            None = work them out.
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
        {knob.name: one.value}
        for knob in knobs
        for one in knob.choices
        if one.value is not None and one.value != knob.written and not one.refusal
    ]
    asked = [one for one in shown.asked if one not in single]
    return tuple(_foretold(shown, vitals, one) for one in (*single, *asked))


def _as_written(shown: PanelInput) -> Vitals | None:
    """Of the newest run as written, the one that goes on among them."""
    diagnosis = shown.diagnosis
    if diagnosis is not None and not diagnosis.vitals.settings:
        return diagnosis.vitals
    written = next((one for one in reversed(shown.recordings) if not one.settings), None)
    return None if written is None else vitals_of(written)


def _foretold(shown: PanelInput, vitals: Vitals, settings: Settings) -> ForecastShown:
    """`predicted 1.9x (1.5-2.4)`; where it was tried, what was measured; that there is none."""
    known = _measured(shown, settings) or _predicted(shown, vitals, settings)
    none = NO_FORECAST if len(settings) < 2 else NONE_TOGETHER
    return ForecastShown(settings, known or none, bool(known))


def _measured(shown: PanelInput, settings: Settings) -> str:
    for number, one in reversed(list(enumerate(shown.effects, 1))):
        if one.speedup is not None and one.outcome in CLEAN and not one.baseline_settings and one.settings == settings:
            judged = "" if one.verdict == "faster" else f": {one.verdict_words}"
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
