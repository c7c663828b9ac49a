"""What every framework's program must stand: counts, seconds and weights as by hand, the planted cause, trials."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

import gpu_doctor
from gpu_doctor import patching
from gpu_doctor.forecast import forecast
from gpu_doctor.recording import PHASES, TRAINING, Recording, Steps
from gpu_doctor.rounds import silence
from tests.support.programs import BATCH, EPOCHS, EVERY, TRAIN, Hand, Plan, Program
from tests.support.shells import notebook_shell, ran, with_the_magic

ATTEMPTS = 6
"""Seconds on a busy machine are taken again: an error of ours is in the same phase every time. Counts are not."""
SHARE_OFF, SECONDS_OFF = 0.15, 0.0003
"""How far seconds may lie from those by hand: the larger of a share and of seconds a step."""
PASS_OFF_S = 0.001
BATCH_OFF_S = 0.0007
"""What `next` of torch's own iterator takes besides its fetch, on cold caches: 0.35 ms bare, 0.5 watched."""
SLOW_ITEM_S = 0.002
GAIN_OFF = 0.35
"""How far the forecast may lie from the clock on a shared machine of two cores, as in test_forecast_real."""
OTHERS_PCT = 25.0
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
    after_evaluation_s = 0.005
    """What may lie between an evaluation's end and the next thing that is heard, in all."""
    trial_refused = ""
    """Words of the sentence with which a trial is refused; empty = it runs."""

    @pytest.fixture(autouse=True)
    def _one_thread(self) -> Iterator[None]:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(before)

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
        assert not recording.notes
        assert by_hand.steps == STEPS_A_PASS * EPOCHS
        assert by_hand.samples == self.samples * EPOCHS
        assert steps.count.sum() == by_hand.steps
        assert steps.samples.sum() == by_hand.samples
        assert case.diagnosis.vitals.steps == by_hand.steps
        assert case.diagnosis.vitals.samples == by_hand.samples
        roles = {one.dataset_len: one.role for one in recording.setup.loaders}
        assert roles[self.samples] == "training"
        assert all(role == "evaluation" for size, role in roles.items() if size != self.samples)

    def test_phases_are_those_by_hand(self, tmp_path: Path) -> None:
        """Each phase under the magic against its own timers; the parts sum to the wall."""
        wrong: dict[str, str] = {}
        for attempt in range(ATTEMPTS):
            plan = Plan(samples=self.samples, folder=str(tmp_path / str(attempt)))
            _, case = self.under_the_magic(plan)
            off = self.off(plan.hand, case.recordings[0].steps)
            wrong = off if not attempt else {phase: off[phase] for phase in off if phase in wrong}
            if not wrong:
                return
        pytest.fail(str(wrong))

    def off(self, hand: Hand, steps: Steps) -> dict[str, str]:
        """The phases whose seconds are not those by hand."""
        parts = {p: np.nan_to_num(getattr(steps, f"{p}_s")) for p in (*PHASES, "other")}
        np.testing.assert_allclose(sum(parts.values()), steps.wall_s, rtol=0.01)
        # In the first step the model is searched for, and what lies before it counts as the pass over held-out data.
        later = {phase: float(seconds[1:].sum()) for phase, seconds in parts.items()}
        told = {phase: float(seconds.sum()) for phase, seconds in parts.items()}
        # The timers inside of the passes cover what is slept for: the layers and the engine around it take up to 1 ms a
        # step, and 20 ms where another program has the core. The typical step is compared.
        typical = {phase: float(np.median(parts[phase]) * len(steps)) for phase in ("forward", "backward")}
        passed = {phase: hand.seconds[phase] for phase in typical}
        around_s = PASS_OFF_S * hand.steps
        after = hand.seconds - hand.first
        next_s = hand.seconds["data_wait"] + BATCH_OFF_S * float(steps.batches.sum())
        bounds = {
            "data_wait": (told["data_wait"], hand.seconds["data_wait"], next_s, 0),
            "forward": (typical["forward"], passed["forward"], passed["forward"] + around_s, hand.steps),
            "backward": (typical["backward"], passed["backward"], passed["backward"] + around_s, hand.steps),
            "optimizer": (later["optimizer"], after["optimizer"], after["optimizer"], hand.steps),
            "evaluation": (later["evaluation"], after["evaluated"], after["evaluation"] + self.after_evaluation_s, 0),
            "evaluation in all": (told["evaluation"], hand.seconds["evaluated"], told["evaluation"], hand.steps),
        }
        off = {}
        for phase, (seconds, least, most, units) in bounds.items():
            assert least > 0, phase
            if not (1 - SHARE_OFF) * least <= seconds <= max((1 + SHARE_OFF) * most, most + SECONDS_OFF * units):
                off[phase] = f"{least * 1e3:.1f} to {most * 1e3:.1f} ms by hand, {seconds * 1e3:.1f} ms told"
        return off

    def test_a_slow_getitem_is_named_and_its_cure_priced(self, tmp_path: Path) -> None:
        """2 ms a sample without workers: the cause, its line, the rule, and the gain of two workers by the clock."""

        def plan(workers: int = 0) -> Plan:
            return sick(str(tmp_path), workers)

        took: dict[int, list[float]] = {0: [], 2: []}
        others = []
        _, case = self.watched(plan())
        diagnosis = case.diagnosis
        assert diagnosis.bottleneck == "input"
        waits = [line for line in case.recordings[0].lines if line.phase == "data_wait"]
        assert waits[0].function == "__getitem__", waits
        for _ in range(3):
            others.append(psutil.cpu_percent(interval=0.4))
            for workers, seconds in took.items():
                begin = time.perf_counter()
                self.bare(plan(workers))
                seconds.append(time.perf_counter() - begin)
        told = forecast(diagnosis.vitals, {"num_workers": 2})
        assert told is not None
        real = statistics.median(took[0]) / statistics.median(took[2])
        print(f"{type(self).__name__}: two workers predicted {told.speedup:.2f}x, measured {real:.2f}x, {others}")
        if statistics.median(others) > OTHERS_PCT:
            pytest.skip(f"other programs use {statistics.median(others):.0f} % of the cores")
        assert diagnosis.findings, str(diagnosis)
        assert diagnosis.findings[0].rule == "loader-without-workers", str(diagnosis)
        assert told.speedup == pytest.approx(real, rel=GAIN_OFF), took

    def test_a_trial_runs_and_leaves_nothing(self, tmp_path: Path) -> None:
        """Two workers are tried on 20 steps, everything made in the function itself; it runs on bare afterwards."""
        program = self.program
        case = gpu_doctor.case(lambda: program(sick(str(tmp_path))))
        with quiet():
            effect = case.trial({"num_workers": 2}, steps=20, seconds=30)
        assert patching.active() == ()
        assert effect.outcome in ("completed", "budget-reached"), (effect.outcome, effect.reason)
        assert effect.speedup is not None
        assert all(one.setup.training_loader.num_workers == 0 for one, _ in case.trials)
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
                effect = case.trial({"num_workers": 2}, steps=20, seconds=30)
            assert patching.active() == ()
            after = model.state_dict()
            assert all(torch.equal(value, after[name]) for name, value in before.items())
            assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == files
            if again and self.again_refused:
                assert effect.outcome == "refused"
                assert self.again_refused in effect.reason
            else:
                assert effect.outcome in ("completed", "budget-reached"), (effect.outcome, effect.reason)
                assert effect.speedup is not None
            if not again:
                with quiet():
                    assert trained(case.run()).count.sum() == 50
                assert case.diagnosis is not None
                assert case.diagnosis.bottleneck == "input"
