"""What a case does about what ails it: treatment, sweeps over a grid, and its cells with the cure written in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials import arguments, cell_code, knobs

if TYPE_CHECKING:
    from gpu_doctor.cell.fix import Fix
    from gpu_doctor.trials.case import Case
    from gpu_doctor.trials.executors import Executor
    from gpu_doctor.trials.sweep import Sweep
    from gpu_doctor.trials.treat import Plan

TRIAL_STEPS: Final = 50
TRIAL_SECONDS: Final = 60.0
SWEEP_TRIALS: Final = 32
"""Combinations that a sweep takes unasked: half an hour of trials at worst."""


class Curing:
    """The part of a case that turns trials into a cure."""

    def treat(
        self,
        max_trials: int = 8,
        *,
        steps: int = TRIAL_STEPS,
        seconds: float = TRIAL_SECONDS,
        changes_training: bool = False,
        executor: Executor | None = None,
    ) -> Plan:
        """Climbs to better settings: see `treatment.treat`.

        `executor` says where the trials run: None = in this kernel, or such as `gpu_doctor.RayExecutor()`.
        An interrupt (KeyboardInterrupt) leaves the plan so far as the newest of `plans`, once the code as
        written was measured.
        """
        from gpu_doctor.trials.treat import treat  # stands on Case, so it is met here

        arguments.whole(max_trials, "max_trials", 8)
        case = cast("Case", self)
        allowed = arguments.switch(changes_training, "changes_training")
        where = arguments.executor(executor)
        case.stopped = False
        return treat(case, max_trials, steps=steps, seconds=seconds, changes_training=allowed, executor=where)

    def sweep(
        self,
        grid: Mapping[str, Sequence[SettingValue]],
        *,
        steps: int = TRIAL_STEPS,
        seconds: float = TRIAL_SECONDS,
        executor: Executor | None = None,
        max_trials: int = SWEEP_TRIALS,
    ) -> Sweep:
        """Tries every combination of a grid such as `{"num_workers": [0, 2, 4], "batch_size": [32, 64]}`.

        See `sweep.sweep`; `executor` says where the trials run, None = in this kernel. An interrupt leaves what was
        tried until then as the newest of `sweeps`.
        """
        from gpu_doctor.trials.sweep import sweep  # stands on Case, so it is met here

        arguments.whole(max_trials, "max_trials", SWEEP_TRIALS)
        where = arguments.executor(executor)
        return sweep(cast("Case", self), grid, steps=steps, seconds=seconds, executor=where, max_trials=max_trials)

    def code(self, settings: Settings) -> str:
        """The lines to paste for some settings, one block a knob.

        Raises:
            Refused: if a name is no knob, or a value none that it has.
        """
        case = cast("Case", self)
        return cell_code.lines_to_paste(case._meant(settings), case.found, case.source)

    def fix(self, settings: Settings, history: Sequence[str] | None = None) -> Fix:
        """The change of the user's own cells that gives them some settings: see `casecode.fix_of`."""
        case: Any = self
        return cell_code.fix_of(case, self._meant(settings), history, case._code)

    def _meant(self, settings: Settings) -> dict[str, SettingValue]:
        given = knobs.as_settings(settings)
        knobs.meant(given, cast("Case", self).found or Setup())
        return given
