"""What the report says, and that nothing it is fed can break it or its page."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest

from gpu_doctor.diagnosis import Diagnosis, diagnose, source_lines
from gpu_doctor.diagnosis.as_text import WIDTH
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.silent_rules import Silence
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.diagnosis.words import anatomy_rows
from gpu_doctor.recording import DeviceSetup, LineCost, Metric, Recording, Series, Setup, Steps
from gpu_doctor.report import as_text
from gpu_doctor.report.runs import rows
from gpu_doctor.report.sections import Reported
from gpu_doctor.trials.compare.effect import Effect, compare
from tests.support.html_page import HOSTILE, Page
from tests.support.recordings import CPU, on_gpu, starved

SOURCE = """\
loader = DataLoader(dataset, batch_size=128, shuffle=True)
for step, (x, y) in enumerate(loader):
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    running += loss.item()
    if step % 100 == 0:
        print(step, running)
"""
LINES = (
    LineCost("<cell>", 2, "<module>", "for step, (x, y) in enumerate(loader):", "data_wait", 0.12),
    LineCost("/home/me/data.py", 41, "__getitem__", "image = decode(path)", "data_wait", 0.59),
    LineCost("<cell>", 5, "<module>", "loss = criterion(model(x), y)", "forward", 0.08),
    LineCost("<cell>", 6, "<module>", "loss.backward()", "backward", 0.12),
    LineCost("<cell>", 7, "<module>", "optimizer.step()", "optimizer", 0.05),
)


def recording(gpu: bool = False, steps: int = 400, wait_s: float = 0.0293, workers: int = 0, **told: Any) -> Recording:
    return starved(gpu, steps, wait_s, workers, **{"lines": LINES, "source": SOURCE, "peak_bytes": 3.1 * 2**30, **told})


def diagnosed(one: Recording, **changes: object) -> Diagnosis:
    finding = Finding(
        "loader-without-workers",
        "The GPU waits for data 71 % of the time, with num_workers=0.",
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


def test_the_verdict_comes_first_and_everything_is_said() -> None:
    one = recording(gpu=True, overhead_s=0.06, notes=("One tap took itself off.",))
    fast = recording(gpu=True, steps=50, wait_s=0.001, workers=4)
    effects = (compare(recording(gpu=True, steps=50), fast, predicted=2.9),)
    page = Page(as_text.html(Reported(diagnosed(one), (one,), effects, title="my cell", notes=("Wrote runs/x.pt.",))))
    plain = as_text.text(Reported(diagnosed(one), (one,), effects))
    for said in (page.text, plain):
        for words in (
            "NVIDIA H200",
            "4 cores",
            "torch 2.13.0",
            "completed",
            "400 steps",
            "samples/s",
            "The GPU waits for data 71 % of the time",
            "predicted 2.9x (2.6-3.1)",
            "DataLoader(..., num_workers=4)",
            "data wait",
            "29.3 ms",
            "75 %",
            "num_workers=4",
            "faster",
            "3.1 GiB",
            "A batch takes 29.3 ms",
            "host-sync",
            "One tap took itself off.",
            "Measured on 399 steps; 1 step of warm-up",
            "overhead at least 0.4 %",
        ):
            assert words in said, words
        assert said.index("waits for data") < said.index("Anatomy of a step") < said.index("host-sync")
    assert "my cell" in page.text
    assert "Wrote runs/x.pt." in page.text
    assert "utilization %" in page.text
    assert "memory GiB" in page.text
    assert any(alt.startswith("loader latency ms per batch: wait mean 29.3 ms") for alt in page.alts)


def test_it_is_found_by_its_class_and_holds_nothing_a_sanitizer_strips() -> None:
    one = recording()
    html = as_text.html(Reported(diagnosed(one), (one,)))
    assert html.startswith('<div class="gpu-doctor-static"')
    assert not re.search(r"<(style|script|svg|iframe|link)|data-[a-z]+=|\son[a-z]+=|https?://", html)
    assert len(html) < 100_000


def test_without_a_gpu_none_is_invented() -> None:
    one = recording()
    diagnosis = diagnosed(one)
    for said in (Page(as_text.html(Reported(diagnosis, (one,)))).text, as_text.text(Reported(diagnosis, (one,)))):
        assert "no GPU: judging the CPU as the device" in said
        assert "H200" not in said
    head, row = re.findall(r"<tr.*?</tr>", as_text.html(Reported(diagnosis, (one,))))[:2]
    assert re.findall(r"<th.*?>([^<>]+)<", head)[6] == "CPU"
    assert re.findall(r"<td.*?>([^<>]+)<", row)[6] == "40 %"
    said = as_text.text(Reported(diagnose(one), (one,), (Effect({"num_workers": 2}, outcome="refused", reason="No."),)))
    assert "GPU" not in said.replace("gpu_doctor", "").replace("no GPU", "")


def test_hostile_text_stays_text() -> None:
    setup = dataclasses.replace(
        recording(gpu=True).setup, devices=(DeviceSetup(0, HOSTILE),), torch_version=HOSTILE, dtype=HOSTILE
    )
    metric = Metric("gpu_util_pct", HOSTILE, HOSTILE, "utilization", 0)
    one = recording(
        setup=setup,
        settings={HOSTILE: HOSTILE},
        series=(Series(metric, np.arange(3.0), np.arange(3.0)),),
        lines=(
            LineCost(HOSTILE, 1, HOSTILE, HOSTILE, HOSTILE, 0.5),
            LineCost("<cell>", 2, HOSTILE, SOURCE.splitlines()[0], HOSTILE, 0.2),
        ),
        source=HOSTILE + "\n" + SOURCE,
        outcome="failed",
        reason=HOSTILE,
        notes=(HOSTILE,),
    )
    finding = Finding(
        HOSTILE, HOSTILE, 0.5, (HOSTILE,), (Prescription(HOSTILE, Safety.BY_HAND, {}, HOSTILE, changes=HOSTILE),)
    )
    diagnosis = diagnosed(
        one, bottleneck=HOSTILE, verdict=HOSTILE, findings=(finding,), silent=(Silence(HOSTILE, HOSTILE),)
    )
    effects = (Effect({HOSTILE: HOSTILE}, {HOSTILE: 1}, outcome="failed", reason=HOSTILE), Effect(outcome=HOSTILE))
    html = as_text.html(Reported(diagnosis, (one,), effects, title=HOSTILE, notes=(HOSTILE,)))
    page = Page(html)
    assert "<script>alert('x')</script>" in page.text
    for said in (html, as_text.text(Reported(diagnosis, (one,), effects))):
        said.encode()
        assert not re.search("[\x00\x1b\u202e\ud800]", said)


@pytest.mark.parametrize(
    "one",
    [
        Recording(Steps.of(wall_s=[])),
        Recording(Steps.of(wall_s=[]), outcome="failed", reason="KeyError: 'x'"),
        Recording(Steps.of(wall_s=[0.01])),
        Recording(Steps.of(wall_s=np.full(30, np.nan))),
        starved(steps=5, series=(Series(CPU, np.empty(0), np.empty(0)),)),
    ],
    ids=["no steps", "failed", "one step", "nothing measured", "no readings"],
)
def test_a_poor_recording_is_reported_without_inventing(one: Recording) -> None:
    diagnosis = Diagnosis("unknown", "No training step was seen.", (), (), measure(one), early=True)
    page = Page(as_text.html(Reported(diagnosis, (one,))))
    plain = as_text.text(Reported(diagnosis, (one,)))
    for said in (page.text, plain):
        assert "No training step was seen." in said
        assert "nan" not in said.lower().replace("nan or", "")
        if one.reason:
            assert "failed: KeyError: 'x'" in said


def test_the_diagnosed_run_is_the_one_that_is_drawn() -> None:
    first, second = recording(steps=100), recording(steps=60, wait_s=0.001, workers=4)
    page = Page(as_text.html(Reported(diagnosed(first), (first, second))))
    assert "100 steps" in page.text
    assert "num_workers=4" in page.text
    assert "wait mean 29.3 ms" in page.text
    assert "wait mean 1.00 ms" in Page(as_text.html(Reported(diagnosed(second), (first, second)))).text


def test_text_and_page_have_the_same_runs_in_their_table() -> None:
    first, second = recording(), recording(settings={"num_workers": 2})
    told = Reported(diagnosed(second), (first, second), (Effect({"num_workers": 4}, outcome="refused", reason="No."),))
    for said in (as_text.text(told), Page(as_text.html(told)).text):
        assert said.index("baseline") < said.index("run 1") < said.index("trial 1")


def test_lines_stand_beside_the_source_only_where_they_are_its_lines() -> None:
    one = recording()
    page = Page(as_text.html(Reported(diagnosed(one), (one,))))
    assert re.search(r"██ *data wait *for step, \(x, y\)", page.text)
    assert re.search(r"Elsewhere: data.py *41 *59 % *█+ *data wait *image = decode\(path\) in __getitem__", page.text)
    moved = dataclasses.replace(one, source="import torch\n" + SOURCE)
    assert (
        "██"
        not in Page(as_text.html(Reported(diagnosed(moved), (moved,))))
        .text.split("line by line")[1]
        .split("Elsewhere")[0]
    )


def test_lines_inside_workers_are_shares_of_the_fetch_and_other_cells_are_named() -> None:
    cell, earlier = "/tmp/ipykernel_7/11.py", "/tmp/ipykernel_7/22.py"
    own = SOURCE.splitlines()
    lines = (
        LineCost(cell, 2, "<module>", own[1], "data_wait", 0.5),
        LineCost(cell, 5, "collate", own[4].strip(), "data_wait", 0.25, in_worker=True),
        LineCost(earlier, 5, "__getitem__", "y = self.decode(index)", "data_wait", 0.62, in_worker=True),
        LineCost("/a/x/data.py", 3, "f", "f()", "other", 0.04),
        LineCost("/a/y/data.py", 4, "g", "g()", "other", 0.03),
    )
    said = Page(source_lines.body(SOURCE, lines)).text
    assert re.search(r"2 *50 % *█+ data wait", said)
    assert re.search(r"5 *25 % *█+ in worker, share of the fetch", said)
    other = said.split("Elsewhere: ")[1:]
    assert [one.split("data.py")[0] for one in other[1:]] == ["x/", "y/"]
    assert other[0].startswith("another cell")
    assert "62 %" in other[0] and "in worker, share of the fetch" in other[0] and "in __getitem__" in other[0]
    assert "in worker" not in other[1]


def test_a_hint_that_leads_promises_nothing() -> None:
    one = on_gpu(tensor_active=0.0).recording()
    reported = Reported(diagnose(one), (one,))
    for said in (as_text.text(reported), Page(as_text.html(reported)).text):
        assert "Worth a trial: Train with bfloat16" in said and "Try: " not in said
    assert "Try: Load with" in as_text.text(Reported(diagnose(starved()), (starved(),)))


def test_many_silent_rules_are_one_line_a_reason() -> None:
    many = tuple(Silence(f"rule-{n}", "no GPU") for n in range(25))
    silent = (Silence("alone", "no step was timed"), *many, Silence("broken", "failed: KeyError: 'x'"))
    diagnosis = diagnosed(recording(), silent=silent)
    lines = as_text.text(Reported(diagnosis)).split("Not judged on this machine\n")[1].split("\n\n")[0].splitlines()
    assert [line.split(":")[0].strip() for line in lines] == ["failed", "no GPU", "no step was timed"]
    assert re.search(r"no GPU: 25 causes, rule-0, .* and \d+ more$", lines[1])
    assert all(len(line) <= WIDTH for line in lines)
    html = as_text.html(Reported(diagnosis))
    assert "<summary>no GPU: 25 causes</summary>" in html
    assert "rule-24" in Page(html).text


GROWTH = Finding(
    *("memory-growth", "Memory grows by 23 KiB a step.", None),
    risk="The memory is full after 340 more steps.",
    kind="hint",
)


def test_a_risk_is_marked_with_what_will_happen_and_has_no_price() -> None:
    one = recording()
    both = dataclasses.replace(diagnosed(one), hints=(GROWTH,))
    for said in (Page(as_text.html(Reported(both, (one,)))).text, as_text.text(Reported(both, (one,)))):
        assert re.search(r"memory-growth.{1,3}⚠ risk", said)
        assert "⚠ The memory is full after 340 more steps." in said
        assert not re.search(r"memory-growth\W+0 %", said)


def test_the_kinds_of_findings_are_distinguished() -> None:
    one = recording()
    bound = Finding("launch-bound", "Launch-bound: at most 21 % to gain.", 0.21, kind="at-most")
    hint = Finding("full-precision", "It computes in float32: bf16 is worth a trial.", None, kind="hint")
    found = dataclasses.replace(diagnosed(one), findings=(*diagnosed(one).findings[:1], bound), hints=(hint,))
    for said in (Page(as_text.html(Reported(found, (one,)))).text, as_text.text(Reported(found, (one,)))):
        flat = " ".join(said.split())
        assert re.search(r"1\.? [a-z-]+,? lost \d+ %", flat) and re.search(r"2\.? launch-bound,? at most 21 %", flat)
        assert re.search(r"full-precision,? worth a trial", flat)


@pytest.mark.parametrize("outcome", ["failed", "refused", "out-of-memory"])
def test_a_side_that_failed_has_no_loss_beside_another(outcome: str) -> None:
    effect = Effect({"amp": "fp16"}, outcome=outcome, reason="Why.", candidate_loss=2.3, loss_drift=0.0)
    assert rows((), (effect,))[0].cells[-1].text == "-"


def test_the_overhead_of_a_run_without_steps_is_not_stated() -> None:
    one = Recording(Steps.of(wall_s=[]), duration_s=0.1, overhead_s=0.05)
    assert "overhead" not in as_text.text(Reported(diagnose(one), (one,)))


ENDED = Finding("out-of-memory", "No memory.", None, risk="The same settings will fail again.", kind="hint")
UNUSED = Setup(device="cpu", devices=(DeviceSetup(0, "NVIDIA T4"),))


@pytest.mark.parametrize(
    ("one", "changes", "said"),
    [
        (recording(steps=12), {"early": True}, "(early: 11 measured steps)"),
        (recording(outcome="interrupted"), {}, "interrupted · "),
        (recording(setup=UNUSED), {}, "an NVIDIA T4, but the loop does not use it"),
        (
            recording(outcome="out-of-memory", reason="CUDA out of memory."),
            {"findings": (ENDED,)},
            "out-of-memory, ⚠ ended the run",
        ),
    ],
    ids=["an early verdict", "an interrupted run", "a GPU that is not used", "a risk of a run that ended is none"],
)
def test_what_is_particular_to_a_run_is_said(one: Recording, changes: dict[str, Any], said: str) -> None:
    assert said in " ".join(as_text.text(Reported(diagnosed(one, **changes), (one,))).split())


def test_the_first_thing_to_try_is_written_out_once() -> None:
    cures = (
        Prescription("Load with 4 workers", Safety.SAFE, {"num_workers": 4}, "DataLoader(..., num_workers=4)"),
        Prescription("Store the files in shards", Safety.BY_HAND, code="shards = pack(files)"),
    )
    one = Finding("slow-storage", "The CPU waits for a disk 50 % of the time.", 0.5, ("seen",), cures)
    found = dataclasses.replace(diagnose(starved()), findings=(one,), hints=(), verdict=one.headline)
    said = as_text.text(Reported(found))
    assert said.count(cures[0].code) == 1 and said.count(cures[1].text) == 1
    assert f"> {cures[0].text} (see above)" in said
    assert said.count(found.verdict) == 1 and "1. slow-storage, lost 50 %\n" in said
    shown = as_text.html(Reported(found))
    assert shown.count(cures[0].code) == 1 and f"<b>{cures[0].text}</b> (see above)" in shown


def test_what_rounding_leaves_of_other_is_no_phase() -> None:
    diagnosis = diagnose(starved())
    assert "e-1" not in as_text.text(Reported(diagnosis))
    assert min(share for _, share, _ in anatomy_rows(diagnosis.vitals)) > 1e-3
