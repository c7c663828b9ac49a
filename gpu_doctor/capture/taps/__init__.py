"""The shelf of taps: listeners on the training loop. One file each, listed in TAPS in the order in which they open."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from gpu_doctor.capture.patching import Patches
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.attention_cost import tell as tell_attention
from gpu_doctor.capture.taps.backward import tap as compute
from gpu_doctor.capture.taps.checkpointing import tap as checkpointing
from gpu_doctor.capture.taps.clipping import tap as clipping
from gpu_doctor.capture.taps.costly_calls import tap as chores
from gpu_doctor.capture.taps.dataloader import tap as dataloader
from gpu_doctor.capture.taps.debug_modes import tap as debugging
from gpu_doctor.capture.taps.device_wait import tap as device_wait
from gpu_doctor.capture.taps.distributed import tap as world
from gpu_doctor.capture.taps.environment import accelerated as torch_accelerated
from gpu_doctor.capture.taps.environment import tap as scenery
from gpu_doctor.capture.taps.frozen import tap as recomputed
from gpu_doctor.capture.taps.gpu_clock import tap as stopwatch
from gpu_doctor.capture.taps.logits_cost import tell as tell_logits
from gpu_doctor.capture.taps.operation_cost import tell as tell_dispatching
from gpu_doctor.capture.taps.optimizer import tap as optimizer
from gpu_doctor.capture.taps.pairs_cost import tell as tell_pairs
from gpu_doctor.capture.taps.switch_interval import tap as turns
from gpu_doctor.capture.taps.sync import tap as sync
from gpu_doctor.capture.taps.tap import Tap, TapScope
from gpu_doctor.capture.taps.trained_model import tap as makes
from gpu_doctor.capture.taps.transfer import tap as transfer
from gpu_doctor.capture.taps.unused_logits import tap as left_out
from gpu_doctor.capture.taps.wrapping import tap as wrapping

_HERE: Final = str(Path(__file__).parents[1])
TAPS: tuple[tuple[str, Tap], ...] = (
    ("turns", turns),
    ("scenery", scenery),
    ("stopwatch", stopwatch),
    ("device_wait", device_wait),
    ("dataloader", dataloader),
    ("transfer", transfer),
    ("compute", compute),
    ("checkpointing", checkpointing),
    ("left_out", left_out),
    ("makes", makes),
    ("recomputed", recomputed),
    ("optimizer", optimizer),
    ("clipping", clipping),
    ("wrapping", wrapping),
    ("sync", sync),
    ("chores", chores),
    ("world", world),
    ("debugging", debugging),
)
"""Name -> what puts it up in a TapScope."""


@contextmanager
def listening(
    recorder: Recorder, namespace: MutableMapping[str, Any] | None = None, accelerated: bool | None = None
) -> Iterator[TapScope]:
    """All taps on, for the duration of the context; a tap that fails stays off and leaves a note.

    Args:
        recorder: what they write to.
        namespace: where the code runs.
        accelerated: whether there is a device to copy to; None = ask torch.
    """
    if accelerated is None:
        accelerated = torch_accelerated()
    try:
        with Patches() as patches, ExitStack() as ends:
            scope = TapScope(recorder, patches, namespace, accelerated, ends=ends)
            recorder.unhear.append(patches.restore)
            ends.callback(_retire, scope)
            for name, tap in TAPS:
                try:
                    tap(scope)
                except Exception as error:
                    recorder.note(f"The {name} tap could not be installed: {error}")
            try:
                yield scope
            except BaseException as error:
                _take_out_ours(error)
                raise
            finally:
                recorder.unhear.clear()
                recorder.loop_over()
                scope.forget()  # a circle would outlive `del model`
    finally:
        for tell in (tell_dispatching, tell_attention, tell_logits, tell_pairs):
            tell(recorder)
    for note in patches.notes:
        recorder.note(note)


def _retire(scope: TapScope) -> None:
    """All taps are off. A wrapper of ours that other code has wrapped stays in the process: it must know of no run."""
    scope.recorder.retire()
    scope.namespace = None


def _take_out_ours(error: BaseException | None) -> None:
    """Takes the frames of our wrappers out of a traceback: the user sees their own code and torch's, as without us."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        before = error.__traceback__
        while before is not None and before.tb_next is not None:
            if before.tb_next.tb_frame.f_code.co_filename.startswith(_HERE):
                before.tb_next = before.tb_next.tb_next
            else:
                before = before.tb_next
        error = error.__cause__ or error.__context__
