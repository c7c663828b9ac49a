"""How far rounding alone moves a loss curve: the source of `gpu_doctor.trials.compare.losses.LEEWAY`.

`python -m benchmarks.rounding` trains four small models with three optimizers for 50 steps in float32, and again from
the same state over the same batches in bf16 and fp16 autocast and in float32 with the samples of each batch in another
order (which changes nothing but the order of sums). Printed is the largest relative difference of the two loss curves
over roundoff times sqrt(step); Adam at 1e-2 is there to show what a training does that is not stable.
"""

from __future__ import annotations

import argparse
import copy
import math

import torch
from torch import nn

from gpu_doctor.trials.compare.losses import ROUNDOFF, SMALL

STEPS = 50
BATCH = 32


def _encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)


MODELS = {
    "MLP": (
        lambda: nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)),
        (32,),
    ),
    "batch norm": (
        lambda: nn.Sequential(nn.Linear(32, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10)),
        (32,),
    ),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
        ),
        (3, 12, 12),
    ),
    "transformer": (lambda: nn.Sequential(_encoder(), _encoder(), nn.Flatten(), nn.Linear(256, 10)), (8, 32)),
}  # fmt: skip
OPTIMIZERS = {
    "SGD 0.05": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
    "Adam 1e-3": lambda p: torch.optim.Adam(p, 1e-3),
    "Adam 1e-2": lambda p: torch.optim.Adam(p, 1e-2),
}
SIDES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": None}


def losses(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list, dtype: torch.dtype | None, mixed: bool):
    """Losses of a training, shape (STEPS,)."""
    values = []
    for x, y in batches:
        order = torch.randperm(len(x)) if mixed else torch.arange(len(x))
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            out = model(x[order])
        loss = nn.functional.cross_entropy(out.float(), y[order])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    return torch.tensor(values, dtype=torch.float64)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'difference over roundoff * sqrt(step)':<40}" + "".join(f"{name:>12}" for name in SIDES))
    for name, (make, shape) in MODELS.items():
        for called, optimizer in OPTIMIZERS.items():
            largest = dict.fromkeys(SIDES, 0.0)
            for seed in range(options.seeds):
                torch.manual_seed(seed)
                model, truth = make(), torch.randn(math.prod(shape), 10)
                xs = [torch.randn(BATCH, *shape) for _ in range(STEPS)]
                batches = [(x, (x.flatten(1) @ truth).argmax(1)) for x in xs]
                plain = copy.deepcopy(model)
                base = losses(plain, optimizer(plain.parameters()), batches, None, False)
                for side, dtype in SIDES.items():
                    twin = copy.deepcopy(model)
                    other = losses(twin, optimizer(twin.parameters()), batches, dtype, dtype is None)
                    apart = (other - base).abs() / base.abs().clamp(min=SMALL * float(base.abs().max()))
                    walk = ROUNDOFF[side] * torch.arange(1.0, STEPS + 1).sqrt()
                    largest[side] = max(largest[side], float((apart / walk).max()))
            print(f"{name + ', ' + called:<40}" + "".join(f"{value:12.2f}" for value in largest.values()))


if __name__ == "__main__":
    main()
