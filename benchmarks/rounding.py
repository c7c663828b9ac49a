"""What the gate on losses lets pass and what it stops: the source of `LEEWAY` and `LIKE` in trials/compare/losses.py.

`python -m benchmarks.rounding` trains small models with three optimizers for 50 steps, and again from the same state
over the same batches under changes that do no harm (other kernels, another order of sums, coarser formats) and under
faults. Printed is for each change how often the gate refuses it: of changes that do no harm these are false alarms, of
faults it is what was caught. Each row of the first table is a change, each column an optimizer, `refused/trainings`.

The second table is how far rounding takes a loss over roundoff * sqrt(step * operations), in the first three steps,
where training has not amplified it yet.
"""

from __future__ import annotations

import argparse
import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import torch
from torch import nn

from gpu_doctor.recording import Losses
from gpu_doctor.trials.compare.losses import DIFFERENT, ROUNDOFF, SMALL, parity, varies
from gpu_doctor.trials.nudged import SEED, shift

STEPS = 50
BATCH = 32
WARM = 3


class Residual(nn.Module):
    """Two convolutions with batch norm beside a path that skips them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
        self.inner = nn.Sequential(*half, nn.ReLU(), *copy.deepcopy(half))

    def forward(self, x):
        """The block's output."""
        return torch.relu(x + self.inner(x))


def _mlp(dropout: float) -> nn.Module:
    parts = [nn.Linear(32, 128), nn.ReLU(), nn.Dropout(dropout), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)]
    return nn.Sequential(*parts)


def _convolutions(dropout: float) -> nn.Module:
    first = [nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Dropout2d(dropout), nn.Conv2d(16, 32, 3), nn.ReLU()]
    return nn.Sequential(*first, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def _residual(dropout: float) -> nn.Module:
    blocks = [Residual(16) for _ in range(8)]
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(16, 10)]
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), *blocks, *last)


def _transformer(dropout: float) -> nn.Module:
    layers = [nn.TransformerEncoderLayer(32, 4, 64, dropout=dropout, batch_first=True) for _ in range(4)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, 10))


MODELS = {
    "MLP": (_mlp, (32,)),
    "convolutions": (_convolutions, (3, 12, 12)),
    "residual": (_residual, (3, 12, 12)),
    "transformer": (_transformer, (8, 32)),
}
OPTIMIZERS = {
    "SGD 0.05": lambda p, rate=1.0, **more: torch.optim.SGD(p, 0.05 * rate, momentum=0.9, **more),
    "Adam 1e-3": lambda p, rate=1.0, **more: torch.optim.Adam(p, 1e-3 * rate, **more),
    "Adam 1e-2": lambda p, rate=1.0, **more: torch.optim.Adam(p, 1e-2 * rate, **more),
}


class Way:
    """One way to train: what is done otherwise than in the baseline, and in which format."""

    def __init__(self, *, dtype: str = "float32", anew: bool = False, **how) -> None:
        self.dtype, self.anew, self.how = dtype, anew, how


HARMLESS = {
    "channels_last": Way(layout=True, anew=True),
    "compile": Way(compiled=True, anew=True),
    "fused_optimizer": Way(fused=True),
    "threads": Way(threads=2),
    "samples in another order": Way(mixed=True, anew=True),
    "TF32 (emulated)": Way(dtype="tf32", tf32=True),
    "amp bf16": Way(dtype="bfloat16", cast=torch.bfloat16),
    "amp fp16": Way(dtype="float16", cast=torch.float16),
    "other masks": Way(anew=True, reseeded=True),
}
FAULTS = {
    "lr 10 % too high": Way(rate=1.1),
    "no zero_grad": Way(keeps=True),
    "an activation left out": Way(dropped=True),
    "dropout left out": Way(no_dropout=True),
    "momentum forgotten": Way(betas=True),
    "weights frozen from step 5 on": Way(frozen=5),
    "labels shuffled": Way(shuffled=True),
    "loss doubled in backward": Way(scale=2.0),
    "gradients clipped": Way(clip=0.1),
    "layout, lr 10 % too high": Way(layout=True, anew=True, rate=1.1),
    "compile, weights frozen": Way(compiled=True, anew=True, frozen=5),
    "TF32, lr 10 % too high": Way(dtype="tf32", tf32=True, rate=1.1),
    "amp bf16, weights frozen": Way(dtype="bfloat16", cast=torch.bfloat16, frozen=5),
    "amp bf16, lr 10 % too high": Way(dtype="bfloat16", cast=torch.bfloat16, rate=1.1),
    "amp bf16, labels shuffled": Way(dtype="bfloat16", cast=torch.bfloat16, shuffled=True),
}


class Rounded(torch.autograd.Function):
    """Numbers with the ten bits of TF32, forward and backward."""

    @staticmethod
    def forward(ctx, x):
        """As a tensor core reads its input."""
        return _tf32(x)

    @staticmethod
    def backward(ctx, grad):
        """The same of gradients."""
        return _tf32(grad)


def _tf32(x):
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@contextmanager
def tf32() -> Iterator[None]:
    """Matrix products and convolutions of layers read their inputs in TF32."""
    before = nn.functional.linear, nn.functional.conv2d
    nn.functional.linear = lambda x, w, b=None: before[0](Rounded.apply(x), Rounded.apply(w), b)
    nn.functional.conv2d = lambda x, w, *rest: before[1](Rounded.apply(x), Rounded.apply(w), *rest)
    try:
        yield
    finally:
        nn.functional.linear, nn.functional.conv2d = before


def trained(model: nn.Module, make: Callable, batches: list, *, nudge: str = "", **how) -> tuple[Losses, int]:
    """Losses of a training from this model on, which is left as it is; and the operations of a forward."""
    model = copy.deepcopy(model)
    if nudge:
        for one in model.parameters():
            shift(one, nudge, STEPS)
    if how.get("layout"):
        model = model.to(memory_format=torch.channels_last)
    if how.get("dropped"):
        first = next(name for name, part in model.named_modules() if isinstance(part, (nn.ReLU, nn.LayerNorm)))
        model.set_submodule(first, nn.Identity())
    if how.get("no_dropout"):
        for part in model.modules():
            if isinstance(part, (nn.Dropout, nn.Dropout2d)):
                part.p = 0.0
    more = {"fused": True} if how.get("fused") else {}
    optimizer = make(model.parameters(), how.get("rate", 1.0), **more)
    if how.get("betas"):
        for group in optimizer.param_groups:
            group.update({"momentum": 0.8} if "momentum" in group else {"betas": (0.8, 0.999)})
    run = torch.compile(model) if how.get("compiled") else model
    torch.manual_seed(1)
    torch.set_num_threads(how.get("threads", 1))
    values, operations = [], 0
    with tf32() if how.get("tf32") else nullcontext():
        for step, (x, y) in enumerate(batches):
            order = torch.randperm(len(x), generator=torch.Generator()) if how.get("mixed") else slice(None)
            x, y = x[order], y[order]
            x = x.contiguous(memory_format=torch.channels_last) if how.get("layout") and x.dim() == 4 else x
            y = y.roll(1) if how.get("shuffled") else y
            if how.get("reseeded") and step == 0:
                torch.manual_seed(SEED)
            with torch.autocast("cpu", dtype=how.get("cast"), enabled="cast" in how):
                out = run(x)
            loss = nn.functional.cross_entropy(out.float(), y)
            operations = operations or nodes(loss)
            if not how.get("keeps"):
                optimizer.zero_grad()
            (loss * how.get("scale", 1.0)).backward()
            if how.get("clip"):
                nn.utils.clip_grad_norm_(model.parameters(), how["clip"])
            if step < how.get("frozen", STEPS):
                optimizer.step()
            values.append(loss.item())
    torch.set_num_threads(1)
    at = np.arange(float(STEPS))
    return Losses(at, at * BATCH, np.array(values)), operations


def nodes(loss: torch.Tensor) -> int:
    """Nodes of the graph of a backward."""
    seen, ahead = set(), [loss.grad_fn]
    while ahead:
        one = ahead.pop()
        if one is not None and one not in seen:
            seen.add(one)
            ahead += [before for before, _ in one.next_functions]
    return len(seen)


def refused(base: Losses, own: list[Losses], other: Losses, dtype: str, operations: int) -> bool:
    """Whether a gain with these losses would not be kept."""
    if parity(base, other, dtype, operations).verdict != DIFFERENT:
        return False
    return not varies([base, *own], other, dtype, operations)


def trainings(seeds: int, dropout: float) -> Iterator[tuple[str, str, int, nn.Module, Callable, list]]:
    """Every model under every optimizer, from several states."""
    for name, (make, shape) in MODELS.items():
        for called, optimizer in OPTIMIZERS.items():
            for seed in range(seeds):
                torch.manual_seed(seed)
                model, truth = make(dropout), torch.randn(math.prod(shape), 10)
                xs = [torch.randn(BATCH, *shape) for _ in range(STEPS)]
                yield name, called, seed, model, optimizer, [(x, (x.flatten(1) @ truth).argmax(1)) for x in xs]


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--without-compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    every = {**HARMLESS, **FAULTS}
    counts: dict[tuple[str, str], list[int]] = {}
    early: dict[str, float] = {}
    for name, called, _, model, optimizer, batches in trainings(options.seeds, options.dropout):
        base, operations = trained(model, optimizer, batches)
        own: dict[tuple[str, bool], list[Losses]] = {}
        for label, way in every.items():
            if way.how.get("compiled") and options.without_compile:
                continue
            if label in ("other masks", "dropout left out") and not options.dropout:
                continue
            if "scale" in way.how and "Adam" in called:  # it makes no difference to Adam
                continue
            if way.how.get("layout") and name not in ("convolutions", "residual"):
                continue
            anew = way.anew and options.dropout > 0
            if (way.dtype, anew) not in own:
                drawn = {"reseeded": True} if anew else {}
                own[way.dtype, anew] = [trained(model, optimizer, batches, nudge=way.dtype, **drawn)[0]]
            other, _ = trained(model, optimizer, batches, **way.how)
            said = refused(base, own[way.dtype, anew], other, way.dtype, operations)
            count = counts.setdefault((label, called), [0, 0])
            count[0], count[1] = count[0] + said, count[1] + 1
            if label in HARMLESS and not anew:
                scale = np.maximum(base.value, SMALL * base.value.max())
                apart = (np.abs(other.value - base.value) / scale)[:WARM]
                walk = ROUNDOFF[way.dtype] * np.sqrt(np.arange(1.0, WARM + 1) * operations)
                early[way.dtype] = max(early.get(way.dtype, 0.0), float((apart / walk).max()))
    print(f"{f'refused, dropout {options.dropout}':<34}" + "".join(f"{one:>12}" for one in OPTIMIZERS))
    for label in every:
        cells = [counts.get((label, one)) for one in OPTIMIZERS]
        if any(cells):
            print(f"{label:<34}" + "".join(f"{f'{c[0]}/{c[1]}' if c else '':>12}" for c in cells))
    print("\nearly difference over roundoff * sqrt(step * operations)")
    for dtype, value in early.items():
        print(f"{dtype:<34}{value:12.2f}")


if __name__ == "__main__":
    main()
