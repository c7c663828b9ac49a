"""Line costs fitted to the step clock.

The clock says how long a phase is, the looks only how it is divided: they are of the whole run, its slow first steps
included.
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


def fitted(lines: Sequence[LineCost], looks: int | None, found: Mapping[str, Any]) -> tuple[LineCost, ...]:
    """The line costs as the clock has them, dearest first.

    Args:
        lines: of a recording.
        looks: how often its loop was looked at; None = not known, and taken for often.
        found: `forward_share` and its like, `other_share`, `loss_share` and `other_once_share`, of the clock.
    """

    def share(name: str) -> float:
        return float(found.get(name) or 0.0)

    loss = min(share("loss_share"), share("other_share"))
    aside = min(share("no_grad_share"), share("forward_share"))
    outside = share("other_share") - loss
    # Where the phase of a line is not told more closely, it has all of the phase.
    loss, outside = (loss, outside) if any(one.before_backward for one in lines) else (0.0, loss + outside)
    aside = aside if any(one.no_grad for one in lines) else 0.0
    spans = {phase: (0.0, share(f"{phase}_share")) for phase in PHASES}
    spans["forward"] = (share("forward_share") - aside,) * 2
    spans |= {"no_grad": (aside, aside), "loss": (loss, loss)}
    spans["other"] = (max(outside - share("other_once_share"), 0.0), outside)
    parts: dict[str, list[LineCost]] = {}
    for one in lines:
        named = "loss" if one.before_backward else "no_grad" if one.no_grad else one.phase
        parts.setdefault("" if one.in_worker or named not in spans else named, []).append(one)
    told = parts.pop("", [])
    for name, some in parts.items():
        told += _scaled(some, looks, *spans[name])
    return tuple(sorted(told, key=lambda one: -one.share))


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
