"""Looks now and then at what the outermost modules are handed, and whether gradients of evaluations are ever used.

Looking costs some microseconds a forward, so it is done in windows: the first steps, then a step after every 128
forwards, and the first forwards after `model.eval()`. Outside of one the hook on a module counts (0.2 us): taking it
off instead would make torch.compile build a new graph. It is made as those of `taps.compute`: a copy or a pickle of
the model carries a call of the standard library instead.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any, Final

import torch
from torch import nn

from gpu_doctor.batches import tensors_in
from gpu_doctor.facts import EvaluationFacts, InputFacts
from gpu_doctor.patching import Patches
from gpu_doctor.recorder import Recorder
from gpu_doctor.taps.shapes import Shapes

FIRST_STEPS: Final = 20
"""So many steps are looked at from the begin on."""
VARIED_STEPS: Final = 512
"""As many where shapes change."""
VARIED: Final = 3
"""Shapes among the first steps from which on they change: the full and the last batch are two."""
EVERY: Final = 128
"""Later a window after so many forwards: some 10 us each."""
ROOM: Final = 40
"""Forwards of a window in which no step ends: a loop without an optimizer."""
PASS_FORWARDS: Final = 8
"""Forwards of an evaluation pass that are looked at."""
FIRST_PASSES: Final = 16
"""Calls of `eval()` after which it is looked, then one in so many."""
PATIENCE: Final = 5
"""Steps without a forward after which what is inside of the outermost modules is listened to."""
MOST_PARTS: Final = 16
MOST_WATCHED: Final = 512
"""Evaluation forwards looked at in a run."""
MOST_NODES: Final = 8
"""Tensors of an output that are followed: loss and logits come first, caches last."""

_tracing: Callable[[], bool] = vars(torch.jit)["is_tracing"]
_compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", None) or (lambda: False)
_in_graph: Callable[[], bool] = getattr(torch.compiler, "is_dynamo_compiling", None) or _compiling
"""The cheaper half of the question; what else compiles asks `_compiling`."""


class Watch:
    """Whether anything ever asked for the gradients that one evaluation forward recorded. Autograd calls it."""

    __slots__ = ("open", "used")

    def __init__(self) -> None:
        self.used, self.open = False, True

    def __call__(self, gradients: Any) -> None:
        self.used = True


class Look:
    """The forward hook; it leaves nothing of ours behind in copies and pickles of the module."""

    __slots__ = ("left", "looker", "on")

    def __init__(self, looker: Looker) -> None:
        self.looker, self.on, self.left = looker, False, EVERY

    def __call__(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if _in_graph():  # first of all: a graph must not depend on whether a window is open
            return
        if self.on:
            self.looker.heard(module, args, kwargs, output)
            return
        self.left -= 1
        if self.left <= 0:
            self.looker.open()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        self.looker.copied = True
        return contextlib.nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")


class Looker:
    """Opens and closes windows and keeps what was seen in them."""

    def __init__(self, recorder: Recorder, stepped: list[Callable[[], None]]) -> None:
        """`stepped`: what is called after optimizer steps; it holds ours while a window is open."""
        self.recorder, self.stepped = recorder, stepped
        self.modules: dict[int, nn.Module] = {}
        self.trained: set[int] = set()
        self.seen: dict[int, Shapes] = {}
        """By module: what its training forwards were handed."""
        self.idle: dict[int, Shapes] = {}
        """As `seen`, of all other forwards."""
        self.copied = False
        self.hook = Look(self)
        self.hooks = Patches()
        self.backwards: Patches | None = None
        self.pending: list[Watch] = []
        """Of the open step: a backward that comes now may use them inside, past their output."""
        self.watched: list[Watch] = []
        self.forwards = self.looks = self.steps = self.passes = self.in_pass = 0
        self.room = ROOM
        self.began = 0
        self.clean = False
        """The step is looked at from its begin, and nothing was evaluated in it."""

    # ---- windows ------------------------------------------------------------------------------------------------

    def know(self, module: nn.Module) -> None:
        """The hook goes on one more module; one whose call is compiled would take it into the graph and is left out."""
        bare = vars(module).get("_compiled_call_impl") is None and not isinstance(module, torch.jit.ScriptModule)
        if bare and id(module) not in self.modules:
            self.modules[id(module)] = module
            self._hang(module)

    def _hang(self, module: nn.Module) -> None:
        handle = module.register_forward_hook(self.hook, with_kwargs=True)
        self.hooks.hook(f"look at {type(module).__name__}", handle.remove)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Nothing of ours is on any module for the duration."""
        self.hooks.restore()
        try:
            yield
        finally:
            for module in self.modules.values():
                self._hang(module)

    def end(self) -> None:
        """All off, for good."""
        self.hook.on = False
        self.settle()
        self.hooks.restore()
        self.modules.clear()

    def open(self) -> None:
        """Forwards are looked at from now on."""
        self.in_pass, self.room = 0, ROOM
        if not self.hook.on:
            self.hook.on, self.clean = True, False
        if self.step_ended not in self.stepped:
            self.stepped.append(self.step_ended)

    def close(self) -> None:
        """No longer, until so many more forwards; backwards are heard until the step ends."""
        self.hook.on, self.hook.left = False, EVERY

    def settle(self) -> None:
        """The step has ended: no later backward can use its evaluation forwards but through their outputs."""
        for watch in self.pending:
            watch.open = False
        self.pending.clear()
        if self.backwards is not None:
            self.backwards.restore()
            self.backwards = None

    def step_ended(self) -> None:
        """An optimizer has stepped, on the training thread, and a window is open or was in this step."""
        self.settle()
        if not self.hook.on:
            self.stepped.remove(self.step_ended)
            return
        now = self.recorder.clock()
        for shapes in self.seen.values():
            shapes.step((now - self.began) * 1e-9 if self.clean else None)
        timed, self.began, self.clean = self.clean, now, True
        self.in_pass, self.room = 0, ROOM
        self.steps += 1
        if self.steps == PATIENCE and not self.looks:
            self._unbox()
        varied = any(len(shapes.counts) >= VARIED for shapes in self.seen.values())
        if self.steps > (VARIED_STEPS if varied else FIRST_STEPS) and timed:
            self.close()

    def _unbox(self) -> None:
        """No outermost module was called: they are but boxes of modules that are (a LightningModule)."""
        for module in [one for key, one in self.modules.items() if key in self.trained]:
            parts = [part for part in module.children() if any(True for _ in part.parameters())]
            for part in parts if len(parts) <= MOST_PARTS else ():
                self.know(part)
                self.trained.add(id(part))

    def evaluates(self) -> None:
        """`eval()` was called on a module."""
        self.passes += 1
        if (self.passes <= FIRST_PASSES or self.passes % FIRST_PASSES == 0) and self.forwards < MOST_WATCHED:
            self.open()

    # ---- forwards -----------------------------------------------------------------------------------------------

    def heard(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """The forward of an outermost module has returned."""
        if get_ident() != self.recorder.thread or _tracing() or _compiling():
            return
        learns = module.training and torch.is_grad_enabled()
        if learns:
            for watch in self.pending:  # the backward to come is that of this forward
                watch.open = False
            self.pending.clear()
        if self.room <= 0:
            if not self.pending:
                self.close()
            return
        self.looks += 1
        self.room -= 1
        if not learns and not module.training:
            self.clean = False
            self.evaluated(output)
        given = next(tensors_in((args, kwargs)), None)
        if given is not None:
            logs = self.seen if learns else self.idle
            logs.setdefault(id(module), Shapes()).add(given)

    def evaluated(self, output: Any) -> None:
        """A forward in evaluation mode: follows the gradients that it recorded, if it did."""
        self.in_pass += 1
        if self.in_pass > PASS_FORWARDS or self.forwards >= MOST_WATCHED:
            return
        self.forwards += 1
        if not torch.is_grad_enabled():
            return
        nodes = (node for tensor in tensors_in(output) if (node := tensor.grad_fn) is not None)
        followed = list(itertools.islice(nodes, MOST_NODES))
        if not followed:
            return
        watch = Watch()
        for node in followed:
            node.register_prehook(watch)
        self.watched.append(watch)
        self.pending.append(watch)
        if self.backwards is None:
            self.backwards = Patches()
            for name in ("backward", "grad"):
                self.backwards.wrap(torch.autograd, name, self.touching)

    def touching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A backward in the step of an evaluation forward may use its inside (features taken by hooks): not judged."""

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if get_ident() == self.recorder.thread:
                for watch in self.pending:
                    watch.used = True
            return original(*args, **kwargs)

        return backward

    # ---- facts --------------------------------------------------------------------------------------------------

    def inputs(self) -> InputFacts | None:
        """InputFacts of the module that was looked at most, a trained one where there is one; None if none was."""
        for logs in (self.seen, self.idle):
            found = [one for key, one in logs.items() if key in self.trained or not self.trained]
            if found:
                return max(found, key=lambda one: one.looked_at).facts()
        return None

    def evaluation(self) -> EvaluationFacts | None:
        """What is known by now; None where no forward was looked at."""
        if not self.looks:
            return None
        unused = sum(not watch.used and not watch.open for watch in self.watched)
        return EvaluationFacts(forwards=self.forwards, with_gradients=unused)
