"""What a trial would keep of a case's state, and what of it would not come back; nothing is copied."""

from __future__ import annotations

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.said_before import Beforehand
from gpu_doctor.trials.snapshot.snapshot import no_room, room_bytes
from gpu_doctor.trials.snapshot.walk import Walk, uncollected

KEPT: Final = "restores model, optimizer, loaders, random generators and your variables"
NOT_UNDONE: Final = (
    "It does not undo data that it sends, or files of other processes and of libraries in C that open files themselves "
    "(other than torch, safetensors, SQLite, HDF5 and OpenCV's images)."
)


def kept_state(case: Runner) -> Beforehand:
    """How much a trial would keep, what it would not copy, and what it could not put back.

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
    kept = f"A trial {KEPT} (a copy of {formatting.size(whole)}), and the files that your cell writes. {NOT_UNDONE}"
    refused = {f"{name} ({type(value).__name__})" for value, name, _ in walk.closed_to_us}  # which is said of its own
    lost = (*(one for one in walk.lost if one not in refused), *tensors.lost)
    large = (*tensors.uncopied.values(), *arrays.uncopied.values())
    return Beforehand(
        notes=(kept, *([formatting.sentence(formatting.not_copied(large))] if large else [])),
        lost=(formatting.sentence(formatting.unrestorable(lost)),) if lost else (),
    )
