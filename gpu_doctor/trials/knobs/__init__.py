"""The shelf of knobs: the explicit list of what can be turned for one run, and the only place that turns them.

No knob imports torch before it is turned: a replay offers the knobs without torch.
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
"""Modules of all knobs, in the order in which they are shown and turned: workers before the knobs that need workers."""
KNOBS: Final[KnobTable] = {module.KNOB.name: module.KNOB for module in _SHELF}
BOUNDS: Final[KnobTable] = {cached_data.KNOB.name: cached_data.KNOB}
"""Knobs that measure a bound and are offered alone, see `Knob.bounds_only`."""
IDEAL_LOADER: Final[Settings] = {cached_data.KNOB.name: cached_data.CACHED}
"""Settings under which every batch is already in memory: the ceiling of any loader."""
_ALL: Final[KnobTable] = {**KNOBS, **BOUNDS}


def known(name: str) -> Knob:
    """Returns the knob of a name.

    Raises:
        Refused: There is no such knob; the message names the most similar knob and lists all.
    """
    if name in _ALL:
        return _ALL[name]
    hint = formatting.did_you_mean(str(name).replace("-", "_"), KNOBS)
    raise Refused(f"There is no knob named {name!r:.60}.{hint} The knobs are: {', '.join(KNOBS)}.")


def as_settings(given: Settings | None) -> dict[str, SettingValue]:
    """Checks and copies settings that the user gave in Python.

    Numbers of numpy and torch become Python's own, because they are shown, compared, and written into the user's code.

    Args:
        given: settings; None for none.

    Raises:
        TypeError: The settings are not a mapping, or a key is not a string.
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
    """Returns the knobs of some settings, after checking names and values, but not whether the loop supports them.

    Raises:
        Refused: A name is unknown, or a value is neither one of the knob's nor the value as written.
    """
    knobs = {name: known(name) for name in settings}
    for name, knob in knobs.items():
        if settings[name] != knob.found(setup):
            _check_value(knob, settings[name])
    return knobs


def _check_value(knob: Knob, value: SettingValue) -> None:
    """Checks that a knob has a value.

    Raises:
        Refused: It does not have the value; the message is the knob's own.
    """
    try:
        meant = knob.parsed(str(value))
    except ValueError as error:
        raise Refused(str(error)) from None
    if meant != value:
        raise Refused(f"{knob.name} takes {meant!r}, not {value!r}: give it as {{{knob.name!r}: {meant!r}}}.")


def allow(settings: Settings, setup: Setup) -> None:
    """Checks that a loop supports some settings.

    Args:
        settings: settings to check.
        setup: setup of the loop; an empty setup if nothing is known yet.

    Raises:
        Refused: A name is unknown, or a value is not one of the knob's, or the loop does not support it.
    """
    knobs = meant(settings, setup)
    for name, knob in knobs.items():
        others = {other: value for other, value in settings.items() if other != name}
        then = _with_loaders(setup, others)
        if settings[name] != knob.found(then) and (refusal := knob.reason(settings[name], then)):
            raise Refused(refusal)


def unturnable(settings: Settings, setup: Setup, reasons: Mapping[str, str] | None) -> str:
    """Returns why a setting cannot act: it acts through lines of code that the cell does not have; '' if all can act.

    Args:
        settings: settings with known names.
        setup: setup of the loop as it was recorded.
        reasons: settings that the running text does not have, with the reason; None if it has none of the settings.
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
    """Turns the knobs whose settings the text does not have for the duration of the context, then restores everything.

    Raises:
        Refused: The loop does not support the settings; raised before anything is changed. A loader, model or optimizer
            that appears later and does not support them raises it out of the user's loop.
    """
    allow(settings, scope.setup)
    if refusal := unturnable(settings, scope.setup, scope.reasons):
        raise Refused(refusal)
    with ExitStack() as stack:
        for name, knob in _ALL.items():
            needed = knob.lines_only or knob.is_switch or scope.reasons is None or name in scope.reasons
            if name in settings and needed and not knob.is_noop(settings[name], scope.setup):
                stack.enter_context(knob.turned(settings[name], scope))
        yield


def parse_assignments(assignments: Iterable[str]) -> dict[str, SettingValue]:
    """Parses settings from texts such as `num_workers=4`.

    Raises:
        ValueError: A text is wrong; the message is one sentence that names the right form.
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
    """Returns the setup as it will be under some settings, which knobs that need workers or pinned batches check."""
    then: dict[str, Any] = {}
    if "num_workers" in settings:
        then["num_workers"] = int(settings["num_workers"])
    if "pin_memory" in settings:
        then["pin_memory"] = bool(settings["pin_memory"])
    loaders = tuple(
        dataclasses.replace(loader, **then) if loader.role == "training" else loader for loader in setup.loaders
    )
    return dataclasses.replace(setup, loaders=loaders)
