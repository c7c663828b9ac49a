"""The taps: listeners on the training loop, one file each. TAPS lists them in the order in which they are installed."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from gpu_doctor.capture.patching import Patches
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import (
    backward,
    clipping,
    compilations,
    costly_calls,
    dataloader,
    device_calls,
    environment,
    frozen,
    gpu_clock,
    graph_replay,
    optimizer,
    trained_model,
)
from gpu_doctor.capture.taps.tap import Tap, TapScope

_HERE: Final = str(Path(__file__).parents[1])
TAPS: tuple[tuple[str, Tap], ...] = (
    ("environment", environment.tap),
    ("gpu clock", gpu_clock.tap),
    ("dataloader", dataloader.tap),
    ("device calls", device_calls.tap),
    ("backward", backward.tap),
    ("compilations", compilations.tap),
    ("trained model", trained_model.tap),
    ("frozen", frozen.tap),
    ("optimizer", optimizer.tap),
    ("clipping", clipping.tap),
    ("CUDA graphs", graph_replay.tap),
    ("costly calls", costly_calls.tap),
)
"""Each tap's name and the function that installs it in a TapScope."""


@contextmanager
def listening(
    recorder: Recorder, namespace: MutableMapping[str, Any] | None = None, accelerated: bool | None = None
) -> Iterator[TapScope]:
    """Installs all taps for the duration of the context. A tap that cannot be installed stays off and leaves a note.

    Args:
        recorder: The recorder that the taps write to.
        namespace: The names that the observed code runs with.
        accelerated: True if there is a device to copy to; None asks torch.
    """
    if accelerated is None:
        accelerated = environment.accelerated()
    with Patches() as patches, ExitStack() as ends:
        scope = TapScope(recorder, patches, namespace, accelerated, ends=ends)
        recorder.undo_by(patches.restore)
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
            recorder.undone()
            recorder.loop_over()
            scope.forget()  # a reference cycle would outlive `del model`
    for note in patches.notes:
        recorder.note(note)


def _retire(scope: TapScope) -> None:
    """Cuts the references to the run after all taps are off.

    A wrapper of ours that other code has wrapped stays in the process and must not hold the run.
    """
    scope.recorder.retire()
    scope.namespace = None


def _take_out_ours(error: BaseException | None) -> None:
    """Removes the frames of our wrappers from a traceback, so that it shows only the user's code and the libraries'."""
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
