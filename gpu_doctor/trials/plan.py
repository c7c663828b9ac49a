"""What a treatment arrived at: the settings it kept, how each was measured, and the same in words."""

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
    """One step of the waterfall: what was added, what it gave, and how fast the loop is with all kept so far."""

    label: str
    """`as written`, or what was turned, such as `num_workers=8`; that of the last trial is `all together`, or `measured
    again` where one step was kept."""
    settings: Mapping[str, SettingValue]
    """What this step added or changed; all that is kept in the row of the last trial."""
    speedup: float
    """Samples/s with all that is kept so far over samples/s as written."""
    gain: float | None = None
    """What this trial measured, candidate over baseline; None for the first row."""
    low: float | None = None
    """Lower end of the 95 % interval of `gain`."""
    high: float | None = None
    loss_verdict: str | None = None
    """Of this trial's losses, as in `Effect`: same, different, not-finite; None = nothing to compare."""
    loss_first_step: int | None = None
    """First step (from 1) at which they differ."""
    losses: str = ""
    """The same in words, with the reason where they differ."""
    verified: str = ""
    """Of the row of the last trial, as in `Effect`; empty for what was measured in the climb."""


@dataclass(frozen=True)
class Step:
    """One bar of the waterfall, in words and in parts (0..1) of the longest bar."""

    label: str
    total: str
    """How fast the loop is with all that is kept so far: `2.31x`."""
    gain: str
    """What this step gave, with its interval: `x2.31 (2.1-2.5)`; empty for the first."""
    before: float
    """Part of the longest bar that was there before this step (for a step that lost, what is left after it)."""
    added: float
    """Part that this step added; negative for a step that lost."""
    whole: bool = False
    """Not a further step: all that is kept, measured once more against the code as written."""
    losses: str = ""
    """What became of the losses: `loss the same in every step`."""


@dataclass(frozen=True)
class Dropped:
    """One trial whose settings were not kept."""

    label: str
    why: str


@dataclass(frozen=True)
class Plan:
    """What `Case.treat` arrived at."""

    settings: Mapping[str, Any]
    """The knob values that were kept."""
    speedup: float
    """Samples/s with them over samples/s as written, of the last trial, which measured them afresh; where that was
    stopped, the product of what the climb measured, and `verified` is empty."""
    effects: tuple[Effect, ...]
    """Every trial, in order, kept or not."""
    code: str
    """The lines to paste."""
    fix: Fix = field(default_factory=Fix)
    """The user's own cells with the settings written in."""
    by_hand: tuple[str, ...] = ()
    """What is left that no knob can do, dearest first."""
    reason: str = ""
    """Why nothing was tried; empty if something was."""
    waterfall: tuple[Rung, ...] = ()
    """The measured gains in the order in which they were kept, after the code as written (1.0) and before the last
    trial, the only one whose figure is verified."""
    notes: tuple[str, ...] = ()
    """Sentences on how the treatment ended: what could not be verified, what was left untried, and what the
    trials could not put back."""
    verified: str = ""
    """`as pasted`: the last trial ran the cell's text with the settings written in, as `fix` has it. `by settings`: it
    turned knobs. Empty where nothing was kept, or the treatment ended before that trial."""

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data (strings, numbers, lists, dicts, None), ready for JSON."""
        return {
            "settings": dict(self.settings),
            "speedup": self.speedup,
            "verified": self.verified,
            "waterfall": [asdict(one) for one in self.waterfall],
            "effects": [effect.to_dict() for effect in self.effects],
            "code": self.code,
            "diff": self.fix.diff,
            "by_hand": list(self.by_hand),
            "reason": self.reason,
            "notes": list(self.notes),
        }

    @property
    def sentence(self) -> str:
        """What it arrived at, in one sentence."""
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
        longest = max(one.speedup for one in self.waterfall) or 1.0
        found, last = [], 0.0
        for number, one in enumerate(self.waterfall):
            label, whole = clean(one.label, 120), bool(number and one.verified)
            ends = formatting.interval(one.low, one.high, one.speedup if whole else None)
            interval = f" ({ends})" if ends else ""
            if whole:  # a measurement of all against the code as written, not a further gain
                total = formatting.figure(one.speedup, one.low, one.high)
                told = Step(label, total, f"verified{interval}", 0.0, one.speedup, True)
            elif number:
                gain = "" if one.gain is None else formatting.over(formatting.factor(one.gain)) + interval
                kept = min(last, one.speedup)
                told = Step(f"+ {label}", formatting.factor(one.speedup), gain, kept, one.speedup - last)
            else:
                told = Step(label, formatting.factor(one.speedup), "", 0.0, one.speedup)
            before, added = round(told.before / longest, 4), round(told.added / longest, 4)
            found.append(replace(told, before=before, added=added, losses=clean(one.losses, 300)))
            last = one.speedup
        return tuple(found)

    @property
    def dropped(self) -> tuple[Dropped, ...]:
        """Trials that it did not keep: their settings are not those of a step of the waterfall."""
        stages: list[dict[str, Any]] = [{}]
        for rung in self.waterfall:
            stages.append({**stages[-1], **rung.settings})
        gains = [(one.gain, one.low, one.high) for one in self.waterfall]
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
        return "\n".join([self._told(), *(f"    {line}" for line in clean(change, 20_000).splitlines())])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self._told())}</pre>{self.fix._repr_html_() if self.settings else ''}"

    _repr_pretty_ = formatting.pretty

    def _told(self) -> str:
        """All but the change of the cells."""
        steps = self.steps
        lines = [f"Treatment: {self.sentence}"]
        wide = max((len(one.label) for one in steps), default=0)
        for one in steps:
            bar = "░" * round(_BAR * one.before) + "█" * round(_BAR * abs(one.added))
            lines.append(f"  {one.label:<{wide}}  {bar:<{_BAR}} {one.total:>6}  {one.gain}".rstrip())
            lines += [f"    {one.losses}"] if one.losses else []
        lines += [f"  {clean(one)}" for one in dict.fromkeys(self.notes)]
        lines += [f"  not kept: {one.label}, {one.why}" for one in self.dropped]
        lines += [f"  by hand: {clean(one)}" for one in dict.fromkeys(self.by_hand)]
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
