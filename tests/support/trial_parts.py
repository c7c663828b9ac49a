"""Trials and a treatment as a panel or a report meets them: two trials that were kept, one that did not fit, a fix."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any, Final

import numpy as np

from gpu_doctor.cell.fix import Fix, FixedCell
from gpu_doctor.recording import Recording
from gpu_doctor.report.panel import PanelInput
from gpu_doctor.trials.compare.effect import BY_SETTINGS, Effect, compare
from gpu_doctor.trials.look.result import Look, Operator, PhaseShare
from gpu_doctor.trials.plan import Plan, Rung
from gpu_doctor.trials.results import Largest, Sweep
from tests.support.panel_parts import replaced, shown
from tests.support.recordings import losses, starved

CELL: Final = """\
from torch.utils.data import DataLoader

loader = DataLoader(dataset,
                    batch_size=128, shuffle=True)  # mine
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""
CURED: Final = CELL.replace("shuffle=True)", "shuffle=True, num_workers=4)").replace(
    "    loss = criterion(model(x), y)\n",
    '    with torch.autocast("cuda", dtype=torch.bfloat16):\n        loss = criterion(model(x), y)\n',
)
WORKERS: Final[dict[str, Any]] = {"num_workers": 4}
BOTH: Final[dict[str, Any]] = {"num_workers": 4, "amp": "bf16"}
GIVEN_UP: Final = "stopped after 1 pair of runs: num_workers=2, amp=bf16 is clearly faster"
WROTE: Final = "A word on a side."


def side(gpu: bool = True, factor: float = 1.0, **fields: Any) -> Recording:
    """One side of a trial."""
    return starved(gpu=gpu, **{"steps": 50, "losses": losses(factor=factor), "peak_bytes": 3.1 * 2**30, **fields})


def trials(gpu: bool = True) -> tuple[tuple[Recording, Recording], ...]:
    """Workers against the code as written, then bf16 over the workers."""
    workers: dict[str, Any] = {"gpu": gpu, "wait_s": 0.002, "workers": 4}
    first = side(gpu), side(**workers, settings=WORKERS, notes=(WROTE,))
    second = side(**workers, settings=WORKERS), side(**workers, settings=BOTH, factor=1.002)
    return first, second


def effects(pairs: tuple[tuple[Recording, Recording], ...]) -> tuple[Effect, ...]:
    """What the two trials gave, and a third that did not fit into memory."""
    (a, b), (c, d) = pairs
    return (
        dataclasses.replace(compare([a], [b], predicted=2.9), low=2.9, high=3.6, predicted_low=2.2, predicted_high=3.5),
        dataclasses.replace(compare([c], [d], predicted=1.2), verdict="faster", speedup=1.24, low=1.18, high=1.31),
        Effect({**BOTH, "batch_size": 4096}, BOTH, outcome="out-of-memory", reason="A batch of 2048 fitted."),
    )


def fix(text: str = CELL, cured: str = CURED, **fields: Any) -> Fix:
    """The change of one cell."""
    return Fix(BOTH, (FixedCell("this cell", text, cured),), **fields)


def plan(tried: tuple[Effect, ...], **fields: Any) -> Plan:
    """Both settings kept, the batch size not."""
    rungs = (
        Rung("as written", {}, 1.0),
        Rung("num_workers=4", WORKERS, 3.33, 3.33, 2.9, 3.6),
        Rung("amp=bf16", {"amp": "bf16"}, 4.13, 1.24, 1.18, 1.31),
    )
    given: dict[str, Any] = {"fix": fix(), "by_hand": ("Decode images once and cache them.",), "waterfall": rungs}
    return Plan(**{"settings": BOTH, "speedup": 4.13, "effects": tried, "code": "", **given, **fields})


def treated(gpu: bool = True, **fields: Any) -> PanelInput:
    """The panel after a run and a treatment."""
    pairs = trials(gpu)
    tried = effects(pairs)
    base = starved(gpu=gpu, steps=300, losses=losses(300), peak_bytes=3.1 * 2**30)
    return shown(base, **{"effects": tried, "trials": pairs, "plan": plan(tried), **fields})


def swept(**fields: Any) -> Sweep:
    """Workers and precision: one is best, one is not told apart from it, one was given up, one could not be had."""
    given: dict[str, Any] = {"outcome": "budget-reached", "candidate_samples_per_s": 4000.0}
    tried = (
        Effect({"num_workers": 0, "amp": "bf16"}, {}, 1.02, 0.98, 1.05, "no-difference", **given),
        Effect({"num_workers": 2, "amp": "off"}, {}, 2.31, 2.2, 2.45, "faster", **given),
        Effect({"num_workers": 2, "amp": "bf16"}, {}, 2.38, 2.25, 2.5, "faster", **given),
        Effect({"num_workers": 1, "amp": "off"}, {}, 1.4, 1.3, 1.5, "faster", reason=GIVEN_UP, **given),
        Effect({"num_workers": 8, "amp": "bf16"}, {}, outcome="refused", reason="The loader owns its workers."),
        Effect({"num_workers": 4, "amp": "off"}, {}, 0.8, 0.75, 0.85, "slower", **given),
    )
    again = Effect({"num_workers": 2, "amp": "bf16"}, {}, 2.35, 2.25, 2.45, "faster", **given)
    return Sweep(**{"effects": tried, "again": again, **fields})


def searched(**fields: Any) -> Largest:
    """Of a card of 80 GiB: 704 fits, 256 is best."""
    gib = 2.0**30
    given: dict[str, Any] = {
        "batch_size": 704,
        "peak_bytes": 74.2 * gib,
        "limit_bytes": 79.2 * gib,
        "tried": ((256, 29.0 * gib), (752, None), (704, 74.2 * gib)),
        "best_batch_size": 256,
        "best_samples_per_s": 9980.0,
        "rates": ((128, 6200.0), (256, 9980.0), (704, 9800.0)),
        "peaks": ((128, 16.5 * gib), (256, 29.0 * gib), (704, 74.2 * gib)),
    }
    return Largest(**{**given, **fields})


def uneven(recording: Recording) -> Recording:
    """Steps that take up to a fifth more or less, the same on average."""
    times = 1.0 + 0.2 * np.sin(np.arange(len(recording.steps)) * 2 * np.pi / 5)
    return replace(recording, steps=replaced(recording.steps, wall_s=recording.steps.wall_s * times))


def verified(**fields: Any) -> PanelInput:
    """A treatment whose last trial measured all that was kept against the code as written."""
    pairs = trials()
    base, both = uneven(side()), uneven(side(wait_s=0.0005, workers=4, settings=BOTH, factor=1.002))
    last = replace(compare([base], [both], predicted=3.4), low=3.6, high=4.1, verdict="faster", verified=BY_SETTINGS)
    tried = (*effects(pairs), last)
    gain = last.speedup or 0.0
    whole = Rung("all together", BOTH, gain, gain, last.low, last.high, verified=BY_SETTINGS)
    told = plan(tried, verified=BY_SETTINGS, speedup=gain)
    told = replace(told, waterfall=(*told.waterfall, whole))
    return treated(effects=tried, trials=(*pairs, (base, both)), plan=told, **fields)


HOSTILE: Final = "<script>alert(1)</script>"
LOOK: Final = Look(
    steps=5,
    step_s=0.2,
    operators=(
        Operator("aten::convolution", 0.08, 0.4, 2.0, "conv (Conv2d)", "cell line 9", f"y = conv(x)  # {HOSTILE}"),
        Operator("aten::mm", 0.02, 0.1, 1.0, kernel="ampere_s16816gemm"),
    ),
    phases=(PhaseShare("backward", 0.5, 0.4, "its nodes alone"), PhaseShare("optimizer", 0.1, 0.1)),
    on_gpu=True,
    tensor_cores=0.25,
)
