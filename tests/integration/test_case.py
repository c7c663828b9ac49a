"""Cases: runs are the user's, trials leave no trace, plans keep what was verified."""

from __future__ import annotations

import queue
import random
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, default_collate

import gpu_doctor
from gpu_doctor.trials.interrupts import uninterrupted
from gpu_doctor.trials.knobs.knob import Refused
from tests.support import small_loop
from tests.support.everything import Everything
from tests.support.faster import make_trials_faster
from tests.support.small_loop import Rows

CELL = """
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    seen["n"] += len(x)
    np.random.rand(); random.random(); torch.rand(1)
last = "reached"
"""


def namespace() -> dict[str, Any]:
    rows = Rows(960, 64, 4, sleep_s=2e-3)
    found = small_loop.namespace(rows, np=np, random=random, torch=torch, losses=[], seen={"n": 0})
    generator = torch.Generator().manual_seed(1)
    found["loader"] = DataLoader(rows, batch_size=32, shuffle=True, generator=generator)
    found["optimizer"] = torch.optim.Adam(found["model"].parameters())
    return found


def test_a_run_is_whole_and_in_the_namespace() -> None:
    ns = namespace()
    case = gpu_doctor.case(CELL, ns)
    recording = case.run()
    assert recording.outcome == "completed"
    assert (len(recording.steps), ns["seen"]["n"], ns["last"]) == (30, 960, "reached")
    assert case.recordings == [recording]
    assert case.diagnosis is not None and case.diagnosis.bottleneck == "input"
    assert gpu_doctor.last_case() is case


@pytest.mark.alone
def test_a_trial_measures_the_cure_and_leaves_no_trace() -> None:
    ns = namespace()
    case = gpu_doctor.case(CELL, ns)
    case.run()
    before = Everything(ns)
    effect = case.trial({"num_workers": 2}, steps=20)
    assert effect.outcome in ("completed", "budget-reached")
    assert effect.verdict == "faster"
    assert effect.speedup is not None and effect.low is not None and 1.2 < effect.low <= effect.speedup
    assert before.differences(Everything(ns)) == []
    assert case.effects == [effect]
    assert effect.loss_drift == pytest.approx(0.0, abs=1e-6)


def test_what_a_trial_cannot_put_back_is_in_its_result() -> None:
    ns = namespace() | {"waiting": queue.SimpleQueue()}
    case = gpu_doctor.case(CELL, ns)
    said = "a trial cannot put back: waiting (SimpleQueue)"
    effect = case.trial({"batch_size": 64}, steps=2, seconds=5, pairs=1)
    assert said in str(effect) and effect.to_dict()["not_restored"] == (said,)
    case = gpu_doctor.case(CELL, namespace())
    assert said not in str(case.trial({"batch_size": 64}, steps=2, seconds=5, pairs=1))


@pytest.mark.alone
def test_a_trial_is_forecast_from_the_run_before_it() -> None:
    """The interval forecast and the interval measured have speed-ups in common."""
    case = gpu_doctor.case(CELL, namespace())
    case.run()
    effect = case.trial({"num_workers": 2}, steps=20)
    assert effect.low is not None and effect.high is not None
    assert effect.predicted_low is not None and effect.predicted_high is not None
    assert effect.predicted_low <= effect.high and effect.low <= effect.predicted_high, effect
    assert effect.predicted_low > 1.0  # an interval so wide that it says nothing would hold no gain too


def test_a_trial_of_a_cell_that_was_never_run_works_too() -> None:
    ns = namespace()
    before = Everything(ns)
    effect = gpu_doctor.case(CELL, ns).trial({"batch_size": 64}, steps=8, pairs=1)
    assert effect.speedup is not None
    assert before.differences(Everything(ns)) == []
    assert ns["loader"].batch_size == 32


def test_a_trial_of_code_that_has_finished_is_refused_in_a_sentence() -> None:
    ns = namespace() | {"done": []}
    case = gpu_doctor.case("if not done:\n" + "".join(f"    {line}\n" for line in CELL.strip().splitlines()), ns)
    case.run()
    ns["done"].append(True)
    effect = case.trial({"num_workers": 2}, steps=5, seconds=10)
    assert effect.outcome == "refused"
    assert effect.reason.startswith("A second run trains nothing")


def test_amp_is_tried_with_the_losses_of_both_sides() -> None:
    ns = namespace()
    case = gpu_doctor.case(CELL, ns)
    case.run(steps=8)
    before = Everything(ns)
    effect = case.trial({"amp": "bf16"}, steps=8, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    assert effect.baseline_loss is not None and effect.candidate_loss is not None
    assert effect.loss_drift is not None and effect.loss_drift < 0.1
    assert before.differences(Everything(ns)) == []


def test_a_failing_trial_is_an_outcome_and_puts_everything_back() -> None:
    ns = namespace()
    before = Everything(ns)
    effect = gpu_doctor.case(CELL + "\nraise ValueError('bad')", ns).trial({"num_workers": 0}, steps=500)
    assert effect.outcome == "failed"
    assert "bad" in effect.reason
    assert before.differences(Everything(ns)) == []


def test_out_of_memory_is_an_outcome() -> None:
    ns = namespace()
    ns["oom"] = torch.OutOfMemoryError if hasattr(torch, "OutOfMemoryError") else MemoryError
    cell = CELL.replace("    losses", "    if len(x) > 32: raise oom('CUDA out of memory')\n    losses")
    effect = gpu_doctor.case(cell, ns).trial({"batch_size": 64}, steps=5)
    assert effect.outcome == "out-of-memory"
    assert ns["loader"].batch_size == 32


def test_a_knob_that_cannot_act_is_refused_with_a_reason() -> None:
    ns = namespace()
    case = gpu_doctor.case(CELL, ns)
    case.run(steps=5)
    effect = case.trial({"pin_memory": True}, steps=5)
    assert effect.outcome == "refused"
    assert "GPU" in effect.reason
    with pytest.raises(Refused, match="num_workers"):
        case.run({"num_wokers": 2})


def test_stop_from_another_thread_ends_a_run_soon() -> None:
    ns = namespace()
    at: list[int] = []

    def collated(rows: list[Any]) -> Any:
        if ns["seen"]["n"] == 10 * 32:
            at.append(ns["seen"]["n"])
            click = threading.Thread(target=case.stop)
            click.start()
            click.join()
        return default_collate(rows)

    ns["loader"] = DataLoader(Rows(100_000, 64, 4), batch_size=32, collate_fn=collated)
    case = gpu_doctor.case(CELL, ns)
    recording = case.run()
    assert recording.outcome == "stopped"
    assert ns["seen"]["n"] - at[0] <= 4 * 32, "the step that runs, and few more"
    assert "last" not in ns


def test_an_interrupt_during_a_trial_puts_everything_back() -> None:
    ns = namespace()
    before = Everything(ns)
    cell = CELL.replace("    losses", "    if seen['n'] > 90: raise KeyboardInterrupt\n    losses")
    case = gpu_doctor.case(cell, ns)
    with pytest.raises(KeyboardInterrupt):
        case.trial({"num_workers": 0}, steps=20)
    assert before.differences(Everything(ns)) == []
    assert [one.outcome for one in case.effects] == ["interrupted"]


def test_a_callable_is_a_case() -> None:
    ns = namespace()

    def train() -> None:
        for x, y in ns["loader"]:
            ns["optimizer"].zero_grad()
            nn.functional.cross_entropy(ns["model"](x), y).backward()
            ns["optimizer"].step()

    recording = gpu_doctor.case(train).run(steps=6)
    assert (len(recording.steps), recording.outcome) == (6, "budget-reached")


def test_functions_of_earlier_cells_see_what_a_trial_rebinds() -> None:
    """Their globals are the namespace itself: a trial in a copy of it would train the wrong model."""
    ns = namespace()
    exec(
        "def epoch():\n    for x, y in loader:\n        optimizer.zero_grad()\n        model(x).sum().backward()\n"
        "        optimizer.step()\n        used.add(id(model))",
        ns,
    )
    ns["used"] = set()
    outer = ns["model"]
    cell = "model = nn.Linear(64, 4)\noptimizer = torch.optim.SGD(model.parameters(), 0.1)\nepoch()"
    effect = gpu_doctor.case(cell, ns).trial({"num_workers": 0}, steps=5, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    assert ns["model"] is outer
    assert ns["used"] == set()


@pytest.mark.alone
def test_treat_climbs_to_workers_and_says_what_to_paste() -> None:
    ns = namespace()
    case = gpu_doctor.case(CELL, ns)
    before = Everything(ns)
    plan = case.treat(max_trials=2, steps=20)
    assert plan.settings.get("num_workers", 0) >= 2
    assert plan.speedup > 1.2
    assert "num_workers" in plan.code
    assert not plan.fix.complete and plan.fix.paste in str(plan.fix)  # the loader's own call is in no cell
    assert before.differences(Everything(ns)) == []


def test_a_plan_is_written_into_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    make_trials_faster(monkeypatch)
    ns = namespace() | {"DataLoader": DataLoader, "Slow": lambda n: Rows(n, 64, 4, sleep_s=2e-3)}
    cell = "loader = DataLoader(Slow(480), batch_size=32)\n" + CELL
    plan = gpu_doctor.case(cell, ns).treat(max_trials=1, steps=10)
    workers = plan.settings["num_workers"]
    assert plan.fix.complete and f"DataLoader(Slow(480), batch_size=32, num_workers={workers})" in plan.fix.copied
    assert f"+loader = DataLoader(Slow(480), batch_size=32, num_workers={workers})" in str(plan)


def test_watch_observes_any_block() -> None:
    ns = namespace()
    with gpu_doctor.watch() as run:
        assert run.recording is None
        for x, y in ns["loader"]:
            ns["optimizer"].zero_grad()
            nn.functional.cross_entropy(ns["model"](x), y).backward()
            ns["optimizer"].step()
    assert run.recording is not None and len(run.recording.steps) == 30
    assert run.diagnosis is not None and run.diagnosis.bottleneck == "input"


def test_a_watch_inside_a_watch_refuses_in_one_sentence() -> None:
    with gpu_doctor.watch():
        with pytest.raises(RuntimeError, match="already recording"):
            with gpu_doctor.watch():
                pass


def test_a_watch_keeps_its_recording_when_the_block_raises() -> None:
    watch = gpu_doctor.watch()
    with pytest.raises(ZeroDivisionError):
        with watch:
            1 / 0  # noqa: B018
    assert watch.recording is not None and watch.recording.outcome == "failed"


def test_an_interrupt_while_state_is_put_back_waits_until_it_is() -> None:
    done = []

    def put_back() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("whole")

    with pytest.raises(KeyboardInterrupt):
        put_back()
    assert done == ["whole"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_trial_makes_as_many_pairs_as_are_allowed() -> None:
    code = "net = torch.nn.Linear(4, 1)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\nfor _ in range(60):\n"
    code += "    opt.zero_grad()\n    net(torch.rand(8, 4)).sum().backward()\n    opt.step()\n    time.sleep(0.002)\n"
    case = gpu_doctor.case(code, {"torch": torch, "time": time})
    effect = case.trial({}, steps=40, pairs=1)
    assert effect.pairs == 1
    assert case.trial({}, steps=40).pairs > 1
    with pytest.raises(ValueError, match="pairs must be a whole number"):
        case.trial({}, pairs=0)
