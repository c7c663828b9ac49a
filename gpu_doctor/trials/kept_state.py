"""Says how much state a trial would store, and what it could not restore; nothing is copied."""

from __future__ import annotations

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.said_before import Beforehand, not_copied, unrestorable
from gpu_doctor.trials.snapshot.snapshot import no_room, room_bytes
from gpu_doctor.trials.snapshot.walk import Walk, uncollected

KEPT: Final = "restores model, optimizer, loaders, random generators and your variables"


def kept_state(case: Runner) -> Beforehand:
    """Returns how much a trial would store, what it would not copy, and what it could not put back.

    It walks through all that the code can reach: some tenths of a second in a large notebook.
    """
    with uncollected():
        walk = Walk()
        walk.over([case.namespace], case.roots())
        tensors, arrays = walk.stores()
    needed, whole = tensors.host_bytes + arrays.bytes, tensors.bytes + arrays.bytes
    limit = room_bytes()
    if needed > limit:
        return Beforehand((no_room(needed, limit),))
    kept = f"A trial {KEPT} (a copy of {formatting.size(whole)}) and only reads your files."
    lost = (*walk.unrestorable, *tensors.unrestorable)
    large = (*tensors.uncopied.values(), *arrays.uncopied.values())
    return Beforehand(
        notes=(kept, *([formatting.sentence(not_copied(large))] if large else [])),
        lost=(formatting.sentence(unrestorable(lost)),) if lost else (),
    )
