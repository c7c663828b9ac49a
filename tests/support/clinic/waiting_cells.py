"""Patients on a GPU whose lines wait for it though they look like any operation: the line is named, no meaning read.

GPU: not yet run on one. Their recordings are laid out by hand: how long the host stood where, and the GPU's gap.
"""

from gpu_doctor.recording import LineCost
from tests.support.clinic.cell import Patient, Recorded
from tests.support.recordings import Loop, on_gpu

SOURCE = """for x, y in loader:
    x, y = x.to(device), y.to(device)
    out = net(x)
    loss = criterion(out, y)
    loss.backward()
    opt.step()
    hard = out[out.detach().amax(1) < 0.5].sum(0)
    seen += hard.detach()
"""


def _loop(row: int, wait: float, gap: float, work: float) -> Loop:
    """Args: row: where the host stands. wait: for so many ms a step. gap, work: of the GPU, ms a step."""
    cost = LineCost("<cell>", row, "<module>", SOURCE.splitlines()[row - 1].strip(), "other", wait / (3.0 + wait))
    return on_gpu(
        forward=1.0,
        backward=1.0,
        optimizer=1.0,
        other=wait,
        gpu_gap=gap,
        gpu_work=work,
        workers=4,
        fetch=2.0,
        source=SOURCE,
        lines=(cost,),
    )


CELLS: tuple[Patient, ...] = (
    Recorded(
        name="gpu-cuts-out-by-a-mask",
        klass="host",
        top=("slow-python",),
        never=("host-sync",),
        play=_loop(7, 6.0, 2.5, 6.5).recording,
        cured=_loop(8, 0.1, 0.05, 6.5).recording,
    ),
    Recorded(
        name="gpu-cuts-out-by-a-mask-behind-a-full-queue",
        klass="compute",
        healthy=True,
        never=("slow-python",),
        play=_loop(7, 6.0, 0.05, 8.95).recording,
    ),
)
