"""Line costs fitted to the step clock, and what of the time between forward and backward is no loss.

The clock says how long a phase is, the looks only how it is divided. Looks are of the whole run, its slow first steps
included, and a look that had to wait for the interpreter's lock falls into the phase that gave it up, most often one of
torch's: Python of a few milliseconds is under-seen, and computing over-seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gpu_doctor.recording import PHASES, LineCost

FEW_LOOKS: Final = 3.0
"""So few looks divide nothing: what they say is left as it is."""
MOST_TIMES: Final = 4.0
"""No line is made longer than so many times what was seen of it."""
MOSTLY: Final = 0.5
"""Where the clock has less than this of what was seen between forward and backward, most of that was no loss: nothing
was differentiated after it."""


def fitted(
    lines: Sequence[LineCost], looks: int | None, found: Mapping[str, Any], targets: Iterable[LineCost] = ()
) -> dict[str, Any]:
    """The line costs as the clock has them, and the share of the losses without what trains nothing beside them.

    Args:
        lines: of a recording.
        looks: how often its loop was looked at; None = not known, and taken for often.
        found: `forward_share` and its like, `other_share`, `loss_share` and `other_once_share`, of the clock.
        targets: those of the lines in which what the loss is computed from is made of data that was there before the
            forward: after it, too, that is no loss, as far as it is Python.

    Returns:
        `lines`, dearest first, and `loss_share`.
    """
    loss, other = found.get("loss_share"), float(found.get("other_share") or 0.0)
    within = min(loss or 0.0, other)
    named = [one for one in lines if one.phase == "other" and not one.in_worker]
    early = [one for one in named if one.before_backward]
    late = [one for one in named if not one.before_backward]
    if early and within < MOSTLY * total(early):
        left = within / total(early)
        late += [replace(one, share=one.share * (1.0 - left), before_backward=False) for one in early]
        early = [replace(one, share=one.share * left) for one in early if left > 0]
    made = {(one.file, one.line, one.function) for one in targets if not (one.in_torch or one.computes)}

    def no_loss(one: LineCost) -> bool:
        return bool(one.beside) or ((one.file, one.line, one.function) in made and not (one.in_torch or one.computes))

    # Asked of the clock's share too: computing in torch is seen as often as it is long, so few looks here mean Python.
    beside = part((one for one in early if no_loss(one)), early) if enough(max(within, total(early)), looks) else 0.0
    if not early:  # nothing tells them apart
        within = 0.0
    once = float(found.get("other_once_share") or 0.0)
    early = _scaled(early, looks, within, within)
    late = _scaled(late, looks, other - within - once, other - within)
    early = [replace(one, before_backward=False) if no_loss(one) and beside else one for one in early]
    shares = {phase: float(found.get(f"{phase}_share") or 0.0) for phase in PHASES}
    rest = [one for one in lines if one.in_worker or one.phase not in (*shares, "other")]
    for phase, share in shares.items():
        own = [one for one in lines if one.phase == phase and not one.in_worker]
        if phase == "forward":
            aside = min(float(found.get("no_grad_share") or 0.0), share)
            if not any(one.no_grad for one in own):  # nothing tells them apart
                aside = 0.0
            rest += _scaled([one for one in own if one.no_grad], looks, aside, aside)
            rest += _scaled([one for one in own if not one.no_grad], looks, share - aside, share - aside)
        else:
            rest += _scaled(own, looks, 0.0, share)
    return {
        "lines": tuple(sorted((*rest, *early, *late), key=lambda one: -one.share)),
        "loss_share": None if loss is None else loss * (1.0 - beside),
    }


def total(lines: Iterable[LineCost]) -> float:
    """What some lines take together, as a share of the wall-clock."""
    return sum((one.share for one in lines), 0.0)


def part(some: Iterable[LineCost], lines: Iterable[LineCost]) -> float:
    """Of what lines take, the part of some of them, 0..1; 0 where nothing was seen."""
    whole = total(lines)
    return total(some) / whole if whole > 0 else 0.0


def enough(share: float, looks: int | None) -> bool:
    """Whether enough looks fell on what takes a share of the wall-clock; they did where nobody counted them."""
    return looks is None or share * looks >= FEW_LOOKS


def _scaled(lines: list[LineCost], looks: int | None, least: float, most: float) -> list[LineCost]:
    """Lines whose sum is `most` at most and, where enough was seen to divide it, `least` at least."""
    seen = total(lines)
    if seen <= 0:
        return lines
    wanted = min(max(seen, min(least, MOST_TIMES * seen)) if enough(seen, looks) else seen, most)
    return lines if wanted == seen else [replace(one, share=one.share * wanted / seen) for one in lines]
