"""What articles on starving GPUs tell: a loop that loses a third to a half of its time to the loader; a GPU that is
busy 50 to 60 %, and over 90 % after treatment; half precision that doubles the speed of matrix products.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Final

import torch

import gpu_doctor
from benchmarks.gpu.bare import as_it_was, step_s, with_fork
from benchmarks.gpu.cells import BUSY, HEAD, LOOP, PLAIN
from benchmarks.gpu.kept import Row, Stage, row
from benchmarks.gpu.rows_for import WORK_S, rows_for
from benchmarks.gpu.timing import gain, in_turns, synchronize
from benchmarks.gpu.watched import recorded

LOST: Final = (0.30, 0.50)
POINTS: Final = 0.05
BEFORE_PCT: Final = (45.0, 65.0)
AFTER_PCT: Final = 90.0
HALF: Final = (1.5, 2.6)
"""bf16 over TF32: the cards' data sheets say 2."""
OF_A_SAMPLE_MS: Final = 1e3 * WORK_S / 32
"""So long a sample's fetch takes as long as the device's step: the GPU is starved beyond that."""


def run(stage: Stage) -> None:
    """A row a figure."""
    with_fork()
    rows = rows_for(stage.device)
    stage.row("lost to the loader", partial(lost, stage, rows))
    stage.row("busy before and after treatment", partial(treated, stage, rows))
    stage.row("half precision on matrix products", partial(products, stage))


def starved(stage: Stage, rows: int, busy: float, steps: int) -> str:
    """Cells above a loop whose device works that share of the time."""
    loader = (
        f"loader = DataLoader(Rows(32 * steps, ms={OF_A_SAMPLE_MS / busy:.4f}), batch_size=32, pin_memory=pinned)\n"
    )
    return filled(stage, HEAD + BUSY + loader, rows, steps)


def filled(stage: Stage, above: str, rows: int, steps: int) -> str:
    """Cells above, for the device at hand."""
    return above.replace("DEVICE", stage.device).replace("STEPS", str(steps)).replace("ROWS", str(rows))


def lost(stage: Stage, rows: int) -> Row:
    """The loop with its loader and with one that costs nothing, bare and in turns; and what we say is lost."""
    steps = stage.size(100, 10)
    slow, free = starved(stage, rows, 0.6, steps), filled(stage, PLAIN, rows, steps)
    found = in_turns(
        {
            "loader": lambda: step_s(slow, LOOP, stage.device, steps),
            "none": lambda: step_s(free, LOOP, stage.device, steps),
        },
        stage.size(4, 2),
    )
    true = 1.0 - 1.0 / gain(found["loader"], found["none"])
    _, diagnosis = recorded(starved(stage, rows, 0.6, stage.size(300, 20)), LOOP, stage.device)
    said = diagnosis.vitals.exposed_wait_share
    told = "not told" if said is None else f"{100 * said:.0f} %"
    good = said is not None and LOST[0] <= true <= LOST[1] and abs(said - true) <= POINTS
    text = f"by the bare clock {100 * true:.0f} % of the time, by the diagnosis {told} ({diagnosis.bottleneck})"
    return row(text, None if stage.rehearse else good, true=true, told=said, seconds=found)


def treated(stage: Stage, rows: int) -> Row:
    """NVML's utilization of the loop as written and with the settings that a treatment kept."""
    above = starved(stage, rows, 0.55, stage.size(1500, 60))
    names: dict[str, Any] = {"__name__": "__main__"}
    with as_it_was(stage.device):
        exec(compile(above, "<above>", "exec"), names)
        case = gpu_doctor.case(LOOP, names)
        seconds = 8.0 if not stage.rehearse else 1.5
        case.run(seconds=seconds)
        plan = case.treat(4 if not stage.rehearse else 1, steps=stage.size(60, 6), seconds=seconds)
        case.run(plan.settings, seconds=seconds)
        first, last = (gpu_doctor.measure(one) for one in (case.recordings[0], case.recordings[-1]))
        names.clear()
    figures = {"before_pct": first.gpu_util_pct, "after_pct": last.gpu_util_pct, "plan": plan.to_dict()}
    figures |= {"before_busy_share": first.gpu_busy_share, "after_busy_share": last.gpu_busy_share}
    kept = f"settings kept: {dict(plan.settings)}, {plan.speedup:.2f}x" if plan.settings else plan.reason or "none kept"
    if first.gpu_util_pct is None or last.gpu_util_pct is None:
        return row(f"utilization is not read here; {kept}", None if stage.rehearse else False, **figures)
    good = BEFORE_PCT[0] <= first.gpu_util_pct <= BEFORE_PCT[1] and last.gpu_util_pct > AFTER_PCT
    return row(f"{first.gpu_util_pct:.0f} % before, {last.gpu_util_pct:.0f} % after; {kept}", good, **figures)


def products(stage: Stage) -> Row:
    """Operations a second of one large product in each format."""
    n, precision = stage.size(8192, 256), torch.get_float32_matmul_precision()
    rates: dict[str, float] = {}
    try:
        for name, dtype, how in (
            ("float32", torch.float32, "highest"),
            ("tf32", torch.float32, "high"),
            ("float16", torch.float16, precision),
            ("bfloat16", torch.bfloat16, precision),
        ):
            torch.set_float32_matmul_precision(how)
            rates[name] = _tflops(n, dtype, stage.device)
    finally:
        torch.set_float32_matmul_precision(precision)
    ratio = rates["bfloat16"] / rates["tf32"]
    said = ", ".join(f"{name} {rate:.3g} TFLOP/s" for name, rate in rates.items())
    said += f"; bfloat16 over float32 {rates['bfloat16'] / rates['float32']:.1f}x, over TF32 {ratio:.1f}x"
    return row(said, None if stage.rehearse else HALF[0] <= ratio <= HALF[1], **rates)


def _tflops(n: int, dtype: torch.dtype, device: str, times: int = 20) -> float:
    left, right = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    for _ in range(3):
        left @ right
    synchronize(device)
    begin = time.perf_counter()
    for _ in range(times):
        left @ right
    synchronize(device)
    return 2e-12 * n**3 * times / (time.perf_counter() - begin)
