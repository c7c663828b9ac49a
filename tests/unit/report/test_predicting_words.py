"""Loops that only predict are told of no backward, no optimizer and no loss: they have none."""

from __future__ import annotations

import re

import pytest

from gpu_doctor.diagnosis import Diagnosis, diagnose
from gpu_doctor.diagnosis.diagnosis import NO_OPTIMIZER
from gpu_doctor.recording.setup import InputFacts, ModelFacts, World
from gpu_doctor.report import text
from gpu_doctor.report.sections import Reported
from tests.support.recordings import Loop, line, on_gpu

TRAINING_WORDS = re.compile(r"backward|optimizer|loss|gradient scaler|GradScaler|learning rate", re.IGNORECASE)
NONE = {"optimizers": ()}
CPU = Loop(backward=0.0, optimizer=0.0, setup=NONE)
GPU = on_gpu(backward=0.0, optimizer=0.0, setup=NONE)
DOUBLES = {
    "dtype": "float64",
    "parameters": 450_000,
    "torch_threads": 1,
    "inputs": InputFacts(looked_at=40, shapes=1, shape=(64, 256), dtype="float64"),
    "model": ModelFacts({"cpu": 8_000_000}, {"float64": 8_000_000}),
}
SYNCED = {"sync": 6.0, "syncs": 1.0, "caught_up": 1.0, "gpu_gap": 5.0, "gpu_work": 5.0, "gpu_util": 50.0}
LOOPS = {
    "computes": CPU,
    "python": CPU.but(other=9.0, lines=(line("kept.append(decode(outputs))", 0.6),)),
    "waits": CPU.but(wait=20.0, fetch_cpu=1.0),
    "full precision": GPU.but(tensor_active=0.0),
    "full precision on a T4": GPU.but(tensor_active=0.0, capability=(7, 5)),
    "emulated": GPU.but(capability=(7, 5), tensor_active=None, setup={**NONE, "autocast": "bfloat16"}),
    "tf32": GPU.but(setup={**NONE, "flags": {"matmul_precision": "highest"}}),
    "synchronous": GPU.but(**SYNCED),
    "nearly full": GPU.but(peak_share=0.95),
    "alone": GPU.but(setup={**NONE, "world": World(visible_gpus=2)}),
    "copied to all": GPU.but(setup={**NONE, "model": ModelFacts({"cuda:0": 100}, wrapper="DataParallel")}),
    "doubles": CPU.but(forward=8.0, setup={**DOUBLES, **NONE}),
    "anomaly": CPU.but(setup={**NONE, "flags": {"anomaly_mode": True}}),
}


def told(diagnosis: Diagnosis) -> list[str]:
    found = [diagnosis.verdict]
    for one in (*diagnosis.findings, *diagnosis.hints):
        found += [one.headline, *one.evidence, one.risk]
        found += [part for cure in one.prescriptions for part in (cure.text, cure.code, cure.changes)]
    return found


@pytest.mark.parametrize("name", LOOPS)
def test_no_word_of_training(name: str) -> None:
    diagnosis = diagnose(LOOPS[name].recording())
    said = [one.replace(NO_OPTIMIZER, "") for one in told(diagnosis)]
    assert [one for one in said if TRAINING_WORDS.search(one)] == []
    assert text(Reported(diagnosis))


def test_each_of_them_but_two_has_a_finding() -> None:
    asked = {name: diagnose(loop.recording()) for name, loop in LOOPS.items()}
    silent = {name for name, one in asked.items() if not (one.findings or one.hints)}
    assert silent == {"computes", "anomaly"}
