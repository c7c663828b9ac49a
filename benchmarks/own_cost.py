"""Is what a recording says of its own cost true? Watched minus bare, in turns, beside what the recordings say.

    .venv/bin/python -m benchmarks.own_cost [--turns N] [--loop NAME ...]

What it says are the CPU seconds of our threads and of what the taps do on the training thread. Every turn is a bare
segment and a watched one, in either order, of the same loop in the same process. The truth is the median over turns of
the CPU microseconds a step of all threads of the process, with its quartiles; where these lie further apart than a
quarter of it on either side, the true cost cannot be read here, and that is said.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor

SECONDS = 1.5
"""Of a segment, about, bare: what watching costs once a run, such as looking for models, is a small part of it."""
READABLE = 0.25
"""Either quartile lies no further from the median, as a part of it: the truth is known so well."""
Steps = Callable[[int], None]
"""Trains so many steps."""


def _parts(width: int = 64, batch: int = 32, layers: int = 2) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    inner = [one for _ in range(layers - 1) for one in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*inner, nn.Linear(width, 8))
    return model, torch.randn(256 * batch, width), torch.randint(0, 8, (256 * batch,))


def _loader(make: Callable[[Any], torch.optim.Optimizer], zipped: bool = False, **sizes: int) -> Steps:
    model, x, y = _parts(**sizes)
    optimizer = make(model.parameters())
    batch = sizes.get("batch", 32)
    loader, other = (DataLoader(TensorDataset(x, y), batch_size=batch) for _ in range(2))

    def train(steps: int) -> None:
        done = 0
        while True:
            for one in zip(loader, other, strict=True) if zipped else loader:
                inputs, labels = one[0] if zipped else one
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(inputs), labels)
                loss.backward()
                optimizer.step()
                done += 1
                if done == steps:
                    return

    return train


def _arrays() -> Steps:
    model, x, y = _parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def train(steps: int) -> None:
        for step in range(steps):
            at = step % 256 * 32
            loss = functional.cross_entropy(model(x[at : at + 32]), y[at : at + 32])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return train


def _skorch() -> Steps:
    import skorch

    model, x, y = _parts()
    net = skorch.NeuralNetClassifier(
        model, criterion=nn.CrossEntropyLoss, batch_size=32, train_split=None, verbose=0, lr=1e-4, max_epochs=1
    )
    net.initialize()

    def train(steps: int) -> None:
        net.partial_fit(x[: 32 * steps].numpy(), y[: 32 * steps].numpy())

    return train


def _lightning() -> Steps:
    import lightning

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    model, x, y = _parts()

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, index: int) -> Any:
            inputs, labels = batch
            return functional.cross_entropy(self.model(inputs), labels)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-4)

    module, loader = Module(), DataLoader(TensorDataset(x, y), batch_size=32)

    def train(steps: int) -> None:
        trainer = lightning.Trainer(
            max_steps=steps,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            trainer.fit(module, loader)

    return train


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-4)


def _adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-4)


LOOPS: dict[str, Callable[[], Steps]] = {
    "MLP": lambda: _loader(_sgd),
    "MLP, Adam": lambda: _loader(_adam),
    "101 tiny Linears": lambda: _loader(_sgd, width=8, layers=101),
    "arrays": _arrays,
    "zip": lambda: _loader(_sgd, zipped=True),
    "5 ms step": lambda: _loader(_sgd, width=512, batch=1536),
    "skorch": _skorch,
    "Lightning": _lightning,
}
MOST_STEPS = {"skorch": 256}
"""Its data end there."""


@dataclass
class Turn:
    """CPU seconds a step, bare and watched, and what the recording says."""

    bare_s: float
    watched_s: float
    told_s: float

    @property
    def over_s(self) -> float:
        """What watching cost."""
        return self.watched_s - self.bare_s


def _timed(train: Steps, steps: int) -> float:
    begin = time.process_time()
    train(steps)
    return (time.process_time() - begin) / steps


def _watched(train: Steps, steps: int) -> tuple[float, float]:
    with gpu_doctor.watch() as run:
        spent = _timed(train, steps)
    assert run.recording is not None
    found = int(run.recording.steps.count.sum())
    if found != steps:
        raise RuntimeError(f"gpu_doctor recorded {found} steps of {steps}.")
    return spent, run.recording.overhead_s / steps


def turns(name: str, count: int) -> list[Turn]:
    """So many turns of a loop, after one of each side that is not counted."""
    train = LOOPS[name]()
    train(20)
    steps = max(min(round(SECONDS / _timed(train, 20)), MOST_STEPS.get(name, 1 << 20)), 20)
    _watched(train, steps)
    found = []
    for turn in range(count):
        if turn % 2:
            watched, told = _watched(train, steps)
            bare = _timed(train, steps)
        else:
            bare = _timed(train, steps)
            watched, told = _watched(train, steps)
        found.append(Turn(bare, watched, told))
    return found


def line(name: str, found: list[Turn]) -> str:
    """The row of the table: bare step, true cost with quartiles, what was told, and the one over the other."""
    low, middle, high = (1e6 * one for one in statistics.quantiles([one.over_s for one in found], n=4))
    bare, told = (1e6 * statistics.median(getattr(one, of) for one in found) for of in ("bare_s", "told_s"))
    readable = middle > 0 and max(middle - low, high - middle) <= READABLE * middle
    ratio = f"{told / middle:9.2f}" if readable else "not readable"
    return f"{name:<18}{bare:>9.0f}{middle:>9.1f}{low:>9.1f}{high:>9.1f}{told:>9.1f}  {ratio:>12}"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=12, help="of each loop")
    parser.add_argument("--loop", nargs="*", default=list(LOOPS), choices=list(LOOPS), metavar="NAME")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}, Python {platform.python_version()}, "
        f"torch {torch.__version__}; CPU microseconds a step"
    )
    print(f"{'loop':<18}{'bare':>9}{'cost':>9}{'low 25%':>9}{'high 25%':>9}{'told':>9}  {'told / cost':>12}")
    for name in asked.loop:
        print(line(name, turns(name, asked.turns)), flush=True)


if __name__ == "__main__":
    main()
