"""The search for the largest batch never answers with a batch that ran out of memory."""

from __future__ import annotations

from gpu_doctor.trials.largest_batch import largest_batch
from tests.support.largest_batch_parts import Card, SimulatedCase, ran_out


def test_a_batch_that_ran_out_of_memory_is_never_the_answer() -> None:
    case = SimulatedCase(Card(4.0, 100.0), batch=800)
    ran_out(case)
    found = largest_batch(case, memory=case.card)
    assert case.asked[0] == 400
    assert found.batch_size is not None and 600 <= found.batch_size < 800
    assert found.batch_size in case.asked and 800 not in case.asked
    case = SimulatedCase(Card(79.0, 100.0), batch=64)
    ran_out(case)
    assert largest_batch(case, memory=case.card).batch_size is None, "nothing ran within the limit"
