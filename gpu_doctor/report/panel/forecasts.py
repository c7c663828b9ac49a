"""What settings should give, told before they are tried: of every single value of a knob, and of what a page asks for.

All of it is sent along, so that a page answers a turned knob by itself, also while the kernel is busy. Of several knobs
at once few have a forecast (see `diagnosis.forecast`): workers that stay are sent, the page asks for others.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpu_doctor import formatting
from gpu_doctor.diagnosis import Vitals
from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.diagnosis.words import NO_FORECAST, forecast_words, predicted_words
from gpu_doctor.labels import LABELS
from gpu_doctor.recording import CLEAN, Settings, SettingValue, describe
from gpu_doctor.report.contract import Choice, ForecastShown, KnobShown
from gpu_doctor.report.panel.recent import Recent
from gpu_doctor.report.panel_input import PanelInput
from gpu_doctor.report.runs import vitals_of


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
    wanted = list(_single(shown, knobs))
    for one in (*(one.settings for one in shown.effects if _measured(shown, one.settings)), *shown.asked):
        if one not in wanted:
            wanted.append(one)
    return tuple(_foretold(shown, vitals, one) for one in wanted)


def _as_written(shown: PanelInput) -> Vitals | None:
    """Of the newest run as written, the one that goes on among them."""
    diagnosis = shown.diagnosis
    if diagnosis is not None and not diagnosis.vitals.settings:
        return diagnosis.vitals
    written = next((one for one in reversed(shown.recordings) if not one.settings), None)
    return None if written is None else vitals_of(written)


def _single(shown: PanelInput, knobs: tuple[KnobShown, ...]) -> Iterator[Settings]:
    """What can be chosen now or with workers, what was tried or is advised, and workers that stay."""
    findings = shown.diagnosis.findings if shown.diagnosis is not None else ()
    seen = [one.settings for one in shown.effects]
    seen += [cure.settings for one in findings for cure in one.prescriptions]
    values = {
        knob.name: list(
            dict.fromkeys(
                (
                    *_free((*knob.choices, *(knob.otherwise.choices if knob.otherwise is not None else ())), knob),
                    *(one[knob.name] for one in seen if one.get(knob.name, knob.written) != knob.written),
                )
            )
        )
        for knob in knobs
    }
    for name, ones in values.items():
        yield from ({name: one} for one in ones)
    for count in values.get("num_workers", ()) if True in values.get("persistent_workers", ()) else ():
        if count:
            yield {"num_workers": count, "persistent_workers": True}


def _free(choices: tuple[Choice, ...], knob: KnobShown) -> list[SettingValue]:
    return [one.value for one in choices if one.value is not None and one.value != knob.written and not one.refusal]


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


def _parts(shown: PanelInput, vitals: Vitals, settings: Settings) -> str:
    """Of several knobs, what is known of each alone: as the page says it where it need not ask."""
    if len(settings) < 2:
        return NO_FORECAST
    alone = (_foretold(shown, vitals, {name: value}).alone for name, value in settings.items())
    return f"{LABELS.none_together} ({'; '.join(alone)})"
