"""Permissions for a trial: to start processes, open connections, or change data that is not copied.

Each side of a trial runs the cell again. What leaves the process, or is too large to copy, cannot be put back, so the
trial is refused until `allow=` names it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpu_doctor.cell import NETWORK, PROCESSES
from gpu_doctor.trials.said_before import Beforehand

LARGE_DATA: Final = "large_data"
_MOST: Final = 3
"""Most calls that one sentence names."""


@dataclass(frozen=True)
class Permission:
    """The sentences for one permission of `allow=`."""

    refusal: str
    """Sentence for a trial refused without it; `{calls}` stands for the calls of the cell."""
    lost: str
    """Sentence on what a trial with it does not undo."""
    tick: str
    """Label of the panel's checkbox."""


PERMISSIONS: Final[Mapping[str, Permission]] = {
    PROCESSES: Permission(
        refusal="Your cell starts processes ({calls}), and each side of a trial would start them again: do it in an "
        'earlier cell, or allow it with allow=("processes",).',
        lost="Each side of a trial starts your cell's processes again ({calls}): what they do is not undone.",
        tick="Allow each side of a trial to start these processes again",
    ),
    NETWORK: Permission(
        refusal="Your cell uses the network ({calls}), and each side of a trial would do so again: do it in an earlier "
        'cell, or allow it with allow=("network",).',
        lost="Each side of a trial sends your cell's requests again ({calls}): what they do is not undone.",
        tick="Allow each side of a trial to use the network again",
    ),
    LARGE_DATA: Permission(
        refusal="Your cell changes data that is too large for a trial to copy ({calls}), and the change would stay: "
        'work on a copy of it, or allow it with allow=("large_data",).',
        lost="Your cell changes data that is too large for a trial to copy ({calls}): the change stays.",
        tick="Allow each side of a trial to change this data for good",
    ),
}
"""Name that `allow=` takes -> permission."""


def checked(allow: Any) -> frozenset[str]:
    """Returns the value of `allow=` as a set, after checking it.

    Raises:
        TypeError: if they are no collection of texts. ValueError: if one of them is unknown.
    """
    if isinstance(allow, str) or not isinstance(allow, Collection):
        raise TypeError(f'allow takes names in a tuple, such as allow=("{PROCESSES}",), not {allow!r:.60}.')
    known = '", "'.join(PERMISSIONS)
    for permission in allow:
        if not isinstance(permission, str) or permission not in PERMISSIONS:
            raise ValueError(f'allow takes "{known}", not {permission!r:.60}.')
    return frozenset(allow)


def said(calls: Mapping[str, Sequence[str]], allowed: Collection[str]) -> Beforehand:
    """Returns the refusals and warnings for calls that need a permission.

    Args:
        calls: permission -> what in the cell needs it, such as `os.system in line 3`.
        allowed: the permissions that a person gave.
    """
    refusals = {name: refusal(name, found) for name, found in calls.items() if found and name not in allowed}
    lost = [PERMISSIONS[name].lost.format(calls=_listed(calls[name])) for name in calls if name in allowed]
    return Beforehand(tuple(refusals.values()), lost=tuple(lost), asks=refusals)


def refusal(name: str, calls: Sequence[str]) -> str:
    """Returns the refusal for the calls that need a permission."""
    return PERMISSIONS[name].refusal.format(calls=_listed(calls))


def _listed(calls: Sequence[str]) -> str:
    more = f" and {len(calls) - _MOST} more" if len(calls) > _MOST else ""
    return ", ".join(calls[:_MOST]) + more
