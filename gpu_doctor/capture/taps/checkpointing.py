"""Hears how long backwards recompute what activation checkpointing did not keep (`torch.utils.checkpoint`).

Heard where torch itself starts the second forward, not at `checkpoint`, which is imported by name and kept by models of
transformers. Two clock readings a part that is recomputed. A backward on a GPU runs on a thread of its own: so does
what is heard, and the seconds are then those of launching.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import torch.utils.checkpoint as torchs

from gpu_doctor.capture.describe.backward_graph import backward_graph
from gpu_doctor.capture.fence import Fence
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.setup import Recomputation

REENTRANT: Final = "CheckpointFunction"
"""Its `backward` calls `ctx.run_function` again, then goes back through the graph of that."""
HOOK: Final = "_recomputation_hook"
"""The context in which a part is recomputed with `use_reentrant=False`; private to torch."""


class Recomputed:
    """Adds up what is recomputed, and looks once at what the parts make."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._clock = recorder, recorder.clock
        self._deep, self._since = 0, 0
        self._times, self._ns, self._bytes = 0, 0, 0.0
        self._looks = True
        """The first backward that recomputes has not ended yet."""

    def begin(self) -> bool | None:
        """A part is about to be recomputed; what is recomputed inside of it is in its time."""
        if self._recorder.over.is_set():
            return None
        self._deep += 1
        if self._deep == 1:
            self._since = self._clock()
        return True

    def end(self) -> None:
        """It was, or it raised."""
        self._deep -= 1
        if self._deep == 0:
            self._ns += self._clock() - self._since
            self._times += 1

    def look(self, results: Any) -> None:
        """A part whose operations the graph of the loss does not show has been recomputed."""
        if self._looks:
            self._bytes += backward_graph(results).result_bytes

    def backed(self) -> None:
        """A backward has ended; one that was begun inside of another is no end."""
        self._looks = self._looks and (not self._times or self._recorder.log.backing > 0)

    def told(self) -> Recomputation | None:
        """What was recomputed so far; may be called on any thread."""
        return Recomputation(self._times, self._ns * 1e-9, self._bytes) if self._times else None


class Timed:
    """A context of torch's that is recomputed in."""

    def __init__(self, fence: Fence, recomputed: Recomputed, context: Any) -> None:
        self._fence, self._recomputed, self._context = fence, recomputed, context
        self._begun: bool | None = None

    def __enter__(self) -> Any:
        __tracebackhide__ = True
        entered = self._context.__enter__()
        try:
            self._begun = self._recomputed.begin()
        except Exception as error:
            with suppress(Exception):
                self._fence.broke(error)
        return entered

    def __exit__(self, *raised: Any) -> Any:
        __tracebackhide__ = True
        try:
            if self._begun:
                self._recomputed.end()
        except Exception as error:
            with suppress(Exception):
                self._fence.broke(error)
        return self._context.__exit__(*raised)


def _hooked(fence: Fence, recomputed: Recomputed, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def hook(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return Timed(fence, recomputed, original(*args, **kwargs))

    return hook


def _backward(fence: Fence, recomputed: Recomputed, original: Callable[..., Any]) -> Any:
    """`CheckpointFunction.backward`, whose `ctx.run_function` is ours for as long as it runs."""

    def ends(token: bool, results: Any) -> None:
        recomputed.end()
        if results is not None:
            recomputed.look(results)

    def begins(*args: Any, **kwargs: Any) -> bool | None:
        return recomputed.begin()

    @functools.wraps(original)
    def backward(ctx: Any, *gradients: Any) -> Any:
        __tracebackhide__ = True
        own = getattr(ctx, "run_function", None)
        if own is None:
            return original(ctx, *gradients)
        ctx.run_function = fence.around(own, begins, ends)
        try:
            return original(ctx, *gradients)
        finally:
            ctx.run_function = own

    return staticmethod(backward)


@contextmanager
def tap(scope: TapScope) -> Iterator[None]:
    """Listens at both ways of torch's; the fact `recomputation` of the setup."""
    recorder, fence = scope.recorder, scope.recorder.fence
    recomputed = Recomputed(recorder)
    recorder.facts["recomputation"] = recomputed.told
    reentrant = getattr(torchs, REENTRANT, None)
    if reentrant is not None:
        scope.patches.wrap(reentrant, "backward", functools.partial(_backward, fence, recomputed))
    if hasattr(torchs, HOOK):
        scope.patches.wrap(torchs, HOOK, functools.partial(_hooked, fence, recomputed))
    scope.backed.append(recomputed.backed)
    yield
    recorder.facts["recomputation"] = recomputed.told()
