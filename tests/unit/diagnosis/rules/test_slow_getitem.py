"""slow-getitem: the fetch computes, and workers cannot make up for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from gpu_doctor.diagnosis import diagnose
from tests.support.found import asked, named, sick, top
from tests.support.recordings import Loop, line

RULE = "slow-getitem"
COMPUTING = Loop(wait=30.0, workers=2, fetch=80.0, fetch_cpu=78.0, consumer_cpu=2.0, cores=2.0)
# 128 samples out of memory one by one: 5 us a sample, on a loop of 0.5 ms
IN_MEMORY = Loop(
    wait=0.6, forward=0.2, backward=0.2, optimizer=0.1, batch=128, batch_bytes=1.3e5, collate=0.2, cores=2.0
)


def test_sick() -> None:
    found = sick(RULE, COMPUTING)
    assert found.cost_share == pytest.approx(0.75, abs=0.06)
    assert top(COMPUTING) == RULE
    assert not any(one.settings for one in found.prescriptions)


def test_it_names_the_lines() -> None:
    found = sick(RULE, COMPUTING.but(lines=(line("image = decode(path)", 0.4, "data_wait"),)))
    assert any("decode(path)" in one for one in found.evidence)


def test_beside_missing_workers_only_what_they_leave_is_its_cost() -> None:
    # 50 ms of CPU a step on two cores: two workers make 50 ms into 25, and 15 of these stay a wait.
    loop = Loop(wait=40.0, consumer_cpu=10.0, cores=2.0)
    assert named(loop) == ["loader-without-workers", RULE]
    assert sick(RULE, loop).cost_share == pytest.approx(0.3, abs=0.03)


def test_data_in_memory_is_to_be_indexed_by_whole_batches() -> None:
    found = sick(RULE, IN_MEMORY)
    assert found.cost_share == pytest.approx(0.545, abs=0.02)
    assert "BatchSampler" in found.prescriptions[0].code
    assert named(IN_MEMORY) == [RULE]


ROWS = Loop(
    wait=14.0, forward=1.0, backward=1.2, optimizer=0.5, batch=2048, batch_bytes=3.4e5, fetch_cpu=13.8, consumer_cpu=2.7
).but(cores=2.0)
"""2048 rows out of memory one by one, 7 us each: two workers save two fifths of a step, whole batches all of it."""


def test_rows_in_memory_are_to_be_indexed_though_workers_would_help() -> None:
    found = sick(RULE, ROWS)
    assert found.cost_share == pytest.approx(14 / 16.7, abs=0.02)
    assert "less of it than whole batches" in found.headline
    assert named(ROWS)[0] == RULE
    assert "loader-without-workers" not in named(ROWS)
    own = ROWS.but(loader={"collate": "my_collate"})
    assert "loader-without-workers" in named(own), "a collate of the user's own is not to be lost"
    dear = ROWS.but(batch=64)
    assert "loader-without-workers" in named(dear), "0.2 ms a sample are no look-up"


def test_archives_that_new_workers_read_again_each_epoch_are_another_rules() -> None:
    # Of 2 ms beyond the edge of 20 a step nothing is the fetch's: it is not priced twice.
    loop = Loop(wait=2.0, edge=200.0, steps_per_epoch=10, forward=12.0, backward=14.0, optimizer=2.0, cores=2.0)
    assert asked(RULE, loop.but(workers=2, fetch=40.0, fetch_cpu=34.0, consumer_cpu=28.0, cpu_util=60.0)) is None


def test_the_code_is_for_the_loader_at_hand() -> None:
    ordered = IN_MEMORY.but(loader={"dataset": "TensorDataset", "sampler": "SequentialSampler", "drop_last": True})
    cure = sick(RULE, ordered).prescriptions[0]
    # whatever draws its samples now goes on to do so: data in order are not shuffled by the cure
    assert "BatchSampler(loader.sampler, batch_size=128, drop_last=True)" in cure.code
    assert "__getitem__" not in cure.text
    own = sick(RULE, IN_MEMORY).prescriptions[0]
    assert "`__getitem__` is then given the list" in own.text
    theirs = sick(RULE, IN_MEMORY.but(loader={"batch_size": None, "sampler": "SequentialSampler"})).prescriptions[0]
    assert theirs.code.startswith("sampler = loader.batch_sampler\n")


def test_the_code_delivers_the_same_samples() -> None:
    rows = torch.arange(20.0)
    loader = DataLoader(TensorDataset(rows), batch_size=6, drop_last=True)
    ordered = {"dataset": "TensorDataset", "sampler": "SequentialSampler", "drop_last": True, "batch_size": 6}
    named: dict[str, Any] = {"loader": loader, "DataLoader": DataLoader}
    exec(sick(RULE, IN_MEMORY.but(loader=ordered)).prescriptions[0].code, named)
    assert [one.tolist() for (one,) in named["loader"]] == [one.tolist() for (one,) in loader]


@pytest.mark.parametrize("loop", [IN_MEMORY, COMPUTING, Loop(wait=40.0, cores=1.0)])
def test_a_stream_is_not_told_to_index(loop: Loop) -> None:
    cure = sick(RULE, loop.but(loader={"dataset_kind": "iterable", "sampler": ""})).prescriptions[0]
    assert "__iter__" in cure.code
    assert "indices" not in cure.code and "ampler" not in cure.code and "indices" not in cure.text


def test_data_that_is_indexed_by_whole_batches_is_not_told_to_be() -> None:
    whole = {"batch_size": None, "sampler": "BatchSampler", "collate": "default_convert"}
    assert asked(RULE, IN_MEMORY.but(loader=whole)) is None
    seen = replace(line("return self.x[indices]", 0.4, "data_wait"), function="Rows.__getitems__")
    assert asked(RULE, IN_MEMORY.but(lines=(seen,))) is None
    own = {"batch_size": None, "sampler": "SequentialSampler"}  # a batch sampler of the user's: still one by one
    assert asked(RULE, IN_MEMORY.but(loader=own)) is not None
    dear = sick(RULE, Loop(wait=40.0, cores=1.0, loader=whole))
    assert "sample by sample" not in dear.headline


def test_a_dear_sample_on_one_core_is_not_told_to_be_indexed() -> None:
    found = sick(RULE, Loop(wait=40.0, cores=1.0))
    assert "BatchSampler" not in found.prescriptions[0].code


def test_well() -> None:
    assert asked(RULE, Loop()) is None
    assert asked(RULE, COMPUTING.but(wait=0.1, cores=16.0, workers=8)) is None


def test_two_workers_that_compute_on_a_busy_machine() -> None:
    """Other programs take a core and a half: training is slowed as well, the least of it by its own workers."""
    loop = Loop(wait=6.0, forward=5.0, backward=5.0, optimizer=2.0, consumer_cpu=5.0, cores=2.0, cpu_util=100.0)
    busy = loop.but(workers=2, fetch=34.0, fetch_cpu=12.0)
    recording = busy.recording()
    fetch = replace(recording.fetches[0], queued_s=22e-3 * recording.fetches[0].batches)
    diagnosis = diagnose(replace(recording, fetches=(fetch,)))
    found = [one for one in diagnosis.findings if one.rule in (RULE, "too-few-workers")]
    assert found, "the wait has a name"
    assert 6 / 18 - 0.08 <= found[0].cost_share <= 6 / 18 + 0.1
    assert diagnosis.bottleneck == "input"


def test_workers_that_leave_the_training_half_of_the_cores() -> None:
    """What it computes queues for a core as they do: the input's seconds, though the loop does not wait."""
    loop = Loop(wait=0.5, forward=10.0, backward=15.0, optimizer=2.0, consumer_cpu=26.0, cores=2.0, cpu_util=100.0)
    recording = loop.but(workers=2, fetch=54.0, fetch_cpu=27.0).recording()
    fetch = replace(recording.fetches[0], queued_s=27e-3 * recording.fetches[0].batches)
    diagnosis = diagnose(replace(recording, fetches=(fetch,)))
    assert diagnosis.bottleneck == "input"
    found = next(one for one in diagnosis.findings if one.rule == RULE)
    assert found.cost_share == pytest.approx(0.5, abs=0.03)
    assert "what it takes from the training costs" in found.headline and "waits" not in found.headline
    calm = diagnose(replace(recording, fetches=(replace(recording.fetches[0], queued_s=0.0),)))
    assert calm.bottleneck == "compute", "with a core for each nobody queues"
    assert RULE not in [one.rule for one in calm.findings]


def test_workers_that_mostly_wait_are_not_the_bound() -> None:
    assert asked(RULE, Loop(wait=1.0, edge=60.0, steps_per_epoch=10, workers=2, fetch=2.0, cores=2.0)) is None


def test_a_fetch_that_waits_is_not_slow_by_computing() -> None:
    assert asked(RULE, Loop(wait=40.0, fetch_cpu=1.0, consumer_cpu=10.0, cores=2.0)) is None


def test_the_collate_is_another_rule() -> None:
    assert asked(RULE, COMPUTING.but(collate=60.0)) is None


def test_what_a_fetch_queues_for_a_core_goes_with_it() -> None:
    # The clinic's tensors-sample-by-sample on a machine of which others take three quarters.
    recording = IN_MEMORY.but(wait=2.4, fetch=2.4, fetch_cpu=0.6, cpu_util=100.0).recording()
    fetch = replace(recording.fetches[0], queued_s=recording.fetches[0].batches * 1.8e-3)
    found = {one.rule: one.cost_share for one in diagnose(replace(recording, fetches=(fetch,))).findings}
    assert found == {RULE: pytest.approx(2.4 / 2.9, abs=0.01)}


def test_cpu_seconds_are_called_so() -> None:
    """As judged: "a step's fetch takes 4.8 ms" where it took 8.6 ms of wall-clock on a busy machine."""
    recording = IN_MEMORY.but(wait=2.4, fetch=2.4, fetch_cpu=0.6, cpu_util=100.0).recording()
    fetch = replace(recording.fetches[0], queued_s=recording.fetches[0].batches * 1.8e-3)
    (found,) = diagnose(replace(recording, fetches=(fetch,))).findings
    assert "takes 600 µs of CPU time (4.69 µs a sample)" in found.evidence[0]
    assert "2.40 ms in all" in found.evidence[0]


@pytest.mark.parametrize(
    ("text", "decodes"),
    [
        ("image = Image.open(path).convert('RGB')", True),
        ("x = cv2.imread(path)", True),
        ("return self.transform(image.resize((224, 224)))", True),
        ("x = torchvision.io.read_image(path)", True),
        ("return self.table[i]", False),
        ("features = spectrum(signal)", False),
    ],
)
def test_images_are_to_be_decoded_smaller(text: str, decodes: bool) -> None:
    inside = replace(line(text, 0.8, "data_wait"), in_worker=True)
    said = [one.text for one in sick(RULE, COMPUTING.but(lines=(inside,))).prescriptions]
    assert ("Decode images" in said[0]) == decodes and "Make a sample cheaper" in said[-1]


def test_a_line_that_decodes_little_is_not_what_to_begin_with() -> None:
    lines = (("x = Image.open(path)", 0.1), ("x = augment(x)", 0.8))
    inside = tuple(replace(line(text, share, "data_wait"), in_worker=True) for text, share in lines)
    assert len(sick(RULE, COMPUTING.but(lines=inside)).prescriptions) == 1
