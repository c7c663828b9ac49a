"""The plan that a treatment arrived at: its settings, how each was measured, and the same in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from html import escape
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.cell import Fix
from gpu_doctor.formatting import clean
from gpu_doctor.labels import OUTCOME_LABELS
from gpu_doctor.recording import CLEAN, SettingValue, describe
from gpu_doctor.trials.compare.effect import AS_PASTED, BY_SETTINGS, Effect

_BAR: Final = 24
"""Characters of the longest bar in text."""


@dataclass(frozen=True)
class Rung:
    """One step of the waterfall: the settings added, their gain, and the speed with all settings so far."""

    label: str
    """`as written`, or the settings of the step, such as `num_workers=8`. The last trial has `all together`, or
    `measured again` if the plan has one step."""
    settings: Mapping[str, SettingValue]
    """Settings that this step added or changed; in the row of the last trial, all settings of the plan."""
    speedup: float
    """Samples/s with all settings so far over samples/s as written."""
    gain: float | None = None
    """Measured speed-up of this trial, candidate over baseline; None for the first row."""
    low: float | None = None
    """Lower end of the 95 % interval of `gain`."""
    high: float | None = None
    loss_verdict: str | None = None
    """Verdict on this trial's losses, as in `Effect`: same, different, not-finite; None if there is nothing to
    compare."""
    loss_first_step: int | None = None
    """First step (from 1) at which the losses differ."""
    losses: str = ""
    """Comparison of the losses in words, with the reason if they differ."""
    verified: str = ""
    """Way in which the last trial ran the plan, as in `Effect`; empty for the other rows."""


@dataclass(frozen=True)
class Step:
    """A bar of the waterfall, in words and as parts (0 to 1) of the longest bar."""

    label: str
    total: str
    """Speed-up with all settings so far, `2.31x`."""
    gain: str
    """Gain of this step with its interval, `x2.31 (2.1-2.5)`; empty for the first step."""
    before: float
    """Part of the longest bar before this step; for a step that lost speed, the part that remains after it."""
    added: float
    """Part that this step added; negative for a step that lost speed."""
    whole: bool = False
    """True if this is no further step, but all settings measured again against the code as written."""
    losses: str = ""
    """Comparison of the losses, `loss the same in every step`."""


@dataclass(frozen=True)
class Dropped:
    """A trial whose settings were dropped, with the reason."""

    label: str
    why: str


@dataclass(frozen=True)
class Plan:
    """The plan that `Case.treat` arrived at."""

    settings: Mapping[str, Any]
    """Settings of the plan, by knob."""
    speedup: float
    """Samples/s with these settings over samples/s as written, from the last trial. If that trial was stopped, the
    product of the steps' gains; `verified` is then empty."""
    effects: tuple[Effect, ...]
    """Effects of all trials, in order, including those of dropped settings."""
    code: str
    """Lines of code to paste."""
    fix: Fix = field(default_factory=Fix)
    """The user's own cells with the settings written in."""
    by_hand: tuple[str, ...] = ()
    """Advice that no knob can apply, for the costliest finding first."""
    reason: str = ""
    """Reason why nothing was tried; empty if something was."""
    waterfall: tuple[Rung, ...] = ()
    """Measured gains in the order of their trials, after the code as written (1.0) and before the last trial, the only
    one whose figure is verified."""
    notes: tuple[str, ...] = ()
    """Sentences on how the treatment ended: what could not be verified, what was not tried, and what the trials could
    not restore."""
    verified: str = ""
    """`as pasted`: the last trial ran the cell's text with the settings written in, as `fix` has it. `by settings`: it
    turned knobs. Empty if the plan has no settings, or if the treatment ended before that trial."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the plan as plain data (strings, numbers, lists, dicts, None), ready for JSON."""
        return {
            "settings": dict(self.settings),
            "speedup": self.speedup,
            "verified": self.verified,
            "waterfall": [asdict(rung) for rung in self.waterfall],
            "effects": [effect.to_dict() for effect in self.effects],
            "code": self.code,
            "diff": self.fix.diff,
            "by_hand": list(self.by_hand),
            "reason": self.reason,
            "notes": list(self.notes),
        }

    @property
    def sentence(self) -> str:
        """The result of the treatment in one sentence."""
        if not self.effects:
            return f"Nothing was tried: {clean(self.reason) or 'no finding has a setting to try.'}"
        trials = formatting.count(len(self.effects), "trial")
        if not self.settings:
            return f"{trials} found no setting worth keeping: the code stays as written."
        how = {AS_PASTED: "verified by running the changed cell", BY_SETTINGS: "verified by settings"}
        verified = how.get(self.verified, "measured step by step and not verified")
        last = self.waterfall[-1] if self.verified else None
        ends = (last.low, last.high) if last is not None else (None, None)
        gain = formatting.figure(self.speedup, *ends)
        return f"{gain} faster, {verified}, in {trials}: {clean(describe(self.settings), 200)}."

    @property
    def steps(self) -> tuple[Step, ...]:
        """The waterfall as bars; empty where nothing was kept."""
        if len(self.waterfall) < 2:
            return ()
        longest = max(rung.speedup for rung in self.waterfall) or 1.0
        found, last = [], 0.0
        for number, rung in enumerate(self.waterfall):
            label, whole = clean(rung.label, 120), bool(number and rung.verified)
            ends = formatting.interval(rung.low, rung.high, rung.speedup if whole else None)
            interval = f" ({ends})" if ends else ""
            if whole:  # a measurement of all against the code as written, not a further gain
                total = formatting.figure(rung.speedup, rung.low, rung.high)
                told = Step(label, total, f"verified{interval}", 0.0, rung.speedup, True)
            elif number:
                gain = "" if rung.gain is None else formatting.over(formatting.factor(rung.gain)) + interval
                kept = min(last, rung.speedup)
                told = Step(f"+ {label}", formatting.factor(rung.speedup), gain, kept, rung.speedup - last)
            else:
                told = Step(label, formatting.factor(rung.speedup), "", 0.0, rung.speedup)
            before, added = round(told.before / longest, 4), round(told.added / longest, 4)
            found.append(replace(told, before=before, added=added, losses=clean(rung.losses, 300)))
            last = rung.speedup
        return tuple(found)

    @property
    def dropped(self) -> tuple[Dropped, ...]:
        """Trials that it did not keep: their settings are not those of a step of the waterfall."""
        stages: list[dict[str, Any]] = [{}]
        for rung in self.waterfall:
            stages.append({**stages[-1], **rung.settings})
        gains = [(rung.gain, rung.low, rung.high) for rung in self.waterfall]
        found = []
        for effect in self.effects:
            # Without workers a step also takes back what acts on workers: then it is known by its trial's own figures.
            gained = effect.speedup is not None and (effect.speedup, effect.low, effect.high) in gains
            if dict(effect.settings) in stages or gained:
                continue
            written = effect.baseline_settings
            turned = {name: value for name, value in effect.settings.items() if written.get(name) != value}
            found.append(Dropped(clean(describe(turned), 120), _why(effect)))
        return tuple(found)

    def __str__(self) -> str:
        change = str(self.fix) if self.settings else ""
        return "\n".join([self._text(), *(f"    {line}" for line in clean(change, 20_000).splitlines())])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self._text())}</pre>{self.fix._repr_html_() if self.settings else ''}"

    _repr_pretty_ = formatting.pretty

    def _text(self) -> str:
        """Returns the plan as text, without the change of the cells."""
        steps = self.steps
        lines = [f"Treatment: {self.sentence}"]
        label_width = max((len(step.label) for step in steps), default=0)
        for step in steps:
            bar = "░" * round(_BAR * step.before) + "█" * round(_BAR * abs(step.added))
            lines.append(f"  {step.label:<{label_width}}  {bar:<{_BAR}} {step.total:>6}  {step.gain}".rstrip())
            lines += [f"    {step.losses}"] if step.losses else []
        lines += [f"  {clean(note)}" for note in dict.fromkeys(self.notes)]
        lines += [f"  not kept: {change.label}, {change.why}" for change in self.dropped]
        lines += [f"  by hand: {clean(task)}" for task in dict.fromkeys(self.by_hand)]
        return "\n".join(lines)


def _why(effect: Effect) -> str:
    if effect.outcome not in CLEAN or effect.speedup is None:
        outcome = OUTCOME_LABELS.get(effect.outcome, effect.outcome)
        ended = outcome if effect.outcome not in CLEAN else "nothing was measured"
        return f"{ended}: {clean(effect.reason, 300)}" if effect.reason else ended
    measured = formatting.speedup(effect.speedup, effect.low, effect.high) + f" {effect.verdict_words}"
    if effect.loss_drift is not None and not math.isfinite(effect.loss_drift):
        return f"{measured}, but the loss becomes NaN or infinite"
    differs = f", but its {effect.loss_words}" if effect.verdict == "faster" and effect.loss_changed else ""
    return measured + differs + (f": {clean(effect.reason, 300)}" if effect.reason else "")
