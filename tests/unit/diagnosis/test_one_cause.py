"""One cause first: a trouble is named by its own rule, and no two rules bill the same seconds without a reason.

Walked are the clinic's recordings, the worlds of the treatment's tests, and every two `troubles` laid on one loop; the
loops of the rules' tests are held to the same where they are asked about (`found.sick`). What may stand beside what,
and why: `tests/support/one_cause.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import numpy as np
import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.rules import RULES
from gpu_doctor.recording import Recording
from tests.support.clinic.cell import Recorded
from tests.support.clinic.ward import FAMILIES
from tests.support.one_cause import KIND, unsettled
from tests.support.training_worlds import World, recorded
from tests.support.trouble import Trouble, laid
from tests.support.troubles import TROUBLES, pairs

WALKED: Final = 66
"""How many recordings `walked` gives: a recorded patient more is one more here."""


def walked() -> Iterator[tuple[str, Recording]]:
    """The clinic's recordings and those of the treatment's worlds, with a name each."""
    for patients in FAMILIES.values():
        yield from ((one.name, one.play()) for one in patients if isinstance(one, Recorded))
    rng = np.random.default_rng(0)
    for waits, computes, workers in itertools.product((0.0, 8.0), (0.5, 6.0), (0, 2, 8)):
        world = World(waits, computes, written={"num_workers": workers}, epoch=40)
        yield f"world {waits} {computes} {workers}", recorded(world, {}, 100, rng)


def test_each_rule_says_what_seconds_it_prices() -> None:
    assert set(KIND) == {rule.name for rule in RULES}


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda one: f"{'gpu' if one.gpu else 'cpu'}-{one.name}")
def test_a_trouble_alone_is_named_by_its_rule(trouble: Trouble) -> None:
    diagnosis = diagnose(laid(trouble))
    assert diagnosis.findings[0].rule == trouble.rule
    assert unsettled(diagnosis) == []


def test_no_two_rules_bill_the_same_seconds_of_a_kept_recording() -> None:
    found = {name: unsettled(diagnose(recording)) for name, recording in walked()}
    assert len(found) == WALKED
    assert {name: pairs for name, pairs in found.items() if pairs} == {}


@pytest.mark.parametrize("first", TROUBLES, ids=lambda one: f"{'gpu' if one.gpu else 'cpu'}-{one.name}")
def test_two_troubles_are_billed_apart(first: Trouble) -> None:
    """Every two: what they share is settled, and together they never bill more of the host's time than there is."""
    open_pairs, overdrawn = {}, {}
    for one, other in (pair for pair in pairs() if pair[0] is first):
        diagnosis = diagnose(laid(one, other))
        if left := unsettled(diagnosis):
            open_pairs[one.name, other.name] = left
        vitals = diagnosis.vitals
        elsewhere = sum(getattr(vitals, f"{one}_share") or 0.0 for one in ("data_wait", "transfer", "evaluation"))
        idle = [found for found in diagnosis.findings if KIND[found.rule] == "idle" and not found.risk]
        aid = any(found.rule == "debug-mode-on" for found in idle)  # it is priced by the forward that it slows
        if vitals.on_gpu and not aid and sum(a.cost_share for a in idle) > 1.0 - elsewhere + 0.02:
            overdrawn[one.name, other.name] = [(a.rule, round(a.cost_share, 2)) for a in idle]
    assert open_pairs == {} and overdrawn == {}
