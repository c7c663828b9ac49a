"""The verdict during a run: first within seconds, then renewed ever more rarely, and kept from flickering."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from gpu_doctor.diagnosis import FEWEST_STEPS, Diagnosis, Finding, diagnose, every_rule, ranked
from gpu_doctor.diagnosis.verdict import verdict
from gpu_doctor.recording import Recording

JUDGING_SHARE: Final = 0.005
"""Part of one core that live verdicts may take: after one that took t, the next comes t / 0.005 later."""
FIRST_VERDICTS: Final = 10
"""So many verdicts come as fast as the panel is drawn. A look at a loop without steps enough is none: a cell that reads
its data for a minute must not wait for the first one longer than another."""


class LiveVerdict:
    """The verdicts on one run, one after the other, asked for on the refresher's thread."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock`: seconds."""
        self._clock = clock
        self._steady = Steady()
        self._newest: Diagnosis | None = None
        self._count = 0
        self._next_s = float("-inf")

    def on(self, so_far: Callable[[], Recording]) -> Diagnosis | None:
        """The verdict on a run, a new one where it is time for it.

        Args:
            so_far: what the run has left behind by now.
        """
        now = self._clock()
        if now >= self._next_s:
            self._newest = self._steady.shown(diagnose(so_far()), now)
            self._count += self._newest.vitals.passes >= FEWEST_STEPS
            took = self._clock() - now
            self._next_s = now + (0.0 if self._count < FIRST_VERDICTS else took / JUDGING_SHARE)
        return self._newest


class Steady:
    """Keeps a live verdict from flickering.

    The top finding stays until another one leads clearly or for a while. A finding that is gone, and a class that
    changed, stay until that was so in several diagnoses in a row; twice as many each time that they came back.
    """

    LEADS: Final = 3
    """Diagnoses in a row after which a new leader is shown, or what is gone is given up."""
    AHEAD: Final = 0.10
    """Or a new leader at once, if it costs so much more than the one that is shown."""
    LONGEST: Final = 24
    """Diagnoses at most that something is held,"""
    LONGEST_S: Final = 30.0
    """or so many seconds: where a diagnosis is dear, the next one comes seconds later (see `LiveVerdict`)."""

    def __init__(self) -> None:
        self._rule: str | None = None
        self._challenger: str | None = None
        self._count = 0
        self._class = "unknown"
        self._findings: dict[str, Finding] = {}
        """Shown at the last look, with the figures of when they were found."""
        self._missing: Counter[str] = Counter()
        """Rule or class -> diagnoses in a row without it,"""
        self._since_s: dict[str, float] = {}
        """and when it was there for the last time."""
        self._now_s = 0.0
        self._gone: Counter[str] = Counter()
        """Rule or class -> how often it was given up."""

    def shown(self, diagnosis: Diagnosis, now_s: float = 0.0) -> Diagnosis:
        """The diagnosis to show: this one, as far as the reader would not wonder, with what they have got used to.

        Args:
            diagnosis: the newest.
            now_s: the time of it, on any clock.
        """
        before, self._now_s = self._rule, now_s
        findings = self._in_order(self._with_held(diagnosis))
        found = {one.rule for one in diagnosis.findings}
        held = bool(findings) and findings[0].rule not in found
        bottleneck = self._class_of(diagnosis, held, self._rule != before)
        if bottleneck == diagnosis.bottleneck and findings == diagnosis.findings:
            return diagnosis
        said = verdict(bottleneck, findings, diagnosis.hints, diagnosis.vitals)
        return dataclasses.replace(diagnosis, bottleneck=bottleneck, findings=findings, verdict=said)

    def _with_held(self, diagnosis: Diagnosis) -> tuple[Finding, ...]:
        """What was found, and what was until a moment ago, dearest first; of a state that is found, no other cause."""
        found = {one.rule for one in diagnosis.findings}
        states = {cause.name: rule.name for rule in every_rule() for cause in rule.causes}
        told = {states.get(rule, rule) for rule in found}
        held = [
            dataclasses.replace(one, early=diagnosis.early)
            for rule, one in self._findings.items()
            if not self._given_up(rule, rule in found) and states.get(rule, rule) not in told
        ]
        findings = ranked([*diagnosis.findings, *held], diagnosis.vitals)[0] if held else diagnosis.findings
        self._findings = {one.rule: one for one in findings}
        return findings

    def _in_order(self, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """The findings, first the one that the reader has got used to, as long as no other leads."""
        top = findings[0].rule if findings else None
        held = next((one for one in findings if one.rule == self._rule), None)
        if held is None or top == self._rule or _place(findings[0]) != _place(held):  # what is told apart is not mixed
            self._rule, self._challenger, self._count = top, None, 0
            return findings
        self._count = self._count + 1 if top == self._challenger else 1
        self._challenger = top
        if self._count >= self.LEADS or (findings[0].cost_share or 0.0) - (held.cost_share or 0.0) >= self.AHEAD:
            self._rule, self._challenger, self._count = top, None, 0
            return findings
        return held, *(one for one in findings if one is not held)

    def _class_of(self, diagnosis: Diagnosis, held: bool, changed: bool) -> str:
        """The class to show: it goes with the finding that is held, and changes at once with the first finding."""
        if held:
            return self._class
        there = diagnosis.bottleneck == self._class
        if self._class == "unknown" or (changed and not there) or self._given_up(f"class {self._class}", there):
            self._class = diagnosis.bottleneck
        return self._class

    def _given_up(self, name: str, there: bool) -> bool:
        """Counts a look at something that was shown; whether it has been missing for so long that it is given up."""
        self._missing[name] = 0 if there else self._missing[name] + 1
        since_s = self._since_s.setdefault(name, self._now_s)
        if there:
            self._since_s[name] = self._now_s
        looks = min(self.LEADS * 2 ** self._gone[name], self.LONGEST)
        late = self._missing[name] >= self.LEADS and self._now_s - since_s >= self.LONGEST_S
        if self._missing[name] < looks and not late:
            return False
        self._missing[name] = 0
        self._gone[name] += 1
        return True


def _place(one: Finding) -> tuple[bool, bool]:
    """Findings of one place may keep each other's: what is said first, losses, and bounds stay apart."""
    return one.first or one.cost_share is None, one.kind == "at-most"
