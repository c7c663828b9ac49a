"""What the tests of page share."""

from __future__ import annotations

import dataclasses

from gpu_doctor.diagnosis import Diagnosis
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.silent_rules import Silence
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Recording


def diagnosed(one: Recording, **changes: object) -> Diagnosis:
    finding = Finding(
        "loader-without-workers",
        "The GPU waits for data 71 % of the time: num_workers=0 loads batches in the loop's own process.",
        0.71,
        ("A batch takes 29.3 ms to fetch.",),
        (
            Prescription(
                "Load with 4 workers.", Safety.SAFE, {"num_workers": 4}, "DataLoader(..., num_workers=4)", 2.9, 2.6, 3.1
            ),
        ),
    )
    made = Diagnosis("input", finding.headline, (finding,), (Silence("host-sync", "no GPU"),), measure(one))
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]
