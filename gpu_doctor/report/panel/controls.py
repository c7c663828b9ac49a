"""The knobs as controls of the panel, made from the table of knobs, and what a page may ask for, checked."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final, get_args

from gpu_doctor import formatting
from gpu_doctor.diagnosis import Safety
from gpu_doctor.recording import SettingValue, Setup
from gpu_doctor.report.contract import Choice, KnobShown, Offer, RequestKind
from gpu_doctor.report.panel.recent import Recent
from gpu_doctor.trials import PERMISSIONS, SWEEP_TRIALS, combinations
from gpu_doctor.trials import knobs as knob_table
from gpu_doctor.trials.knobs import Knob, KnobTable

MOST_STEPS: Final = 100_000
MOST_SECONDS: Final = 3600
UNKNOWN: Final = "Run the loop once to see which knobs apply."


NOT_RUN: Final = "as written (not run yet)"
UNSEEN: Final = Choice(None, NOT_RUN, "")
"""Choice for the value as written, if every run so far turned the knob and its written value is unknown."""


def controls(
    knobs: KnobTable,
    setup: Setup,
    known: bool,
    turned: Collection[str] = (),
    recent: Recent[tuple[KnobShown, ...]] | None = None,
) -> tuple[KnobShown, ...]:
    """Returns one control per knob, in the table's order.

    Args:
        knobs: knobs to show.
        setup: setup of the loop as it was recorded.
        known: True once the loop was seen; until then every control is disabled and says so.
        turned: names of the knobs that were turned when the setup was recorded, whose written values it lacks.
        recent: cache of the controls computed last; None to compute them.
    """
    if not known:
        return tuple(_blank(knob) for knob in knobs.values())
    # No knob depends on these fields, which change from refresh to refresh while a loop runs.
    relevant_setup = replace(setup, inputs=None, evaluation=None, world=None)
    return (recent or Recent()).of(
        (knobs,),
        (relevant_setup, frozenset(turned)),
        lambda: tuple(_control(knob, setup, knob.name not in turned) for knob in knobs.values()),
    )


def _blank(knob: Knob) -> KnobShown:
    return _made(knob, Offer((Choice(None, "…", ""),), UNKNOWN, ()), None)


def _made(knob: Knob, offer: Offer, written: SettingValue | None) -> KnobShown:
    return KnobShown(
        **vars(offer),
        name=knob.name,
        label=knob.label,
        front=knob.front,
        safe=knob.safety is Safety.SAFE,
        turned=_turned(knob),
        written=written,
        needs_workers=formatting.clean(knob.needs_workers, 300),
    )


def _turned(knob: Knob) -> str:
    changes = formatting.clean(knob.changes, 600)
    if knob.safety is Safety.SAFE:
        return f"is safe. {changes or 'All results stay the same.'}"
    return f"changes the training. {changes}".rstrip()


def _control(knob: Knob, setup: Setup, as_written: bool) -> KnobShown:
    written = knob.found(setup) if as_written else None
    if knob.needs_workers:  # the page knows whether workers are chosen, and says so if none are
        with_workers = (replace(loader, num_workers=loader.num_workers or 1) for loader in setup.loaders)
        setup = replace(setup, loaders=tuple(with_workers))
    offer = _offer(knob, written, setup)
    return _made(knob, offer if as_written else replace(offer, choices=(*offer.choices, UNSEEN)), written)


def _offer(knob: Knob, written: Any, setup: Setup) -> Offer:
    offered = knob.choices(setup)
    free = [choice for choice in offered if not choice.refusal and choice.value != written]
    reasons = list(dict.fromkeys(choice.refusal for choice in offered if choice.refusal))
    refusal = "" if free else reasons[0] if reasons else "This loop has no other value to choose."
    partly = [
        f"cannot be {', '.join(_short(choice) for choice in offered if choice.refusal == reason)}: "
        + formatting.clean(reason, 300)
        for reason in reasons
    ]
    return Offer(
        choices=tuple(_choice(choice, written) for choice in offered),
        refusal=formatting.clean(refusal, 300),
        partly=tuple(partly if free else ()),
    )


def _short(choice: knob_table.Choice) -> str:
    """Returns a choice's label without the part in brackets."""
    return formatting.clean(choice.label.partition(" (")[0], 60)


def _choice(choice: knob_table.Choice, written: Any) -> Choice:
    label = formatting.clean(choice.label, 60)
    return Choice(
        value=choice.value,
        label=f"{label} (as written)" if choice.value == written and label != "as written" else label,
        refusal=formatting.clean(choice.refusal, 300),
    )


def checked_request(content: Any, knobs: KnobTable) -> dict[str, Any]:
    """Checks a message of the page and returns it in the form of `contract.Request`; a sweep also has a `grid`.

    Steps and seconds that the message does not contain are None, for the case's own budget.

    Raises:
        ValueError: The message does not have the form; nothing in it may be acted on. The text is one sentence.
    """
    if not isinstance(content, dict) or content.get("ask") not in get_args(RequestKind):
        raise ValueError("The panel has no such action: reload the page.")
    given, steps, seconds = content.get("settings") or {}, content.get("steps"), content.get("seconds")
    if not isinstance(given, dict):
        raise ValueError("Settings must be knob names with their values.")
    settings = {name: _checked(name, value, knobs) for name, value in given.items()}
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= MOST_STEPS):
        raise ValueError(f"A trial takes a whole number of steps from 1 to {formatting.grouped(MOST_STEPS)}.")
    odd = isinstance(seconds, bool) or not isinstance(seconds, (int, float))
    if seconds is not None and (odd or not 0 < seconds <= MOST_SECONDS):
        raise ValueError(f"A trial takes more than 0 and at most {formatting.grouped(MOST_SECONDS)} seconds.")
    allow = content.get("allow") or []
    if not isinstance(allow, list) or not all(
        isinstance(permission, str) and permission in PERMISSIONS for permission in allow
    ):
        raise ValueError("The panel has no such permission: reload the page.")
    request = {
        "ask": content["ask"],
        "settings": settings,
        "steps": steps,
        "seconds": seconds,
        "changes_training": content.get("changes_training") is True,
        "allow": tuple(allow),
    }
    return {**request, "grid": _checked_grid(content.get("grid"), knobs)} if request["ask"] == "sweep" else request


def _checked(name: Any, value: Any, knobs: KnobTable) -> SettingValue:
    if name not in knobs:
        raise ValueError(f"There is no knob named {formatting.clean(name, 60)!r}.")
    if not isinstance(value, (str, int, float, bool)):
        raise ValueError(f"{knobs[name].label} takes a number, a text, True or False.")
    return knobs[name].parsed(str(value))


def _checked_grid(given: Any, knobs: KnobTable) -> dict[str, list[SettingValue]]:
    if not isinstance(given, dict) or not all(isinstance(values, list) for values in given.values()):
        raise ValueError("A sweep takes knobs, each with a list of the values to try.")
    grid = {name: [_checked(name, value, knobs) for value in values] for name, values in given.items()}
    combinations(grid, SWEEP_TRIALS)
    return grid
