"""Small deterministic training loops for `faults`: each says in one digest all that its user could see of it.

They are loops as people write them, with what is made for them (model, data, optimizer) made anew for every run. The
digest is over the parameters' bytes, the losses, the samples in their order, how often the user's own code was called,
and the state of every random generator at the end.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import logging
import multiprocessing
import os
import queue
import random
import struct
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, IterableDataset

from tests.support import faults
from tests.support.simulated_cuda import SimulatedCuda
from tests.support.simulated_device import SimulatedDevice

SAMPLES: Final = 24
FEATURES: Final = 4
BATCH: Final = 4
EPOCHS: Final = 2
TROUBLE_AT: Final = 9
"""Of the loops whose own code raises: the call in which it does."""

if os.environ.get(faults.FOLDER) and getattr(multiprocessing.current_process(), "_inheriting", False):
    faults.join()  # a spawned worker, which reads what it is to do: it needs this module for the dataset


@dataclass
class Seen:
    """What the loop's user sees of it."""

    losses: list[float] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    further: list[str] = field(default_factory=list)
    """Whatever else is to be the same."""
    trouble: str = ""
    """Name of the call that raises `error` at its TROUBLE_AT-th time."""
    error: BaseException | None = None

    def called(self, name: str) -> None:
        """A function of the user's is called.

        Raises:
            BaseException: `error`, where it is this call's turn.
        """
        self.calls[name] += 1
        if self.trouble == name and self.calls[name] == TROUBLE_AT and self.error is not None:
            raise self.error


def sample_of(index: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Features, target and number of a sample."""
    made = torch.Generator().manual_seed(index)
    x = torch.rand(FEATURES, generator=made)
    return x, x.sum().reshape(1) * 0.5, index


class Items(Dataset[Any]):
    """SAMPLES samples; each reading counts."""

    def __init__(self, seen: Seen | None) -> None:
        """Args: seen: None where workers read."""
        self.seen = seen

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        if self.seen is not None:
            self.seen.called("item")
        return sample_of(index)


class Stream(IterableDataset[Any]):
    """The same samples, one after another."""

    def __init__(self, seen: Seen | None) -> None:
        self.seen = seen

    def __iter__(self) -> Iterator[Any]:
        for index in range(SAMPLES):
            if self.seen is not None:
                self.seen.called("item")
            yield sample_of(index)


class Net(nn.Module):
    """Two layers with dropout."""

    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Dropout(0.25), nn.Linear(8, 1))
        object.__setattr__(self, "seen", seen)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The model."""
        seen: Seen = vars(self)["seen"]
        seen.called("forward")
        out: torch.Tensor = self.layers(x)
        if out.requires_grad:
            out.register_hook(lambda gradient: seen.called("backward hook"))
        return out


@dataclass
class Made:
    """What one run of a loop is made of."""

    seen: Seen
    model: nn.Module
    optimizer: torch.optim.Optimizer
    loader: Any = None
    other: Any = None


def made(
    loader: Callable[[Seen], Any] | None = None,
    model: Callable[[Seen], nn.Module] = Net,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None,
) -> Made:
    """Everything new, from the same seeds."""
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)
    seen = Seen()
    net = model(seen)
    stepper = optimizer(net) if optimizer is not None else torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    return Made(seen, net, stepper, None if loader is None else loader(seen))


def own_loader(seen: Seen) -> Any:
    """Fetches in the training process."""
    return DataLoader(Items(seen), batch_size=BATCH, shuffle=True)


def digest(run: Made) -> str:
    """All that is to be as it is without us."""
    told = hashlib.sha256()
    for name, value in run.model.state_dict().items():
        told.update(name.encode() + value.detach().contiguous().view(torch.uint8).numpy().tobytes())
    seen = run.seen
    told.update(struct.pack(f"{len(seen.losses)}d", *seen.losses))
    told.update(repr((seen.samples, sorted(seen.calls.items()), seen.further)).encode())
    told.update(torch.get_rng_state().numpy().tobytes() + repr(random.getstate()).encode())
    told.update(np.random.get_state()[1].tobytes())  # type: ignore[index]
    return told.hexdigest()


def _loss(run: Made, batch: Any, model: Callable[[torch.Tensor], torch.Tensor] | None = None) -> torch.Tensor:
    x, y, indexes = batch
    run.seen.samples += indexes.tolist()
    loss: torch.Tensor = (((model or run.model)(x) - y) ** 2).mean()
    return loss


def _train(run: Made, batches: Any, model: Callable[[torch.Tensor], torch.Tensor] | None = None) -> None:
    for batch in batches:
        run.optimizer.zero_grad()
        loss = _loss(run, batch, model)
        loss.backward()
        run.optimizer.step()
        run.seen.losses.append(loss.item())


def plain(run: Made) -> None:
    """The loop of every tutorial."""
    for _ in range(EPOCHS):
        _train(run, run.loader)


def staying_workers(run: Made) -> None:
    """The workers end with the loop: the garbage collector would wait for them for seconds."""
    try:
        plain(run)
    finally:
        run.loader._iterator._shutdown_workers()


def one_epoch(run: Made) -> None:
    """Where workers take seconds to start."""
    _train(run, run.loader)


def accumulation(run: Made) -> None:
    """Gradients of three batches make a step."""
    for _ in range(EPOCHS):
        for at, batch in enumerate(run.loader, 1):
            loss = _loss(run, batch) / 3
            loss.backward()
            run.seen.losses.append(loss.item())
            if at % 3 == 0:
                run.optimizer.step()
                run.optimizer.zero_grad()


def evaluation(run: Made) -> None:
    """An evaluation after every epoch: under `no_grad`, and one that forgets it."""
    for epoch in range(EPOCHS + 1):
        run.model.train()
        _train(run, run.loader)
        run.model.eval()
        with torch.no_grad() if epoch % 2 == 0 else contextlib.nullcontext():
            for batch in run.other:
                run.seen.losses.append(_loss(run, batch).item())


def evaluated() -> Made:
    """With a loader of its own for the evaluation."""
    run = made(own_loader)
    run.other = DataLoader(Items(run.seen), batch_size=2 * BATCH)
    return run


def lbfgs(run: Made) -> None:
    """An optimizer that calls a closure several times a step."""
    for _ in range(EPOCHS):
        for batch in run.loader:

            def closure() -> torch.Tensor:
                run.seen.called("closure")
                run.optimizer.zero_grad()
                loss = _loss(run, batch)
                loss.backward()
                return loss

            run.seen.losses.append(float(run.optimizer.step(closure)))  # type: ignore[arg-type]


def arrays(run: Made) -> None:
    """No loader: slices of tensors."""
    everything = [torch.stack([sample_of(i)[part] for i in range(SAMPLES)]) for part in (0, 1)]  # type: ignore[misc]
    for _ in range(EPOCHS):
        order = torch.randperm(SAMPLES)
        _train(run, ((everything[0][at], everything[1][at], at) for at in order.split(BATCH)))


def own_updates(run: Made) -> None:
    """No optimizer: parameters that the loop updates itself."""
    for _ in range(EPOCHS):
        for batch in run.loader:
            run.model.zero_grad()
            loss = _loss(run, batch)
            loss.backward()
            with torch.no_grad():
                for p in run.model.parameters():
                    if p.grad is not None:
                        p.sub_(0.05 * p.grad)
            run.seen.losses.append(loss.item())


def own_gradients(run: Made) -> None:
    """Gradients by `torch.autograd.grad`."""
    for _ in range(EPOCHS):
        for batch in run.loader:
            loss = _loss(run, batch)
            gradients = torch.autograd.grad(loss, list(run.model.parameters()))
            with torch.no_grad():
                for p, gradient in zip(run.model.parameters(), gradients, strict=True):
                    p.sub_(0.05 * gradient)
            run.seen.losses.append(loss.item())


def workers(context: str, stream: bool = False) -> Callable[[Seen], Any]:
    """Two workers that fetch."""

    def loader(seen: Seen) -> Any:
        data: Any = Stream(None) if stream else Items(None)
        return DataLoader(
            data, batch_size=BATCH, shuffle=None if stream else True, num_workers=2, multiprocessing_context=context
        )

    return loader


def staying(seen: Seen) -> Any:
    """Two workers that stay for the next epoch."""
    return DataLoader(
        Items(None), batch_size=BATCH, num_workers=2, multiprocessing_context="fork", persistent_workers=True
    )


def clipping(run: Made) -> None:
    """Clipped gradients, mixed precision, a scaler and a schedule."""
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    schedule = torch.optim.lr_scheduler.StepLR(run.optimizer, 3, 0.9)
    for epoch in range(EPOCHS):
        for batch in run.loader:
            run.optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = _loss(run, batch)
            scaler.scale(loss).backward()
            scaler.unscale_(run.optimizer)
            nn.utils.clip_grad_norm_(run.model.parameters(), 0.5)
            if epoch:
                nn.utils.clip_grad_value_(run.model.parameters(), 0.1)
            scaler.step(run.optimizer)
            scaler.update()
            schedule.step()
            run.seen.losses.append(loss.item())


def checkpoints(run: Made) -> None:
    """Saves and collects garbage every few steps, each way of saving."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt"
        for epoch in range(EPOCHS):
            for at, batch in enumerate(run.loader):
                _train(run, [batch])
                if at % 2 == 0:
                    state = {"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict()}
                    torch.save(state, path, _use_new_zipfile_serialization=epoch == 0)
                    back = torch.load(path, weights_only=True)
                    run.seen.further.append(hashlib.sha256(repr(back).encode()).hexdigest())
                    gc.collect(0)  # a whole one takes half a second where much is loaded


def prefetching(run: Made) -> None:
    """A thread of the user's own pulls the batches."""
    for _ in range(EPOCHS):
        batches: queue.Queue[Any] = queue.Queue(2)
        errors: list[BaseException] = []

        def pull(batches: queue.Queue[Any] = batches, errors: list[BaseException] = errors) -> None:
            try:
                for batch in run.loader:
                    batches.put(batch)
            except BaseException as error:
                errors.append(error)
            finally:
                batches.put(None)

        puller = threading.Thread(target=pull, name="prefetch")
        puller.start()
        _train(run, iter(batches.get, None))
        puller.join()
        if errors:
            raise errors[0]


class Twice(torch.optim.Optimizer):
    """An optimizer around another, as libraries have them: torch's hooks do not hear its step."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        self.param_groups, self.state, self.defaults = inner.param_groups, inner.state, inner.defaults

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Those of the inner one."""
        self.inner.zero_grad(set_to_none)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Halves the gradients first."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.mul_(0.5)
        self.inner.step()


def wrapped() -> Made:
    """With an optimizer around another."""
    run = made(own_loader)
    run.optimizer = Twice(run.optimizer)
    return run


class Box(nn.Module):
    """Holds two models and is never called: one by torch's call, the other by its `forward`."""

    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.first, self.second = Net(seen), Net(seen)


def boxed(run: Made) -> None:
    """A model that the loop calls in parts, one of them past torch's own call."""
    box: Any = run.model
    for _ in range(EPOCHS):
        _train(run, run.loader, lambda x: box.first(x) + box.second.forward(x))


class Again(Net):
    """Its layers are not kept but computed again in the backward, in either way of torch's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The model."""
        vars(self)["seen"].called("forward")
        first, *_, last = self.layers
        x = checkpoint(first, x, use_reentrant=False)
        x = checkpoint(self.layers[1:-1], x, use_reentrant=True)
        out: torch.Tensor = last(x)
        return out


class Direct(nn.Module):
    """A model without parts, called by its `forward`."""

    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((FEATURES, 1), 0.1))
        object.__setattr__(self, "seen", seen)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The model."""
        vars(self)["seen"].called("forward")
        return x @ self.weight


def direct(run: Made) -> None:
    """A model whose `forward` is called past torch's own call."""
    for _ in range(EPOCHS):
        _train(run, run.loader, run.model.forward)


def copied(run: Made) -> None:
    """Copies, pickles and scripts of the model while it trains."""
    import copy
    import io

    for epoch in range(EPOCHS):
        _train(run, run.loader)
        run.model.eval()
        twin = copy.deepcopy(run.model)
        with torch.no_grad():
            run.seen.losses.append(float(twin(torch.ones(1, FEATURES))))
        file = io.BytesIO()
        torch.save(run.model.layers, file)
        file.seek(0)
        again = torch.load(file, weights_only=False)
        run.seen.losses.append(float(again(torch.ones(1, FEATURES))))
        scripted: Any = torch.jit.script(run.model.layers) if epoch else torch.jit.trace(again, torch.ones(1, FEATURES))
        run.seen.losses.append(float(scripted(torch.ones(1, FEATURES))))
        run.model.train()


def on_device(run: Made) -> None:
    """The model is on a GPU: batches are copied to it, and values are asked for."""
    run.model.to("cuda")
    for _ in range(EPOCHS):
        for x, y, indexes in run.loader:
            there = x.to("cuda")
            run.seen.losses.append(there.sum().item())
            run.seen.losses += there.flatten().tolist()
            run.seen.losses.append(float(there.cpu().sum()))
            _train(run, [(there, y.to("cuda"), indexes)])


def lightning_loop(run: Made) -> None:
    """Lightning's Trainer.fit, with validation and accumulated gradients."""
    run.other()


def lightning_made() -> Made:
    """A Trainer as its manual shows it."""
    lightning = importlib.import_module("lightning")
    for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)

    class Lit(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self, seen: Seen) -> None:
            super().__init__()
            self.net = Net(seen)
            object.__setattr__(self, "seen", seen)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            x, y, indexes = batch
            self.seen.samples += indexes.tolist()
            loss: torch.Tensor = ((self.net(x) - y) ** 2).mean()
            self.log("loss", loss)
            self.seen.losses.append(loss.item())
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            x, y, indexes = batch
            self.seen.samples += indexes.tolist()
            self.seen.losses.append(((self.net(x) - y) ** 2).mean().item())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.05)

    run = made(own_loader, Lit)
    held_out = DataLoader(Items(run.seen), batch_size=2 * BATCH)

    def fit() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lightning.Trainer(
                max_epochs=EPOCHS,
                accumulate_grad_batches=2,
                gradient_clip_val=0.5,
                accelerator="cpu",
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                num_sanity_val_steps=1,
            ).fit(run.model, run.loader, held_out)

    run.other = fit
    return run


@dataclass(frozen=True)
class Loop:
    """A loop by its name."""

    name: str
    run: Callable[[Made], None] = plain
    make: Callable[[], Made] = lambda: made(own_loader)
    on_gpu: bool = False
    """It uses a GPU, which is simulated."""
    workers: bool = False
    """Worker processes fetch."""
    loader_alone: bool = False
    """Only what runs in the workers, and in the loader's tap, is of interest."""
    error: BaseException | None = None
    """Is raised by the user's own code in it,"""
    trouble: str = ""
    """by this call."""

    def machine(self) -> AbstractContextManager[object]:
        """Where it runs."""
        return SimulatedCuda(SimulatedDevice(real=True)) if self.on_gpu else contextlib.nullcontext()

    def made(self) -> Made:
        """What a run is made of."""
        run = self.make()
        run.seen.trouble, run.seen.error = self.trouble, self.error
        return run


def _adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def _lbfgs(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)


LOOPS: Final = {
    one.name: one
    for one in (
        Loop("plain"),
        Loop("accumulation", accumulation, lambda: made(own_loader, optimizer=_adam)),
        Loop("evaluation", evaluation, evaluated),
        Loop("lbfgs", lbfgs, lambda: made(own_loader, optimizer=_lbfgs)),
        Loop("arrays", arrays, made),
        Loop("own-updates", own_updates),
        Loop("own-gradients", own_gradients),
        Loop("clipping", clipping),
        Loop("checkpoints", checkpoints),
        Loop("recomputing", plain, lambda: made(own_loader, Again)),
        Loop("prefetching", prefetching),
        Loop("wrapped-optimizer", plain, wrapped),
        Loop("boxed", boxed, lambda: made(own_loader, Box)),
        Loop("direct", direct, lambda: made(own_loader, Direct)),
        Loop("copied", copied),
        Loop("on-device", on_device, on_gpu=True),
        Loop("fork", plain, lambda: made(workers("fork")), workers=True),
        Loop("fork-stream", plain, lambda: made(workers("fork", stream=True)), workers=True, loader_alone=True),
        Loop("fork-staying", staying_workers, lambda: made(staying), workers=True, loader_alone=True),
        Loop("lightning", lightning_loop, lightning_made),
        Loop("spawn", one_epoch, lambda: made(workers("spawn")), workers=True, loader_alone=True),
    )
}


class OwnError(Exception):
    """Of the user's own code."""


TROUBLED: Final = {
    one.name: one
    for one in (
        Loop("dataset-raises", trouble="item", error=OwnError("in the dataset")),
        Loop("forward-raises", trouble="forward", error=OwnError("in the forward")),
        Loop("hook-raises", trouble="backward hook", error=OwnError("in a hook of the backward")),
        Loop("dataset-stops", trouble="item", error=StopIteration("in the dataset")),
        Loop("forward-stops", trouble="forward", error=StopIteration("in the forward")),
        Loop("interrupted", trouble="forward", error=KeyboardInterrupt("by the user")),
        Loop(
            "closure-raises",
            lbfgs,
            lambda: made(own_loader, optimizer=_lbfgs),
            error=OwnError("in the closure"),
            trouble="closure",
        ),
    )
}
"""Loops whose own code raises."""
