"""One piece of code under treatment: its runs, diagnosis, effects, and the plan that cures it.

A run is the user's: whole, in their namespace, exceptions untouched. A trial borrows the namespace: everything it can
reach is put back bit for bit afterwards, and baseline and candidate take turns (A B B A) from the same state. The trial
uses the namespace itself and not a copy of it, because functions of earlier cells read their globals there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpu_doctor import formatting
from gpu_doctor.capture import running
from gpu_doctor.diagnosis import judged
from gpu_doctor.recording import Recording, Settings, SettingValue
from gpu_doctor.recording.setup import Flops
from gpu_doctor.trials import arguments, flops, knobs, largest_batch, race, sweep, treat
from gpu_doctor.trials import run as trial
from gpu_doctor.trials.beforehand import Beforehand, beforehand, everything
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.executors import RayExecutor
from gpu_doctor.trials.knobs.knob import Refused
from gpu_doctor.trials.largest_batch import SECONDS as SEARCH_SECONDS
from gpu_doctor.trials.largest_batch import Memory
from gpu_doctor.trials.look.result import Look
from gpu_doctor.trials.plan import Plan
from gpu_doctor.trials.results import Largest, Sweep
from gpu_doctor.trials.rounds import MOST_PAIRS
from gpu_doctor.trials.runner import TRIAL_SECONDS, TRIAL_STEPS, Runner
from gpu_doctor.trials.searches import SWEEP_TRIALS

_last: list[Case] = []


class Case(Runner):
    """The history of one cell (or function): run it, try settings on it, let it be treated.

    Example:
        >>> import gpu_doctor
        >>> cell = '''
        ... import torch
        ... model = torch.nn.Linear(8, 1)
        ... optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ... for inputs in torch.utils.data.DataLoader(torch.rand(640, 8), batch_size=16):
        ...     optimizer.zero_grad()
        ...     model(inputs).mean().backward()
        ...     optimizer.step()
        ... '''
        >>> case = gpu_doctor.case(cell)
        >>> case.run().outcome
        'completed'
        >>> case.trial({"batch_size": 32}, steps=8, pairs=2).settings
        {'batch_size': 32}
    """

    def __init__(self, *code: Any, **how: Any) -> None:
        """Makes a case from the same arguments as `case` and `Runner`."""
        super().__init__(*code, **how)
        if running() is None:  # code inside a recorded run may make cases of its own
            _last[:] = [self]

    def __str__(self) -> str:
        """Returns the numbers of runs and trials, and the verdict."""
        done = f"{formatting.count(len(self.recordings), 'run')}, {formatting.count(len(self.effects), 'trial')}"
        verdict = self.diagnosis.verdict if self.diagnosis is not None else "Not run yet: .run() runs it."
        return f"{formatting.clean(self.name, 80)} ({done}): {formatting.clean(verdict)}"

    _repr_pretty_ = formatting.pretty

    def run(
        self, settings: Settings | None = None, *, steps: int | None = None, seconds: float | None = None
    ) -> Recording:
        """Runs the whole code in its namespace and records it.

        Args:
            settings: settings of the run; None or empty for the code as written.
            steps: number of steps after which the loop ends, without the code after it; None for no limit.
            seconds: time after which the loop ends, likewise; None for no limit.

        Returns:
            The recording, which is also the newest of `recordings`.

        Raises:
            Any exception of the code, unchanged, after the recording was stored.
            Refused: The loop does not support a setting.
            ValueError: `steps` or `seconds` is not positive.
            Busy: A run is already being recorded in this process.
        """
        __tracebackhide__ = True
        trial.check_budget(steps, seconds)
        result = self.once(knobs.as_settings(settings), "run", steps, seconds)
        if result.recording.outcome == "refused":
            raise Refused(result.recording.reason)
        self.recordings.append(result.recording)
        self.diagnosis, self.recordings[-1] = judged(result.recording, self.recordings[:-1])
        if self.job is not None and self.diagnosis is not None and not len(result.recording.steps):
            verdict = f"The cell trains in processes of its own. {self.job.head}: see the ranks below."
            self.diagnosis = replace(self.diagnosis, verdict=verdict)
        if result.error is not None:
            try:
                raise result.error
            finally:
                del result  # the error's traceback holds this frame: the cycle would keep the loop's memory alive
        return self.recordings[-1]

    def trial(
        self,
        settings: Settings,
        *,
        steps: int | None = None,
        seconds: float | None = None,
        pairs: int = MOST_PAIRS,
        against: Settings | None = None,
        allow: Collection[str] = (),
    ) -> Effect:
        """Tries settings against the code as written, from the same state, and restores everything.

        Args:
            settings: settings to try.
            steps: steps of each side of a pair; None for `trial_steps` of the case. Later pairs have more steps if
                these are too short to be judged, and fewer if they last long.
            seconds: time limit of the trial; None for `trial_seconds` of the case. Two pairs are made in any case,
                however long the code takes to set up; further pairs must end within the limit.
            pairs: largest number of pairs; fewer are made if the result is clear.
            against: settings of the baseline side; None for the code as written.
            allow: permissions for what the cell does again in each side, without which the trial is refused:
                `"processes"` starts processes, `"network"` opens connections, `"large_data"` changes data that is too
                large to copy.

        Returns:
            The effect, also the newest of `effects`. A refusal, a failure and an out-of-memory are outcomes of it.

        Raises:
            KeyboardInterrupt: if the trial is interrupted, after everything was put back; what it measured until then
                is the newest of `effects`.
            ValueError: if steps, seconds or pairs are not positive, or `allow` names what nobody can allow.
            Busy: if a run is already being recorded in this process.
        """
        budget = {"pairs": pairs, **self._budget_of(steps, seconds)}
        with self.requested(allow):
            return race.tried(self, settings, against=against, **budget)

    def measured(
        self, *, steps: int | None = None, seconds: float | None = None, allow: Collection[str] = ()
    ) -> Recording:
        """A recording of the code as written, made like a trial's side: everything is put back afterwards.

        Args:
            steps: its budget, as in `trial`.
            seconds: likewise.
            allow: likewise.

        Raises:
            KeyboardInterrupt: if it is interrupted.
            Refused: if no trial of the code may begin.
            SnapshotTooLarge: if what must be put back does not fit into memory.
            ValueError: if steps or seconds are not positive.
        """
        budget = self._budget_of(steps, seconds)
        trial.check_budget(**budget)
        with self.requested(allow):
            if refusal := beforehand(self).refusal:
                raise Refused(refusal)
            return self.measured_aside(**budget)[0]

    def beforehand(self, *, allow: Collection[str] = ()) -> Beforehand:
        """Returns the sentences to read before a trial; nothing is run, copied or changed.

        Args:
            allow: permissions of the trial, as in `trial`.

        Returns:
            `refusals`: why no trial may begin. `notes`: what a trial copies, or does differently from a run. `lost`:
            what cannot be restored, or is repeated and cannot be undone. `asks`: which refusals `allow` lifts. The
            panel shows the same sentences.
        """
        with self.permitted(allow):
            return everything(self)

    def treat(
        self,
        max_trials: int = 8,
        *,
        steps: int | None = None,
        seconds: float | None = None,
        changes_training: bool = False,
        allow: Collection[str] = (),
    ) -> Plan:
        """Finds better settings step by step, see `treat.treat`; `steps`, `seconds` and `allow` apply to each trial.

        After an interrupt (KeyboardInterrupt) the plan so far is the newest of `plans`, if the code as written was
        measured.
        """
        arguments.whole(max_trials, "max_trials", 8)
        allowed = arguments.switch(changes_training, "changes_training")
        budget = self._budget_of(steps, seconds)
        with self.requested(allow):
            return treat.treat(self, max_trials, changes_training=allowed, **budget)

    def sweep(
        self,
        grid: Mapping[str, Sequence[SettingValue]],
        *,
        steps: int | None = None,
        seconds: float | None = None,
        executor: RayExecutor | None = None,
        max_trials: int = SWEEP_TRIALS,
        allow: Collection[str] = (),
    ) -> Sweep:
        """Tries every combination of a grid such as `{"num_workers": [0, 2, 4], "batch_size": [32, 64]}` on Ray Tune.

        See `sweep.sweep`. `executor` names the cluster, such as `gpu_doctor.RayExecutor("auto")`; None starts Ray on
        this machine for the time of the sweep. `steps`, `seconds` and `allow` apply to each trial, as in `trial`. After
        an interrupt the combinations tried so far are the newest of `sweeps`.
        """
        arguments.whole(max_trials, "max_trials", SWEEP_TRIALS)
        where = arguments.executor(executor)
        budget = self._budget_of(steps, seconds)
        with self.requested(allow):
            return sweep.sweep(self, grid, executor=where, max_trials=max_trials, **budget)

    def _budget_of(self, steps: int | None, seconds: float | None) -> dict[str, Any]:
        """Returns the budget of a trial: the given values, or the case's defaults."""
        return {
            "steps": self.trial_steps if steps is None else steps,
            "seconds": self.trial_seconds if seconds is None else seconds,
        }

    def largest_batch(
        self, *, memory: Memory | None = None, seconds: float = SEARCH_SECONDS, allow: Collection[str] = ()
    ) -> Largest:
        """Finds the largest batch that fits, and the best batch for samples/s, in at most three trials.

        See `largest_batch.largest_batch`; `allow` applies to each trial, as in `trial`.
        """
        with self.requested(allow):
            self.largest = largest_batch.largest_batch(self, memory=memory, seconds=seconds)
            return self.largest

    def flops(self, *, steps: int = flops.STEPS, seconds: float = flops.SECONDS, allow: Collection[str] = ()) -> Flops:
        """Counts the operations of a step in a short trial; see `flops.counted`, and `trial` for `allow`.

        The newest run as written stores the count, so that its diagnosis has the operations per second and, on a card
        with a known peak, their share of it. What the trial could not restore, such as written files, is in that run's
        notes.
        """
        with self.requested(allow):
            found, left = flops.counted(self, steps, seconds)
        runs = self.recordings
        at = next((n for n in reversed(range(len(runs))) if not runs[n].settings), None)
        if at is not None:
            runs[at] = replace(runs[at], flops=found, notes=tuple(dict.fromkeys((*runs[at].notes, *left))))
            if at == len(runs) - 1:
                self.diagnosis, runs[at] = judged(runs[at])
        return found

    def look(self, steps: int = 5, *, seconds: float = 60.0, allow: Collection[str] = ()) -> Look:
        """Profiles a few steps with torch.profiler in a trial, to find the costliest operators and their callers.

        See `look.deep_look.look`; `allow` is the same as in `trial`.
        """
        from gpu_doctor.trials.look import deep_look  # imports the profiler

        with self.requested(allow):
            self.looked = deep_look.look(self, steps, seconds)
            return self.looked


def case(
    code: str | Callable[[], Any],
    namespace: dict[str, Any] | None = None,
    *,
    name: str = "",
    trial_steps: int = TRIAL_STEPS,
    trial_seconds: float = TRIAL_SECONDS,
    price: float | None = None,
) -> Case:
    """Makes a case for some code.

    Args:
        code: text of a cell, or a callable without arguments.
        namespace: namespace in which the text runs, such as `globals()`; None for a new one, or a callable's globals.
        name: name for the user.
        trial_steps: default steps of each side of a trial.
        trial_seconds: default time limit of a trial, in seconds.
        price: cost of this machine in dollars per hour, with which reports price losses and cures.

    Raises:
        SyntaxError: if the text does not compile.
        TypeError: if `code` is neither text nor a callable that needs no argument, `namespace` no dict, `name` no text.
        ValueError: if the text is empty, or a budget or the price is not positive.

    Example:
        >>> import gpu_doctor
        >>> case = gpu_doctor.case("import torch; loss = torch.ones(1, requires_grad=True).sum()", name="one sum")
        >>> case.run().name
        'one sum'
    """
    arguments.code(code)
    arguments.names(namespace, name)
    steps = arguments.whole(trial_steps, "trial_steps", TRIAL_STEPS)
    seconds = arguments.seconds(trial_seconds, "trial_seconds", int(TRIAL_SECONDS))
    hour = None if price is None else arguments.dollars(price, "price", 2.5)
    return Case(code, namespace, name=name, trial_steps=steps, trial_seconds=seconds, price=hour)


def last_case() -> Case | None:
    """The newest case of this process, such as that of the last `%%gpudoctor` cell; None before any.

    Example:
        >>> import gpu_doctor
        >>> made = gpu_doctor.case("total = sum(range(10))")
        >>> gpu_doctor.last_case() is made
        True
    """
    return _last[-1] if _last else None
