"""The programs of the corpus are well-formed, those in virtual time are judged right, and the score is what it says.

How right the diagnosis is on all of them is a benchmark (`make evaluate`), not a test: timings on shared cores are
noisy.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpu_doctor.diagnosis.rules import CAUSES
from gpu_doctor.diagnosis.rules.rule import Rule
from tests.support.found import GPU_ONLY
from tests.support.simulated_programs import SIMULATED
from tools.evaluate import score
from tools.evaluate.evaluator import SICK, Evaluation, evaluate
from tools.evaluate.program import CORPUS, UNSEEN, Program, Recorded, corpus, pasted, patched, programs, read
from tools.evaluate.timing import known

CLASSES = {"input", "transfer", "host", "compute", "memory", "communication", "unknown"}
FILES = (*programs(CORPUS), *programs(UNSEEN))


def test_there_are_enough_programs_and_enough_healthy_ones() -> None:
    names = [program.name for program in corpus()]
    assert len(names) >= 80 and len(set(names)) == len(names)
    assert sum(program.healthy for program in corpus()) >= 25


ON_A_GPU = {*GPU_ONLY, "model-on-cpu", "out-of-memory", "unsupported-architecture"}
"""Causes that take a GPU: the loops of `benchmarks/gpu` and of the unit tests of rules have them."""


@pytest.mark.parametrize("rule", [one for one in CAUSES if one.name not in ON_A_GPU], ids=lambda one: one.name)
def test_each_cause_that_needs_no_gpu_comes_first_in_a_program(rule: Rule) -> None:
    assert any(rule.name in program.causes for program in corpus()), f"write a program of {rule.name} for {CORPUS}"


@pytest.mark.parametrize("program", FILES, ids=lambda program: f"{program.group}/{program.name}")
def test_the_truth_of_a_program_is_whole(program: Program) -> None:
    assert set(program.classes) <= CLASSES
    if not program.unseen:
        assert (program.group,) == (("healthy",) if program.healthy else program.classes)
    assert {*program.causes, *program.never} <= {rule.name for rule in CAUSES} | {"broadcast-similarity"}
    assert program.why
    assert not (program.healthy and program.curable)
    assert program.predictable or not program.holdout
    for above, cell in (program.cells(), program.cells(program.settings, cured=True)):
        compile(above, "<above>", "exec")
        compile(cell, "<cell>", "exec")
    if program.cured is not None:
        assert program.cured != (program.above, program.cell)


def test_each_patch_has_its_program() -> None:
    patches = [*CORPUS.glob("*/*.patch"), *UNSEEN.glob("*/*.patch")]
    assert [path for path in patches if not path.with_suffix(".py").exists()] == []


def test_about_a_third_of_the_gains_is_held_out() -> None:
    predictable = [program for program in corpus() if program.predictable]
    held_out = [program for program in predictable if program.holdout]
    assert 0.25 * len(predictable) <= len(held_out) <= 0.5 * len(predictable)


def write(folder: Path, text: str) -> Path:
    """Writes a program and returns its path."""
    path = folder / "host" / "slow.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


TEXT = """\
# /// truth
# class = ["host", "input"]
# causes = ["slow-python"]
# limits = { shm_mib = 12 }
#
# why = "It sleeps."
# ///

# %%
import time

# %%
pause = 1

# %% diagnosed
time.sleep(pause)
"""


def test_a_program_is_read_with_its_patch(tmp_path: Path) -> None:
    path = write(tmp_path, TEXT)
    path.with_suffix(".patch").write_text(
        "--- a/x\n+++ b/x\n@@ -13,1 +13,1 @@\n-pause = 1\n+pause = 0\n", encoding="utf-8"
    )
    (program,) = programs(tmp_path)
    assert (program.name, program.group, program.why) == ("slow", "host", "It sleeps.")
    assert program.classes == ("host", "input") and program.limits is not None and program.limits.shm_mib == 12
    above = "# %%\nimport time\n\n# %%\npause = 1\n"
    assert program.cells() == (above, "time.sleep(pause)\n")
    assert program.cells(cured=True) == (above.replace("1", "0"), "time.sleep(pause)\n")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (TEXT.replace("# /// truth", "# truth"), ValueError),
        (TEXT.replace("# %% diagnosed", "# %%"), ValueError),
        (TEXT.replace("why", "because"), TypeError),
    ],
)
def test_a_program_that_is_written_wrongly_is_refused(text: str, error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error):
        read(write(tmp_path, text))


def test_a_diff_is_applied_where_it_says() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -2,2 +2,2 @@\n b\n-c\n+C\n@@ -5,1 +5,2 @@\n e\n+f\n"
    assert patched("a\nb\nc\nd\ne\ng\n", diff) == "a\nb\nC\nd\ne\nf\ng\n"
    with pytest.raises(ValueError, match="line 1 "):
        patched("b\n", "--- a/x\n+++ b/x\n@@ -1,1 +1,1 @@\n-a\n+c\n")


def test_settings_are_pasted_where_a_person_would_write_them() -> None:
    source = "a = DataLoader(data, batch_size=4, num_workers=2)\nb = torch.utils.data.DataLoader(data)\n"
    assert pasted(source, {"num_workers": 6, "persistent_workers": True}) == (
        "a = DataLoader(data, batch_size=4, num_workers=6, persistent_workers=True)\n"
        "b = torch.utils.data.DataLoader(data, num_workers=6, persistent_workers=True)"
    )
    assert pasted("opt = torch.optim.AdamW(p, foreach=False)", {"fused_optimizer": True}).endswith("(p, fused=True)")
    assert "set_num_threads(2)" in pasted("train()", {"threads": 2})
    assert pasted("torch.set_num_threads(16)", {"threads": 2}) == "torch.set_num_threads(2)"
    with pytest.raises(ValueError, match="no place for num_workers"):
        pasted("train()", {"num_workers": 2})
    apart = Program(name="a", group="b", classes=("compute",), above="opt = torch.optim.SGD(p)", cell="train()")
    above, cell = apart.cells({"fused_optimizer": True, "threads": 2})
    assert above.endswith("(p, fused=True)") and "set_num_threads(2)" in cell


@pytest.mark.parametrize("program", SIMULATED, ids=lambda program: program.name)
def test_a_simulated_program_is_judged_right(program: Recorded) -> None:
    found = evaluate(program)
    assert found.error == ""
    assert found.class_right, score.line(found)
    assert found.cause_right, score.line(found)


SICK_ONE = Evaluation("a", "input", "input", found_class="input", causes=("x",), findings=[("x", 0.5), ("y", 0.4)])
HEALTHY = Evaluation("b", "healthy", "compute", found_class="compute", healthy=True, findings=[("y", 0.09)])


def test_a_program_is_judged_by_its_first_finding_and_a_healthy_one_by_its_dearest() -> None:
    sick = replace(SICK_ONE, predicted=2.4, real=2.0)
    assert sick.class_right and sick.cause_right
    assert sick.error_share == pytest.approx(0.2)
    second = replace(sick, findings=sick.findings[::-1])
    assert not second.cause_right
    assert not replace(sick, found_class="host").class_right
    assert replace(sick, known_class="input|host", found_class="host").class_right
    assert HEALTHY.cause_right
    assert score.passed([HEALTHY]) and not score.passed([HEALTHY, second])
    alarm = replace(HEALTHY, findings=[("y", 0.11)])
    assert not alarm.cause_right
    assert "1 of 2" not in score.totals([second, alarm]).splitlines()[2]


@pytest.mark.parametrize(
    ("tried", "right"),
    [({"x": SICK}, True), ({"x": 1.05}, False), ({"x": None}, False), ({"x": 2.0, "y": None}, False), ({}, False)],
)
def test_what_is_found_on_an_unseen_healthy_program_is_right_where_it_gives_a_lot(
    tried: dict[str, float | None], right: bool
) -> None:
    found = replace(HEALTHY, unseen=True, tried=tried, findings=[(name, 0.2) for name in tried or {"x": None}])
    assert found.cause_right is right
    assert ("CAUSE" in score.line(found)) is not right


def test_an_unseen_program_is_judged_only_where_it_is_sick() -> None:
    weak = replace(SICK_ONE, unseen=True, real=1.1)
    assert not weak.judged and replace(weak, real=SICK).judged and replace(weak, unseen=False).judged
    assert "not judged, for they are not sick on this machine: a" in score.totals([weak])


def test_a_gain_that_wanders_is_timed_again_until_it_is_known() -> None:
    assert known([1.38], rounds=1)
    assert not known([2.0, 2.02])
    assert known([2.0, 2.02, 1.99])
    assert not known([1.38, 1.29, 1.95])
    assert known([1.38, 1.29, 1.95, 1.4, 1.37, 1.41, 1.4, 1.38])
    assert known([1.0, 2.0, 3.0] * 3)  # not to be known here: enough is enough


def test_the_predicted_ends_are_scored_by_the_gain_between_them_and_by_their_width() -> None:
    def found(low: float | None, high: float | None, real: float, trial: float | None = None) -> Evaluation:
        return replace(SICK_ONE, predicted=1.5, predicted_low=low, predicted_high=high, real=real, trial=trial)

    text = score.totals([found(1.0, 1.4, 1.3), found(1.2, 1.8, 1.9, trial=1.3), found(None, None, 1.5)])
    assert "gain inside band 1 of 2 (50 %)" in text and "median high/low  1.45" in text
    assert "of trials 20 %   1 of 1" in text
    again = Evaluation.from_plain(found(1.2, 1.8, 1.9, trial=1.3).plain())
    assert again == found(1.2, 1.8, 1.9, trial=1.3) and "BAND" in score.line(again)
