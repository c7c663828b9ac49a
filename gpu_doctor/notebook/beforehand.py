"""What a trial would touch, said before the click: what cannot be put back, what keeping the state takes, what stays.

Only looked at when a person comes near the buttons: walking a large namespace takes a few tenths of a second.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.trials.side_effects.trackers import open_runs
from gpu_doctor.trials.snapshot.snapshot import room_bytes
from gpu_doctor.trials.snapshot.walk import Walk

KEPT: Final = "puts model, optimizer, loaders, random generators and your variables back"


def sentences(namespace: dict[str, Any], roots: Iterable[object] = ()) -> list[dict[str, str]]:
    """What a person should know before a trial: `text` and `tone` (`bad` where something would not come back).

    Nothing is copied and nothing is run.

    Args:
        namespace: the names that the cell runs with. roots: further ones, as for `Snapshot.take`.
    """
    collecting = gc.isenabled()
    gc.disable()  # the collector would look through all that is seen again and again
    try:
        walk = Walk()
        walk.over([namespace], roots)
        tensors, arrays = walk.stores()
    finally:
        if collecting:
            gc.enable()
    needed, whole = tensors.host_bytes + arrays.bytes, tensors.bytes + arrays.bytes
    limit = room_bytes()
    if needed > limit:
        text = (
            f"A trial will be refused: keeping the state takes {formatting.size(needed)}, and only "
            f"{formatting.size(limit)} may be taken for it. Free memory, or delete large variables that the cell does "
            "not need."
        )
        return [{"text": text, "tone": "bad"}]
    kept = f"A trial {KEPT} ({formatting.size(whole)} kept). What your cell writes to files or sends elsewhere stays."
    said = [{"text": kept, "tone": ""}]
    large = (*tensors.large, *arrays.large)
    if large:
        said.append({"text": formatting.sentence(formatting.not_copied(large)), "tone": ""})
    lost = (*walk.lost, *tensors.lost, *open_runs())
    if lost:
        said.append({"text": formatting.sentence(formatting.unrestorable(lost)), "tone": "bad"})
    return said
