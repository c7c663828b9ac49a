"""Eight loops recorded for the tutorials, each small enough to lie in the repository."""

from __future__ import annotations

from functools import partial
from typing import Final

import gpu_doctor
from benchmarks.gpu.archive import RECORDINGS
from benchmarks.gpu.bare import with_fork
from benchmarks.gpu.kept import Row, Stage, row
from benchmarks.gpu.patients import HEALTHY, PATIENTS
from benchmarks.gpu.rows_for import rows_for
from benchmarks.gpu.watched import recorded

LOOPS: Final = {
    "starved-by-its-loader": "loader-without-workers",
    "too-few-workers": "too-few-workers",
    "pageable-copies": "pageable-transfer",
    "reads-the-loss-each-step": "host-sync",
    "waits-for-python": "slow-python",
    "many-small-kernels": "not-compiled",
    "full-precision": "full-precision",
    "healthy": HEALTHY,
}
"""File -> the patient."""
MOST_BYTES: Final = 200_000
SECONDS: Final = 4.0


def run(stage: Stage) -> None:
    """A row a recording."""
    with_fork()
    rows = rows_for(stage.device)
    (stage.out / RECORDINGS).mkdir(parents=True, exist_ok=True)
    for name, patient in LOOPS.items():
        stage.row(name, partial(kept, stage, name, patient, rows))


def kept(stage: Stage, name: str, patient: str, rows: int) -> Row:
    """Records a loop, saves it, and loads it again."""
    one = next(one for one in PATIENTS if one.key == patient)
    above = one.above(stage.device, stage.size(400, 20), rows)
    recording, diagnosis = recorded(above, one.sick, stage.device, SECONDS)
    path = stage.out / RECORDINGS / f"{name}.npz"
    recording.save(path)
    again, nbytes = gpu_doctor.diagnose(gpu_doctor.load(path)), path.stat().st_size
    first = diagnosis.findings[0].headline if diagnosis.findings else "nothing found"
    said = f"{nbytes / 1000:.0f} kB, {len(recording.steps)} steps: {diagnosis.bottleneck}; {first}"
    return row(said, nbytes < MOST_BYTES and str(again) == str(diagnosis), bytes=nbytes, diagnosis=str(diagnosis))
