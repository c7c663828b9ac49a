"""What a diagnosis says: the class, one cause first, who was silent and why, and that it keeps still."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

import gpu_doctor
from gpu_doctor.diagnosis import Diagnosis, diagnose
from gpu_doctor.diagnosis.rules.evidence import line_text
from gpu_doctor.diagnosis.rules.rule import NAMING_BAR
from gpu_doctor.diagnosis.silent_rules import Silence
from gpu_doctor.diagnosis.verdict import verdict
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import LineCost, Recording, Steps
from gpu_doctor.recording.steps import INFERENCE
from gpu_doctor.report import as_text as report
from gpu_doctor.report.sections import Reported
from tests.support.costly_cell import SLEEPING
from tests.support.found import GPU_ONLY
from tests.support.recordings import Loop, line, on_gpu


def of(loop: Loop) -> Diagnosis:
    """The diagnosis of a loop's recording."""
    return diagnose(loop.recording())


def silence(diagnosis: Diagnosis, rule: str) -> str | None:
    """Why a rule was silent, None if it judged."""
    return next((one.reason for one in diagnosis.silent if one.rule == rule), None)


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        (Loop(), "compute"),
        (SLEEPING, "input"),
        (Loop(other=30.0), "host"),
        (Loop(other=0.0, loss=30.0), "compute"),
        (Loop(evaluation=30.0), "compute"),
        (Loop(transfer=30.0), "transfer"),
        (on_gpu(), "compute"),
        (on_gpu(wait=30.0, gpu_gap=30.0), "input"),
        (on_gpu(wait=30.0, gpu_gap=0.1, gpu_work=40.0), "compute"),
        (on_gpu(transfer=30.0, gpu_gap=30.0), "transfer"),
        (on_gpu(other=30.0, gpu_gap=30.0), "host"),
        (on_gpu(gpu_util=30.0, caught_up=1.0), "host"),
    ],
)
def test_the_class(loop: Loop, expected: str) -> None:
    assert of(loop).bottleneck == expected


def test_a_gpu_whose_clock_was_not_read_has_no_class() -> None:
    recording = on_gpu(wait=30.0).recording()
    blind = dataclasses.replace(
        recording, steps=dataclasses.replace(recording.steps, device_steps=recording.steps.kind)
    )
    diagnosis = diagnose(blind)
    assert diagnosis.bottleneck == "unknown"
    assert silence(diagnosis, "loader-without-workers") == "GPU timings are missing"


@pytest.mark.parametrize("nvml", [20.0, 98.0])
def test_the_devices_clock_says_whether_launches_limit_a_loop_and_nvml_does_not(nvml: float) -> None:
    assert of(on_gpu(caught_up=1.0, gpu_util=nvml)).bottleneck == "host"
    assert of(on_gpu(caught_up=0.0, gpu_util=nvml)).bottleneck == "compute"


def test_a_healthy_loop_is_told_so() -> None:
    diagnosis = of(Loop())
    assert not diagnosis.findings
    assert diagnosis.verdict.startswith("Compute-bound: 100 %") and "CPU is busy" in diagnosis.verdict


@pytest.mark.parametrize(("share", "healthy"), [(0.9, True), (0.89, False)])
def test_a_gpu_that_computes_nine_tenths_of_the_time_is_kept_busy(share: float, healthy: bool) -> None:
    shares: dict[str, Any] = dict.fromkeys(("loss_share", "backward_share", "optimizer_share", "evaluation_share"), 0.0)
    said = verdict("compute", [], [], dataclasses.replace(of(on_gpu()).vitals, forward_share=share, **shares))
    assert ("The GPU is busy" in said) is healthy


def test_a_loop_with_a_large_wait_is_not_called_compute_bound() -> None:
    # 45 % waiting that nothing here can shorten (no meter): compute is the largest part, but not all.
    recording = dataclasses.replace(Loop(wait=8.0).recording(), fetches=())
    assert "Compute-bound" not in diagnose(recording).verdict


def risky(verdict_of: Loop) -> Diagnosis:
    """The diagnosis of a loop in which memory grows as well."""
    vitals = measure(verdict_of.recording())
    grows: dict[str, Any] = {"host_growth_bytes_per_step": 5e6, "host_rise_bytes": 2e9, "host_steps_to_full": 340.0}
    return diagnose(dataclasses.replace(vitals, growth_past_first_epoch=True, **grows))


def test_a_line_of_another_cell_is_not_called_one_of_this_cell() -> None:
    source = "%%gpudoctor\nfor x in loader:\n    step(x)\n"
    here = LineCost("/tmp/ipykernel_1/2.py", 3, "<module>", "step(x)", "other", 0.3)
    there = dataclasses.replace(here, file="/tmp/ipykernel_1/1.py", text="return decode(index)", function="__getitem__")
    assert line_text(here, source) == "30 % at cell line 3 in <module>: step(x)"
    assert line_text(there, source) == "30 % at another cell's line 3 in __getitem__: return decode(index)"
    assert "at cell line 3" in line_text(there), "without a source nothing is known of it"


def test_no_wait_is_said_beside_a_finding_where_none_was_seen() -> None:
    dear, vitals = of(Loop(other=30.0)).findings[:1], of(Loop()).vitals
    for wait in (0.0, None):
        said = verdict("input", dear, [], dataclasses.replace(vitals, exposed_wait_share=wait))
        assert said == dear[0].headline


def test_a_wait_that_nothing_found_is_about_is_said_beside_the_dearest_finding() -> None:
    recording = dataclasses.replace(Loop(wait=12.0, other=4.0).recording(), fetches=())  # no meter: no input rule
    diagnosis = diagnose(recording)
    assert [one.rule for one in diagnosis.findings] == ["slow-python"]
    assert diagnosis.verdict.startswith(diagnosis.findings[0].headline)
    assert "Waiting for data costs more (46 %)" in diagnosis.verdict


def test_what_lies_between_the_phases_is_named_before_a_small_finding() -> None:
    """Pyro's SVI: its tracing took 46 %, and the verdict was a loader that took 6 %."""
    looks = (line("svi.step(x, y)", 0.4, in_torch=True),)
    diagnosis = diagnose(Loop(forward=3.0, backward=3.0, optimizer=3.0, other=6.0, lines=looks).recording())
    assert diagnosis.bottleneck == "host" and "svi.step(x, y)" in diagnosis.verdict


@pytest.mark.parametrize(("share", "told"), [(0.3, True), (0.05, False)])
def test_what_takes_a_tenth_of_the_run_before_its_first_step_is_a_note(share: float, told: bool) -> None:
    recording = Loop().recording()
    lasted_s = recording.duration_s / (1.0 - share)
    late = dataclasses.replace(recording.steps, start_s=recording.steps.start_s + share * lasted_s)
    read = dataclasses.replace(line("rows = read(path)", share), phase="before")
    found = diagnose(dataclasses.replace(recording, steps=late, duration_s=lasted_s, around=(read,)))
    assert any("before the first step" in one and "read(path)" in one for one in found.notes) is told
    assert not found.findings, "it is no part of a step"


def test_a_risk_alone_is_the_verdict_and_called_one() -> None:
    diagnosis = risky(Loop())
    assert not diagnosis.findings and [one.rule for one in diagnosis.hints] == ["memory-growth"]
    assert diagnosis.verdict.startswith("A risk: memory grows by ")
    assert diagnosis.bottleneck == "compute"


def test_a_risk_stands_after_what_costs() -> None:
    diagnosis = risky(SLEEPING)
    assert [len(diagnosis.findings), [one.rule for one in diagnosis.hints]] == [1, ["memory-growth"]]
    assert diagnosis.verdict == diagnosis.findings[0].headline


def test_findings_stand_dearest_first_and_above_the_bar() -> None:
    diagnosis = of(Loop(wait=20.0, fetch_cpu=1.0, other=30.0, evaluation=20.0))
    costs = [one.cost_share or 0.0 for one in diagnosis.findings]
    assert diagnosis.findings[0].rule == "slow-python" and len(costs) == 3
    assert costs == sorted(costs, reverse=True) and min(costs) >= NAMING_BAR


def test_no_step_at_all() -> None:
    diagnosis = diagnose(Recording(steps=Steps.of(wall_s=[])))
    assert diagnosis.bottleneck == "unknown" and "No training step was seen" in diagnosis.verdict


@pytest.mark.parametrize(("steps", "said"), [(1, "1 step was"), (4, "4 steps were"), (5, "4 steps were")])
def test_fewer_than_five_measured_steps_give_no_verdict(steps: int, said: str) -> None:
    diagnosis = of(SLEEPING.but(steps=steps))
    assert diagnosis.bottleneck == "unknown" and not diagnosis.findings and diagnosis.early
    assert diagnosis.verdict.startswith(f"Only {said} measured, too few for a verdict")


def test_early_below_twenty() -> None:
    few, enough = of(SLEEPING.but(steps=15)), of(SLEEPING.but(steps=40))
    assert few.early and few.findings[0].early
    assert not enough.early and not enough.findings[0].early


def closing(calls: int, *wall_s: float) -> Recording:
    """Steps that call a closure so often, and wait for data half of the time."""
    wall = np.array(wall_s)
    parts = {"data_wait_s": wall / 2, "forward_s": wall / 4, "backward_s": wall / 4}
    return Recording(steps=Steps.of(wall_s=wall, closures=np.full(len(wall), float(calls)), **parts))


def test_a_few_long_steps_are_judged_by_the_calls_of_their_closure() -> None:
    found = diagnose(closing(20, 5.0, 5.0, 5.0))
    assert found.bottleneck == "input" and not found.early
    assert diagnose(closing(3, 5.0, 5.0)).bottleneck == "input" and diagnose(closing(3, 5.0, 5.0)).early
    # Lightning hands each step a closure, that is called once: three steps are three.
    for calls in (0, 1):
        assert "too few for a verdict" in diagnose(closing(calls, 5.0, 5.0, 5.0)).verdict
    assert "too few for a verdict" in diagnose(closing(4, 5.0)).verdict


def test_of_a_few_long_steps_one_that_compiled_first_is_warm_up() -> None:
    assert measure(closing(20, 30.0, 5.0, 5.0)).warmup_steps == 1
    assert measure(closing(20, 8.0, 5.0, 5.0)).warmup_steps == 0
    assert measure(closing(1, 30.0, 5.0, 5.0)).warmup_steps == 0


ON_A_CPU = (Loop(), SLEEPING, Loop(other=30.0), Loop(transfer=30.0), Loop(has_loader=False))


@pytest.mark.parametrize("rule", GPU_ONLY)
def test_a_rule_about_a_gpu_says_that_there_is_none(rule: str) -> None:
    heard = dataclasses.replace(Loop().recording(), chores=())
    assert [silence(of(loop), rule) for loop in ON_A_CPU] == ["no GPU"] * len(ON_A_CPU)
    assert silence(diagnose(heard), rule) == "no GPU"


def test_no_other_rule_says_so() -> None:
    assert {one.rule for one in of(Loop()).silent if one.reason == "no GPU"} == set(GPU_ONLY)


def test_nothing_of_a_gpu_is_invented_without_one() -> None:
    for loop in ON_A_CPU:
        diagnosis = of(loop)
        said = [diagnosis.verdict, *(text for one in diagnosis.findings for text in (one.headline, *one.evidence))]
        assert not any("GPU" in text for text in said)


def test_a_loop_without_a_loader_says_so() -> None:
    assert "uses no DataLoader" in (silence(of(Loop(has_loader=False)), "loader-without-workers") or "")


@pytest.mark.parametrize(
    "comment",
    [
        "# gpudoctor: ignore loader-without-workers",
        "x = 1  #gpudoctor:ignore slow-python, loader-without-workers",
        "# gpudoctor: ignore loader_without_workers",
        "# gpudoctor: ignore loader-without-workers because the disk is slow today",
        "# gpudoctor: ignore slow-python loader-without-workers: slow-collate is one on purpose",
        "# gpudoctor: ignore: `loader-without-workers` (throttled)",
        "# GPUdoctor: ignore slow-python and loader-without-workers.",
    ],
)
def test_the_cell_may_hush_a_rule(comment: str) -> None:
    diagnosis = of(SLEEPING.but(source=f"for x in loader:\n    pass\n{comment}\n"))
    assert all(one.rule != "loader-without-workers" for one in diagnosis.findings)
    assert Silence("loader-without-workers", "ignored by a comment in the cell") in diagnosis.silent
    assert not diagnosis.notes
    hushed = {one.rule for one in diagnosis.silent if one.reason == "ignored by a comment in the cell"}
    assert hushed <= {"loader-without-workers", "slow-python"}


@pytest.mark.parametrize(
    ("comment", "note"),
    [
        (
            "ignore loader-without-worker",
            "rule loader-without-worker. Did you mean loader-without-workers?",
        ),
        (
            "ignore slow-python, loader_without_wrokers",
            "rule loader-without-wrokers. Did you mean loader-",
        ),
        (
            "ignore slow-python loader-without-wrokers",
            "rule loader-without-wrokers. Did you mean loader-",
        ),
        ("ignore slow-python, my-own-rule", "there is no rule my-own-rule"),
        ("ignore everything", "there is no rule everything."),
        ("ignore", "ignore` needs the name of a rule"),
    ],
)
def test_a_name_that_no_rule_has_is_said_once(comment: str, note: str) -> None:
    source = f"# gpudoctor: {comment}\nfor x in loader:\n    pass  # gpudoctor: {comment}\n"
    recording = SLEEPING.but(source=source).recording()
    diagnosis = diagnose(recording)
    assert diagnosis.findings[0].rule == "loader-without-workers"
    assert len(diagnosis.notes) == 1 and note in diagnosis.notes[0]
    for said in (
        str(diagnosis),
        report.text(Reported(diagnosis, (recording,))),
        report.html(Reported(diagnosis, [recording])),
    ):
        assert " ".join(said.split()).count(" ".join(note.split()[:6])) >= 1
    assert diagnosis.to_dict()["notes"] == list(diagnosis.notes)


def test_a_hushed_rule_is_listed_before_there_is_a_verdict() -> None:
    diagnosis = of(SLEEPING.but(steps=3, source="# gpudoctor: ignore slow-python, out-of-memory"))
    hushed = [one.rule for one in diagnosis.silent if one.reason == "ignored by a comment in the cell"]
    assert sorted(hushed) == ["out-of-memory", "slow-python"]
    assert "slow-python" in str(diagnosis)


def test_another_comment_hushes_nothing() -> None:
    assert of(SLEEPING.but(source="# ignore loader-without-workers")).findings[0].rule == "loader-without-workers"


def test_an_inference_loop_is_judged_by_its_batches() -> None:
    recording = SLEEPING.but(backward=0.0, optimizer=0.0).recording()
    kind = recording.steps.kind * 0 + INFERENCE
    diagnosis = diagnose(dataclasses.replace(recording, steps=dataclasses.replace(recording.steps, kind=kind)))
    assert diagnosis.bottleneck == "input" and diagnosis.findings[0].rule == "loader-without-workers"


def test_a_second_run_is_judged_by_its_own_figures() -> None:
    first, second = of(SLEEPING), of(Loop())
    assert first.findings and not second.findings
    assert of(SLEEPING) == first


FINDING_KEYS = {"rule", "kind", "cost_share", "headline", "risk", "evidence", "prescriptions"}


@pytest.mark.parametrize("loop", [Loop(), SLEEPING, on_gpu(transfer=5.0, gpu_gap=5.0, pageable=2.0)])
def test_to_dict_is_plain_versioned_json_with_what_the_panel_shows(loop: Loop) -> None:
    diagnosis = of(loop)
    again = json.loads(json.dumps(diagnosis.to_dict(), allow_nan=False))
    assert (again["version"], again["bottleneck"], again["verdict"]) == (1, diagnosis.bottleneck, diagnosis.verdict)
    for told, kept in ((again["findings"], diagnosis.findings), (again["hints"], diagnosis.hints)):
        assert [(one["rule"], one["kind"], one["cost_share"]) for one in told] == [
            (one.rule, one.kind, one.cost_share) for one in kept
        ]
        assert all(set(one) == FINDING_KEYS for one in told)
    assert {one["rule"] for one in again["silent"]} == {one.rule for one in diagnosis.silent}
    assert sum(one["share"] for one in again["anatomy"]) == pytest.approx(1.0)
    assert "setup" not in again["vitals"] and again["vitals"]["steps"] == diagnosis.vitals.steps


TRAINED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for x, y in DataLoader(TensorDataset(torch.ones(64, 4), torch.ones(64, 1)), batch_size=4):
    opt.zero_grad()
    nn.functional.mse_loss(net(x), y).backward()
    opt.step()
"""


def test_to_dict_of_a_real_run_is_plain_json() -> None:
    diagnosis = diagnose(gpu_doctor.case(TRAINED).run())
    again = json.loads(json.dumps(diagnosis.to_dict(), allow_nan=False))
    assert again["vitals"]["measured_steps"] == diagnosis.vitals.measured_steps > 5
    assert all(one is None or one == one for one in again["vitals"].values())
