"""workers-cannot-start: what the workers need cannot be sent to them."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
from torch.utils.data import DataLoader, TensorDataset

from gpu_doctor.capture.describe.loader_limits import refusal
from gpu_doctor.diagnosis.rules.prescriptions import CANNOT
from gpu_doctor.recording import LoaderSetup, Setup
from tests.support.found import asked, named, sick, threat, top
from tests.support.recordings import KEY, Loop, with_more

RULE = "workers-cannot-start"
SAID = f"{CANNOT}spawn, but dataset is defined in the notebook."
SPAWN: dict[str, Any] = {"start_method": "spawn", "refusals": {"num_workers": SAID}, "batches": 1000}
WAITING = Loop(wait=20.0, fetch_cpu=1.0, loader=SPAWN)


def failed(reason: str, **loader: Any) -> Loop:
    """A run that ended before its first batch."""
    known = {"key": KEY, "role": "unknown", "num_workers": 2, "start_method": "spawn", "dataset": "Rows", **loader}
    setup = Setup(loaders=(LoaderSetup(**known),))
    return with_more(Loop(steps=0), outcome="failed", reason=reason, setup=setup)


def test_sick() -> None:
    found = sick(RULE, WAITING)
    assert found.cost_share == pytest.approx(2 / 3, rel=0.02)
    assert SAID in found.evidence
    assert "%%writefile" in found.prescriptions[0].code
    assert (found.prescriptions[0].predicted_speedup or 0) > 1.5
    assert top(WAITING) == RULE
    assert "loader-without-workers" not in named(WAITING)


def test_one_worker_is_one() -> None:
    said = sick(RULE, WAITING.but(forward=60.0)).evidence[-1]
    assert said.startswith("with 1 worker a step would be limited")


def test_well() -> None:
    assert asked(RULE, WAITING.but(loader={})) is None
    assert asked(RULE, WAITING.but(wait=0.1)) is None


def test_another_refusal_is_another_rule() -> None:
    other = {"refusals": {"num_workers": "The dataset holds tensors on the GPU."}}
    assert asked(RULE, WAITING.but(loader=other)) is None
    assert "loader-without-workers" in named(WAITING.but(loader=other))


def test_data_in_memory_needs_no_workers() -> None:
    assert asked(RULE, Loop(wait=1.0, fetch_cpu=1.0, loader=SPAWN)) is None


@pytest.mark.parametrize(
    "reason",
    [
        "AttributeError: Can't pickle local object 'local.<locals>.Rows'",
        "PicklingError: Can't pickle <function <lambda> at 0x7f9e>: attribute lookup <lambda> on __main__ failed",
        "TypeError: cannot pickle '_io.TextIOWrapper' object",
        "AttributeError: Can't get attribute 'Rows' on <module '__main__' (built-in)>",
    ],
)
def test_a_run_that_failed_to_start_its_workers(reason: str) -> None:
    found = threat(RULE, failed(reason))
    assert found.evidence[0] == reason
    assert RULE in named(failed(reason))


def test_workers_that_are_gone_at_once_where_they_could_not_start() -> None:
    gone = "RuntimeError: DataLoader worker (pid(s) 23876) exited unexpectedly"
    assert threat(RULE, failed(gone, refusals={"num_workers": SAID})).risk
    # killed for another reason: the system's memory, a crash in a library
    assert asked(RULE, failed(gone)) is None


def test_a_failure_of_the_users_own() -> None:
    assert asked(RULE, failed("ValueError: no")) is None
    assert asked(RULE, failed("TypeError: cannot pickle 'module' object", num_workers=0)) is None
    # forked workers are sent nothing; and once there were steps, it may be torch.save that pickles
    assert asked(RULE, failed("TypeError: cannot pickle 'module' object", start_method="fork")) is None
    later = with_more(Loop(workers=2, loader={"start_method": "spawn"}), outcome="failed", reason="cannot pickle 'x'")
    assert asked(RULE, later) is None


def test_the_refusal_is_the_one_of_the_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    rows = type("Rows", (TensorDataset,), {"__module__": "__main__"})()
    loader = DataLoader(rows, num_workers=1, multiprocessing_context="spawn", batch_sampler=[])
    assert refusal(loader, "num_workers", 2).startswith(CANNOT)
