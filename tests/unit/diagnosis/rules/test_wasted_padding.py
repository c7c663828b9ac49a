"""wasted-padding: rows padded to a constant, or to the longest of a batch; told from full rows and packed sequences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.silent_rules import Silence
from gpu_doctor.recording.setup import AttentionCalls, InputFacts, Padding
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, on_gpu

RULE = "wasted-padding"
ROWS = 32 * 20
INPUT = InputFacts(looked_at=40, shapes=1, shape=(32, 256), dtype="int64")
TEXTS = Padding("batch", "0", 20, 20, ROWS, ROWS * 256, ROWS * 96, ROWS * 64, 8, 110, 256, 256)
CHATS = Loop(setup={"inputs": INPUT, "padding": (TEXTS,)})
"""Forward and backward are 8 of 10 ms."""
SHORT = replace(TEXTS, positions=ROWS * 96, least_length=70, most_length=110)
"""The same texts, padded to the longest of each batch."""


def padded(one: Padding | None = None, **inputs: object) -> Loop:
    """The loop with other batches, or whose model is handed something else."""
    return CHATS.but(setup={"inputs": replace(INPUT, **inputs), "padding": (one or TEXTS,)})  # type: ignore[arg-type]


def test_sick() -> None:
    found = sick(RULE, CHATS)
    assert found.kind == "at-most" and found.cost_share == pytest.approx(0.8 * (1 - 96 / 256))
    longest, by_length = found.prescriptions
    assert by_length.changes and not longest.changes
    for cure in found.prescriptions:
        assert cure.predicted_speedup is None
        compile(cure.code, RULE, "exec")
    assert "8 to 110 are real, 64 on average" in found.evidence[0]
    assert "the run of 0" in found.evidence[1]
    assert RULE in named(CHATS)


def test_rows_as_long_as_the_longest_of_a_batch() -> None:
    found = sick(RULE, padded(SHORT, shapes=20, shape=(32, 96)))
    assert found.cost_share == pytest.approx(0.8 * (1 - 64 / 96))
    assert len(found.prescriptions) == 1 and "rows of 70 to 110 positions" in found.evidence[0]


def test_a_mask_is_named() -> None:
    assert "`attention_mask`" in sick(RULE, padded(replace(TEXTS, told_by="attention_mask"))).evidence[1]


def test_attention_computes_pairs_so_the_bound_has_the_square_of_the_length() -> None:
    calls = AttentionCalls("cpu", 2, 32, 4, 256, 256, 16)
    loop = CHATS.but(setup={"inputs": INPUT, "padding": (TEXTS,), "attention_calls": (calls,)})
    assert sick(RULE, loop).cost_share == pytest.approx(0.8 * (1 - (96 / 256) ** 2))


@pytest.mark.parametrize(
    "one",
    [
        replace(SHORT, real=ROWS * 90),  # batches of like length
        replace(TEXTS, shortest=96, longest=96, real=ROWS * 96),  # columns that are always empty
        replace(TEXTS, batches=5),  # seldom
        replace(TEXTS, looked_at=2, batches=2),
    ],
)
def test_well(one: Padding) -> None:
    assert asked(RULE, padded(one, shape=(32, one.most_length))) is None


def test_a_loop_that_cuts_its_rows_down_is_well() -> None:
    assert asked(RULE, padded(shape=(32, 96), shapes=20)) is None
    assert asked(RULE, padded(shape=(32, 3, 64, 64))) is None, "what is padded goes along with images"
    assert asked(RULE, padded(shape=(32, 255))) is not None, "a language model's last token is only a target"
    assert asked(RULE, padded(shape=(256, 32, 8))) is None, "a batch of 256"
    assert asked(RULE, padded(shape=(32, 40, 256))) is not None, "time comes last"


def test_sequences_that_are_packed_are_well() -> None:
    assert asked(RULE, CHATS.but(setup={"inputs": INPUT, "padding": (TEXTS,), "graph_packed": True})) is None
    assert asked(RULE, CHATS.but(source="x = pack_padded_sequence(x, lengths)")) is None
    assert asked(RULE, CHATS.but(source="x = torch.nested.nested_tensor(rows)")) is None
    assert asked(RULE, CHATS.but(source="nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)")) is not None


def test_a_loop_that_hardly_computes_is_well() -> None:
    assert asked(RULE, CHATS.but(wait=200.0)) is None


def test_nothing_padded_is_judged_and_no_batch_seen_is_not() -> None:
    assert asked(RULE, CHATS.but(setup={"inputs": INPUT, "padding": ()})) is None
    assert RULE not in [one.rule for one in _silent(CHATS.but(setup={"inputs": INPUT, "padding": ()}))]
    assert RULE in [one.rule for one in _silent(CHATS.but(setup={"inputs": INPUT}))]


def test_on_a_gpu_only_where_its_kernels_set_the_pace() -> None:
    loop = on_gpu(setup={"inputs": INPUT, "padding": (TEXTS,)})
    busy = loop.vitals().gpu_busy_share
    assert busy is not None and sick(RULE, loop).cost_share == pytest.approx(busy * 0.625)
    assert asked(RULE, loop.but(caught_up=1.0, gpu_util=40.0, other=10.0, gpu_work=5.0, gpu_gap=15.0)) is None


def _silent(loop: Loop) -> tuple[Silence, ...]:
    return diagnose(loop.recording()).silent
