"""What every framework's program must stand: counts, seconds and weights as by hand, the planted cause, trials."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gpu_doctor
from gpu_doctor.capture import patching
from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.recording import PHASES, Recording, Steps
from gpu_doctor.recording.steps import TRAINING
from gpu_doctor.trials.rounds import silence
from tests.support.programs import BATCH, EPOCHS, EVERY, TRAIN, Hand, Plan, Program
from tests.support.shells import notebook_shell, ran, with_the_magic

SLOW_ITEM_S = 0.002
STEPS_A_PASS = math.ceil(math.ceil(TRAIN / BATCH) / EVERY)


def trained(recording: Recording) -> Steps:
    """The training steps of a recording."""
    return recording.steps.where(recording.steps.kind == TRAINING)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Progress bars and tables are swallowed."""
    with silence():
        yield


class Checks:
    """All checks of one program; a framework's test class names the program."""

    program: Program
    samples = TRAIN
    """Samples of an epoch; the last batch is a smaller one."""
    trial_refused = ""
    """Words of the sentence with which a trial is refused; empty = it runs."""

    @pytest.fixture(autouse=True)
    def _one_thread(self) -> None:
        torch.set_num_threads(1)

    def bare(self, plan: Plan) -> torch.nn.Module:
        """The program as it is."""
        with quiet():
            return self.program(plan)

    def watched(self, plan: Plan) -> tuple[torch.nn.Module, Any]:
        """The program under a case; what it trained, and the case."""
        made: list[torch.nn.Module] = []
        program = self.program
        case = gpu_doctor.case(lambda: made.append(program(plan)))
        with quiet():
            case.run()
        return made[0], case

    def under_the_magic(self, plan: Plan) -> tuple[torch.nn.Module, Any]:
        """The program in a cell of a notebook, with the one line above it; what it trained, and the case."""
        with with_the_magic(notebook_shell()) as shell:
            shell.user_ns |= {"program": self.program, "plan": plan}
            result, _, _, outputs = ran(shell, "%%gpudoctor --no-view\ntrained = program(plan)")
            assert result.success, result.error_in_exec
            assert "gpu-doctor-static" in outputs[-1].data["text/html"]
            return shell.user_ns["trained"], gpu_doctor.last_case()

    def test_counts_weights_and_nothing_left(self, tmp_path: Path) -> None:
        """Under the magic: steps, samples and weights as bare; the framework runs on bare afterwards."""
        first, case = self.under_the_magic(Plan(samples=self.samples, folder=str(tmp_path / "watched")))
        assert patching.active() == ()
        by_hand = Hand()
        second = self.bare(Plan(by_hand, samples=self.samples, folder=str(tmp_path / "bare")))
        assert all(
            torch.equal(one, other)
            for one, other in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
        )
        recording = case.recordings[0]
        steps = trained(recording)
        assert recording.outcome == "completed"
        # Beside busy neighbours a loop of milliseconds takes seconds, and then a note says what recording costs.
        assert not [note for note in recording.notes if not note.startswith("Recording takes")]
        assert by_hand.steps == STEPS_A_PASS * EPOCHS
        assert by_hand.samples == self.samples * EPOCHS
        assert steps.count.sum() == by_hand.steps
        assert steps.samples.sum() == by_hand.samples
        assert case.diagnosis.vitals.steps == by_hand.steps
        assert case.diagnosis.vitals.samples == by_hand.samples
        roles = {one.dataset_len: one.role for one in recording.setup.loaders}
        assert roles[self.samples] == "training"
        assert all(role == "evaluation" for size, role in roles.items() if size != self.samples)

    def test_phases_hold_what_was_slept_in_them(self, tmp_path: Path) -> None:
        """Each phase under the magic against the parts' own timers, and all phases against the wall.

        The timers stand inside of the phases, so a phase told is never shorter but by our own time: torch's hooks call
        us within a step that calls its base class' own. Since the phases add up to the wall, what is billed to the
        wrong one is missing in the right one. This holds however busy the machine is.
        """
        plan = Plan(samples=self.samples, folder=str(tmp_path))
        _, case = self.under_the_magic(plan)
        steps = case.recordings[0].steps
        parts = {phase: np.nan_to_num(getattr(steps, f"{phase}_s")) for phase in (*PHASES, "other", "ours")}
        np.testing.assert_allclose(sum(parts.values()), steps.wall_s, rtol=1e-6)
        # The model is looked for in the first step: its forward is not heard yet, and what was pulled before it is.
        seconds, first = plan.hand.seconds, plan.hand.first
        least = {phase: seconds[phase] - first[phase] for phase in ("forward", "backward", "optimizer")}
        told = {phase: float(parts[phase][1:].sum()) for phase in least}
        least |= {"data_wait": seconds["data_wait"], "evaluation": seconds["evaluated"] - first["evaluated"]}
        told |= {phase: float(parts[phase].sum()) for phase in ("data_wait", "evaluation")}
        assert min(least.values()) > 0
        ours_s = float(parts["ours"][1:].sum())
        short = {phase: (least[phase], told[phase]) for phase in least if told[phase] < least[phase] - ours_s}
        assert not short, f"{short}, {ours_s} s of our own"

    def test_a_slow_getitem_is_named(self, tmp_path: Path) -> None:
        """2 ms a sample without workers: the cause, its line, the rule, and that two workers are forecast to help."""
        _, case = self.watched(sick(str(tmp_path)))
        diagnosis = case.diagnosis
        assert diagnosis.bottleneck == "input"
        waits = [line for line in case.recordings[0].lines if line.phase == "data_wait"]
        assert waits[0].function == "__getitem__", waits
        assert diagnosis.findings, str(diagnosis)
        assert diagnosis.findings[0].rule == "loader-without-workers", str(diagnosis)
        told = forecast(diagnosis.vitals, {"num_workers": 2})
        assert told is not None
        assert told.speedup > 1

    def test_a_trial_runs_and_leaves_nothing(self, tmp_path: Path) -> None:
        """Two workers are tried on 20 steps, everything made in the function itself; it runs on bare afterwards."""
        program = self.program
        case = gpu_doctor.case(lambda: program(sick(str(tmp_path))))
        with quiet():
            effect = case.trial({"num_workers": 2}, steps=20, seconds=30, pairs=1)
        assert patching.active() == ()
        assert effect.outcome in ("completed", "budget-reached"), (effect.outcome, effect.reason)
        assert effect.speedup is not None
        loaders = [one.setup.training_loader for one, _ in case.trials]
        assert all(one is not None and one.num_workers == 0 for one in loaders)
        assert all(one.fetches and max(f.workers for f in one.fetches) == 2 for _, one in case.trials)
        self.bare(Plan(folder=str(tmp_path / "after")))


def sick(folder: str, workers: int = 0) -> Plan:
    """50 batches of 8 samples of 2 ms, a step a batch, one epoch, nothing before it."""
    return Plan(Hand(), SLOW_ITEM_S, workers, 1, 1, 400, 8, folder, sanity=False)


class CellChecks(Checks):
    """Checks of a cell that only calls the framework: all it works on was made in cells before."""

    again_refused = ""
    """Words of the sentence that refuses a trial after a run to the end; empty = such a trial runs."""

    def cell(self, plan: Plan) -> tuple[str, dict[str, Any]]:
        """The cell's text and its namespace, with the trained model under `model`."""
        raise NotImplementedError

    def test_trials_of_a_cell_put_everything_back(self, tmp_path: Path) -> None:
        """Before and after the user's own run: weights are put back, nothing is written, or a sentence says why not."""
        code, space = self.cell(sick(str(tmp_path)))
        case = gpu_doctor.case(code, space)
        model = space["model"]
        for again in (False, True):
            before = {name: value.clone() for name, value in model.state_dict().items()}
            files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
            with quiet():
                effect = case.trial({"num_workers": 2}, steps=20, seconds=30, pairs=1)
            assert patching.active() == ()
            after = model.state_dict()
            assert all(torch.equal(value, after[name]) for name, value in before.items())
            assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == files
            if again and self.again_refused:
                assert effect.outcome == "refused"
                assert self.again_refused in effect.reason, effect.reason
            else:
                assert effect.outcome in ("completed", "budget-reached"), (effect.outcome, effect.reason)
                assert effect.speedup is not None
            if not again:
                with quiet():
                    assert trained(case.run()).count.sum() == 50
                assert case.diagnosis is not None
                assert case.diagnosis.bottleneck == "input"
