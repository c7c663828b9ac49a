"""Hears how long backwards recompute what activation checkpointing did not keep (`torch.utils.checkpoint`).

Heard where torch itself starts the second forward, not at `checkpoint`, which is imported by name and kept by models of
transformers. Two clock readings a part that is recomputed. A backward on a GPU runs on a thread of its own: so does
what is heard, and the seconds are then those of launching. GPU: not yet run on one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch.utils.checkpoint as torchs

from gpu_doctor.capture.describe.backward_graph import backward_graph
from gpu_doctor.capture.fence import Fence, FencedContext
from gpu_doctor.capture.graphs import through
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.setup import Recomputation

REENTRANT: Final = "CheckpointFunction"
"""Its `backward` calls `ctx.run_function` again, then goes back through the graph of that."""
HOOK: Final = "_recomputation_hook"
"""The context in which a part is recomputed with `use_reentrant=False`; private to torch."""


class Recomputed:
    """Adds up what is recomputed, and looks once at what the parts make."""

    def __init__(self, scope: TapScope) -> None:
        self._recorder, self._clock, self._backed = scope.recorder, scope.recorder.clock, scope.backed
        self._deep, self._since = 0, 0
        self._times, self._ns = 0, 0
        self._bytes: float | None = 0.0
        self._looks: bool | None = None
        """The first backward that recomputes is on its way; None = there was none yet."""

    def begin(self) -> bool | None:
        """A part is about to be recomputed; what is recomputed inside of it is in its time."""
        if self._recorder.over.is_set():
            return None
        if self._looks is None:
            self._looks = True
            self._backed.append(self.backed)
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
        if self._looks and self._bytes is not None:
            made = backward_graph(results).result_bytes
            self._bytes = None if made is None else self._bytes + made

    def backed(self) -> None:
        """A backward has ended; one that was begun inside of another is no end."""
        if not self._recorder.log.backing:
            self._looks = False
            self._backed.leave(self.backed)

    def told(self) -> Recomputation | None:
        """What was recomputed so far; may be called on any thread."""
        return Recomputation(self._times, self._ns * 1e-9, self._bytes) if self._times else None


def _hooked(fence: Fence, recomputed: Recomputed, original: Callable[..., Any]) -> Callable[..., Any]:
    def hook(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return FencedContext(fence, original(*args, **kwargs), recomputed.begin, recomputed.end)

    return through(original, hook)


def _backward(fence: Fence, recomputed: Recomputed, original: Callable[..., Any]) -> Any:
    """`CheckpointFunction.backward`, from its begin to the end of `ctx.run_function`, which is ours for so long.

    What comes then is the backward of the part itself.
    """

    def ends(begun: list[bool], results: Any) -> None:
        begun.clear()
        recomputed.end()
        if results is not None:
            recomputed.look(results)

    def begins(ctx: Any, *gradients: Any) -> tuple[Any, Any, list[bool]] | None:
        own = getattr(ctx, "run_function", None)
        if own is None or not recomputed.begin():
            return None
        begun = [True]
        ctx.run_function = fence.around(own, lambda *args, **kwargs: begun, ends)
        return ctx, own, begun

    def put_back(token: tuple[Any, Any, list[bool]], result: Any) -> None:
        ctx, own, begun = token
        ctx.run_function = own
        if begun:
            recomputed.end()

    return staticmethod(fence.around_in_graphs(original, begins, put_back))


def tap(scope: TapScope) -> None:
    """Listens at both ways of torch's; the fact `recomputation` of the setup."""
    fence, recomputed = scope.recorder.fence, Recomputed(scope)
    scope.tells("recomputation", recomputed.told)
    reentrant = getattr(torchs, REENTRANT, None)
    if reentrant is not None:
        scope.patches.wrap(reentrant, "backward", functools.partial(_backward, fence, recomputed))
    if hasattr(torchs, HOOK):
        scope.patches.wrap(torchs, HOOK, functools.partial(_hooked, fence, recomputed))
