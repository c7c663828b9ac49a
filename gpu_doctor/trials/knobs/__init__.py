"""The shelf of knobs: the explicit list of what can be turned for one run, and the one place where they are turned.

None brings in torch before it is turned: a replay offers the knobs where there is none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs import (
    amp,
    batch_size,
    cached_data,
    channels_last,
    cudnn_benchmark,
    fused_optimizer,
    num_workers,
    persistent_workers,
    pin_memory,
    prefetch_factor,
    tf32,
    threads,
)
from gpu_doctor.trials.knobs import compile as compiling
from gpu_doctor.trials.knobs.knob import Choice, Knob, KnobTable, Refused, TrialScope

__all__ = [
    "BOUNDS",
    "IDEAL_LOADER",
    "KNOBS",
    "Choice",
    "Knob",
    "KnobTable",
    "Refused",
    "allow",
    "as_settings",
    "meant",
    "parse_assignments",
    "turned",
    "unturnable",
]

_SHELF: Final = (
    *(num_workers, batch_size, amp, pin_memory, persistent_workers, prefetch_factor),
    *(channels_last, compiling, fused_optimizer, tf32, cudnn_benchmark, threads),
)
"""Every knob's file, in the order in which they are shown and turned: workers before what acts on workers only."""
KNOBS: Final[KnobTable] = {one.KNOB.name: one.KNOB for one in _SHELF}
BOUNDS: Final[KnobTable] = {cached_data.KNOB.name: cached_data.KNOB}
"""What measures a bound and is offered for itself alone, see `Knob.bounds_only`."""
IDEAL_LOADER: Final[Settings] = {cached_data.KNOB.name: cached_data.CACHED}
"""Settings under which every batch is there already: the ceiling of what any loader can give."""
_ALL: Final[KnobTable] = {**KNOBS, **BOUNDS}


def known(name: str) -> Knob:
    """Returns the knob of this name.

    Raises:
        Refused: if there is none; the message names the nearest one and all that there are.
    """
    if name in _ALL:
        return _ALL[name]
    hint = formatting.did_you_mean(str(name).replace("-", "_"), KNOBS)
    raise Refused(f"There is no knob named {name!r:.60}.{hint} The knobs are: {', '.join(KNOBS)}.")


def as_settings(given: Settings | None) -> dict[str, SettingValue]:
    """A copy of settings that a person gave in Python; None is none.

    A number of numpy or of torch becomes Python's own: it is shown, compared, and written into the user's code.

    Raises:
        TypeError: if they are no mapping, or a key is no text.
    """
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"Settings are a dict of knobs and values, such as {{'num_workers': 4}}, not {given!r:.60}.")
    wrong = next((name for name in given or {} if not isinstance(name, str)), None)
    if wrong is not None:
        raise TypeError(f"A knob is given by its name, such as {{'num_workers': 4}}, not by {wrong!r:.60}.")
    return {name: _plain(value) for name, value in (given or {}).items()}


def _plain(value: Any) -> Any:
    scalar = hasattr(value, "dtype") and hasattr(value, "item") and getattr(value, "shape", None) == ()
    return value.item() if scalar else value


def meant(settings: Settings, setup: Setup) -> dict[str, Knob]:
    """The knobs of settings, whose values they have; whether the loop can honour them is another question.

    Raises:
        Refused: if a name is unknown, or a value is none of the knob's nor the one that was found as written.
    """
    knobs = {name: known(name) for name in settings}
    for name, knob in knobs.items():
        if settings[name] != knob.found(setup):
            _check_value(knob, settings[name])
    return knobs


def _check_value(knob: Knob, value: SettingValue) -> None:
    """Lets a value pass that the knob has.

    Raises:
        Refused: in the knob's own words.
    """
    try:
        meant = knob.parsed(str(value))
    except ValueError as error:
        raise Refused(str(error)) from None
    if meant != value:
        raise Refused(f"{knob.name} takes {meant!r}, not {value!r}: give it as {{{knob.name!r}: {meant!r}}}.")


def allow(settings: Settings, setup: Setup) -> None:
    """Lets settings pass that can be honoured for the loop of `setup` (an empty setup: nothing was found out yet).

    Raises:
        Refused: if a name is unknown, or a value is none of the knob's or cannot be honoured.
    """
    knobs = meant(settings, setup)
    for name, knob in knobs.items():
        others = {other: value for other, value in settings.items() if other != name}
        then = _with_loaders(setup, others)
        if settings[name] != knob.found(then) and (said := knob.reason(settings[name], then)):
            raise Refused(said)


def unturnable(settings: Settings, setup: Setup, reasons: Mapping[str, str] | None) -> str:
    """Returns why a setting acts by lines of the code alone, and they are not there; empty if all settings act.

    Args:
        settings: of names that are known.
        setup: as it was found.
        reasons: of the settings that the text which runs does not have, why; None = it has none of them.
    """
    for name, value in settings.items():
        if not known(name).lines_only or known(name).is_noop(value, setup):
            continue
        if reasons is None or name in reasons:
            by_hand = f"Add the lines of {name}={value} by hand: case.code({{{name!r}: {value!r}}}) gives them."
            return f"{reasons[name]} {by_hand}" if reasons is not None else by_hand
    return ""


@contextmanager
def turned(settings: Settings, scope: TrialScope) -> Iterator[None]:
    """Turns the knobs of `settings` that the text does not have for the duration of the context, then puts all back.

    Raises:
        Refused: before anything was changed, as `allow`; out of the user's loop, if a loader, model or optimizer shows
            up that cannot.
    """
    allow(settings, scope.setup)
    if said := unturnable(settings, scope.setup, scope.reasons):
        raise Refused(said)
    with ExitStack() as stack:
        for name, knob in _ALL.items():
            asked = knob.lines_only or knob.is_switch or scope.reasons is None or name in scope.reasons
            if name in settings and asked and not knob.is_noop(settings[name], scope.setup):
                stack.enter_context(knob.turned(settings[name], scope))
        yield


def parse_assignments(assignments: Iterable[str]) -> dict[str, SettingValue]:
    """Settings from texts such as `num_workers=4`.

    Raises:
        ValueError: one sentence that names the right form.
    """
    settings: dict[str, SettingValue] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        name, text = name.strip(), text.strip()
        if not equals or not name or not text:
            raise ValueError(f"{assignment!r} is no setting: write KNOB=VALUE, such as num_workers=4.")
        if name in settings:
            raise ValueError(f"{name} is set twice: give each knob one value.")
        try:
            settings[name] = known(name).parsed(text)
        except Refused as unknown:
            raise ValueError(str(unknown)) from None
    return settings


def _with_loaders(setup: Setup, settings: Settings) -> Setup:
    """The setup as it will be once its loaders are turned: what acts on workers or pinned batches is asked about it."""
    then: dict[str, Any] = {}
    if "num_workers" in settings:
        then["num_workers"] = int(settings["num_workers"])
    if "pin_memory" in settings:
        then["pin_memory"] = bool(settings["pin_memory"])
    loaders = tuple(dataclasses.replace(one, **then) if one.role == "training" else one for one in setup.loaders)
    return dataclasses.replace(setup, loaders=loaders)
