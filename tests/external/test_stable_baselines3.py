"""Stable-Baselines3: PPO collects rollouts with the policy it trains, and pulls from no loader."""

from __future__ import annotations

import importlib
import time
from typing import Any

import numpy as np
import torch

import gpu_doctor
from gpu_doctor.capture import patching
from tests.support.checks import quiet, trained

gymnasium = importlib.import_module("gymnasium")
PPO: Any = importlib.import_module("stable_baselines3").PPO

ROLLOUT, BATCH, PASSES, ROUNDS = 128, 32, 2, 4
STEPS = ROLLOUT // BATCH * PASSES * ROUNDS
MOVE_S = 0.002
UNHEARD = 2
"""Steps whose forward is not heard yet: training calls parts of the policy, which are looked for after so many."""


class Walk(gymnasium.Env):  # type: ignore[name-defined]
    """A walk on a line; each move is slept for."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """To the middle."""
        super().reset(seed=seed)
        self.moves, self.at = 0, np.zeros(4, np.float32)
        return self.at, {}

    def step(self, action: Any) -> Any:
        """To the left or to the right."""
        time.sleep(MOVE_S)
        self.moves += 1
        noise = self.np_random.normal(size=4) / 100
        self.at = np.clip(self.at + 0.1 * (2 * action - 1) + noise, -1, 1).astype(np.float32)
        return self.at, float(self.at[0]), self.moves >= 50, False, {}


class Timed(PPO):
    """PPO that notes when each optimizer step began."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.stepped_at: list[float] = []
        super().__init__(*args, **kwargs)
        self.policy.optimizer.register_step_pre_hook(lambda *_: self.stepped_at.append(time.perf_counter()))


def learned() -> Any:
    """A model as its manual shows it, trained."""
    model = Timed("MlpPolicy", Walk(), n_steps=ROLLOUT, batch_size=BATCH, n_epochs=PASSES, seed=3, device="cpu")
    return model.learn(ROLLOUT * ROUNDS)


def test_counts_weights_rollouts_and_nothing_left() -> None:
    """Steps and weights as bare; rollouts are told as such, with the cure for an environment at a time."""
    made: list[Any] = []
    case = gpu_doctor.case(lambda: made.append(learned()))
    with quiet():
        case.run()
    assert patching.active() == ()
    with quiet():
        bare = learned()
    watched = made[0].policy.state_dict()
    assert all(torch.equal(value, watched[name]) for name, value in bare.policy.state_dict().items())
    steps = trained(case.recordings[0])
    assert steps.count.sum() == STEPS
    assert np.nansum(steps.samples) >= (STEPS - UNHEARD) * BATCH
    assert set(steps.samples[UNHEARD:].tolist()) == {float(BATCH)}
    # The first rollout lies before the loop's first event. A later one is evaluation from its first forward to its last
    # one at least: all of its moves but the last. Nothing is heard around it but the optimizer steps before and after.
    told = float(steps.evaluation_s.sum())
    round_of = STEPS // ROUNDS
    around = [at[i] - at[i - 1] for at in [made[0].stepped_at] for i in range(round_of, STEPS, round_of)]
    assert MOVE_S * (ROLLOUT - 1) * (ROUNDS - 1) < told < sum(around)
    assert case.diagnosis is not None
    first = case.diagnosis.findings[0]
    assert any("time.sleep(MOVE_S)" in one for one in first.evidence), "what the environment itself takes is measured"
    finding = next(one for one in case.diagnosis.findings if one.rule == "heavy-evaluation")
    assert any("several environments" in cure.text for cure in finding.prescriptions)


def test_a_trial_puts_the_model_back() -> None:
    """Only the algorithm has a name: weights, optimizer, rollout buffer and environment are put back."""
    model = Timed("MlpPolicy", Walk(), n_steps=ROLLOUT, batch_size=BATCH, n_epochs=PASSES, seed=3, device="cpu")
    case = gpu_doctor.case(f"model.learn({ROLLOUT * 2})\n", {"model": model})
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    with quiet():
        effect = case.trial({"threads": 1}, steps=8, seconds=30, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), (effect.outcome, effect.reason)
    assert patching.active() == ()
    after = model.policy.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert model.num_timesteps == 0
    assert not model.policy.optimizer.state
