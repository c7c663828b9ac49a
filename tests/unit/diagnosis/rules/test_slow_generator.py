"""slow-generator: a loop that makes its own batches, told apart from other Python in the loop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.rules.python_pace import ROUND_S
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import LineCost, Speeds
from gpu_doctor.recording.setup import InputFacts
from tests.support.found import asked, named, rule, sick
from tests.support.recordings import Loop, on_gpu

RULE = "slow-generator"
SOURCE = """\
def batches():
    for i in range(100):
        yield decode(i)
for x in batches():
    loss = net(x).mean()
    loss.backward()
    opt.step()
    log(loss)
"""


def at(line: int, share: float, function: str = "<module>", in_torch: bool = False) -> LineCost:
    """What a line of the cell costs outside of every phase."""
    return LineCost("<cell>", line, function, SOURCE.splitlines()[line - 1].strip(), "other", share, in_torch)


SETUP = {"flags": {"model_names": ("net",)}}
MAKING = Loop(has_loader=False, other=10.0, source=SOURCE, setup=SETUP, lines=(at(3, 0.5, "batches"),))
LOGGING = MAKING.but(lines=(at(8, 0.5),))


def test_sick() -> None:
    found = sick(RULE, MAKING)
    assert found.cost_share == pytest.approx(0.5)
    assert any("yield decode(i)" in one for one in found.evidence)
    one, many, _ = found.prescriptions
    # One worker makes a batch in 10 ms and packs it in 0.8, two in half of that; the loop trains 10 and unpacks in 0.8.
    assert one.predicted_speedup == pytest.approx(20 / 10.81) == many.predicted_speedup
    assert one.predicted_low is not None and one.predicted_high is not None
    assert one.predicted_low < 20 / 10.6 < one.predicted_high
    for cure in found.prescriptions:
        compile(cure.code, RULE, "exec")
    assert named(MAKING) == [RULE]


def test_where_python_is_slow_a_cheap_batch_takes_longer_to_make() -> None:
    cheap = MAKING.but(forward=0.2, backward=0.2, optimizer=0.1, other=0.6)
    assert sick(RULE, cheap).cost_share == pytest.approx(0.5, rel=0.2)
    assert asked(RULE, cheap.but(setup={**SETUP, "speeds": Speeds(python_round_s=2 * ROUND_S)})) is None


def test_the_clock_says_how_long_it_is_and_the_looks_how_it_is_divided() -> None:
    """Python that holds its lock is seen by few looks: 0.3 of making and 0.06 of logging in half of a step."""
    unseen = MAKING.but(lines=(at(3, 0.3, "batches"), at(8, 0.06)))
    assert sick(RULE, unseen).cost_share == pytest.approx(0.3 / 0.36 * 0.5, rel=0.01)
    assert named(unseen) == [RULE], "what is left for logging is below its bar"
    recording = MAKING.but(lines=(at(3, 0.2, "batches"),)).recording()
    for looks, share in ((100, 0.5), (10, 0.2)):  # two looks divide nothing
        found = rule(RULE).finds(measure(replace(recording, looks=looks)))
        assert found is not None and found.cost_share == pytest.approx(share)


def test_making_inside_of_torch_counts() -> None:
    assert asked(RULE, MAKING.but(lines=(at(3, 0.5, "batches", in_torch=True),))) is not None


def test_a_batch_that_is_made_in_a_few_operations_is_not_to_be_vectorised() -> None:
    """A worker can still make it beside the training, where there is a core for it."""
    whole = replace(at(3, 0.5, "batches"), computes=True)
    cures = sick(RULE, MAKING.but(lines=(whole,))).prescriptions
    assert cures and not any("ectorise" in one.text for one in cures)
    alone = MAKING.but(lines=(whole,), setup={**SETUP, "usable_cores": 1})
    assert asked(RULE, alone) is None, "no worker gains anything, and nothing makes it cheaper"
    python = sick(RULE, alone.but(lines=(at(3, 0.5, "batches"),))).prescriptions
    assert "vectorise" in python[0].text


def test_a_generator_of_another_cell_and_what_it_calls() -> None:
    """`download` is known to nobody here; the loop calls nothing else that could have called it."""
    source = "for x in batches(140):\n    loss = net(x).mean()\n    loss.backward()\n    opt.step()\n    {}\n"
    hidden = LineCost("<another cell>", 8, "download", "time.sleep(0.009)", "other", 0.5)
    loop = MAKING.but(source=source.format("pass"), lines=(hidden,))
    assert sick(RULE, loop).cost_share == pytest.approx(0.5)
    assert named(loop) == [RULE] and diagnose(loop.recording()).bottleneck == "input"
    assert named(loop.but(source=source.format("report(loss)"))) == ["slow-python"], "either may have called it"
    # of a loss that takes 3 of the 10 ms, nobody knows whether its function is the one that was seen
    assert sick(RULE, loop.but(other=7.0, loss=3.0)).cost_share == pytest.approx(0.35)


def test_two_causes_have_their_own_seconds_each() -> None:
    both = MAKING.but(lines=(at(3, 0.3, "batches"), at(8, 0.2)))
    assert named(both) == [RULE, "slow-python"]
    assert sick(RULE, both).cost_share == pytest.approx(0.3)
    assert sick("slow-python", both).cost_share == pytest.approx(0.2)


def test_well() -> None:
    assert asked(RULE, Loop(has_loader=False, source=SOURCE, setup=SETUP)) is None
    assert asked(RULE, MAKING.but(lines=(at(3, 0.05, "batches"), at(8, 0.45)))) is None


def test_logging_is_not_the_making_of_batches() -> None:
    assert asked(RULE, LOGGING) is None
    assert named(LOGGING) == ["slow-python"]


def test_a_loop_with_a_loader_has_other_rules() -> None:
    assert asked(RULE, MAKING.but(has_loader=True)) is None
    assert RULE not in named(MAKING.but(has_loader=True))


def test_where_the_text_does_not_tell_it_is_python() -> None:
    assert named(MAKING.but(source="fit()")) == ["slow-python"]


def test_a_batch_that_is_as_cheap_as_one_gets_is_left() -> None:
    tiny = MAKING.but(forward=0.1, backward=0.1, optimizer=0.1, other=0.3)
    assert asked(RULE, tiny) is None


def test_where_handing_over_eats_the_gain_a_cheaper_batch_is_advised_first() -> None:
    # The clinic's generator-without-loader: 1.4 ms of making, 0.42 of training; one worker was slower in truth.
    small = MAKING.but(
        forward=0.1, backward=0.17, optimizer=0.15, other=1.4, lines=(at(3, 0.77, "batches"),), cores=2.0
    )
    first, *rest = sick(RULE, small).prescriptions
    assert "vectorise" in first.text and first.predicted_speedup is None
    assert all("one worker" not in one.text for one in rest)
    busy = small.but(cpu_util=100.0)
    assert all((one.predicted_speedup or 0.0) == 0.0 for one in sick(RULE, busy).prescriptions)


def test_a_large_batch_costs_more_to_hand_over() -> None:
    large = MAKING.but(setup={**SETUP, "inputs": InputFacts(10, 1, (64, 3, 224, 224), "float32")})
    plain, dear = (sick(RULE, loop).prescriptions[0].predicted_speedup for loop in (MAKING, large))
    assert plain is not None and (dear is None or dear < 0.75 * plain)


def test_making_batches_is_input_whether_or_not_a_loader_does_it() -> None:
    assert diagnose(MAKING.recording()).bottleneck == "input"
    assert diagnose(LOGGING.recording()).bottleneck == "host"
    gpu = {"has_loader": False, "source": SOURCE, "setup": SETUP, "lines": MAKING.lines, "loader": {}}
    assert diagnose(on_gpu(**gpu, other=8.0, gpu_gap=8.0, gpu_work=10.0).recording()).bottleneck == "input"


def test_behind_a_busy_gpu_it_is_free() -> None:
    gpu = {"has_loader": False, "source": SOURCE, "setup": SETUP, "lines": MAKING.lines, "loader": {}}
    assert asked(RULE, on_gpu(**gpu, other=5.0, gpu_gap=0.1, gpu_work=14.9)) is None
    assert asked(RULE, on_gpu(**gpu, other=5.0, gpu_gap=5.0, gpu_work=10.0)) is not None


def test_on_one_core_that_computes_only_cheaper_batches_help() -> None:
    found = sick(RULE, MAKING.but(cores=1.0))
    assert [one.predicted_speedup for one in found.prescriptions] == [None]


def test_batches_that_wait_have_more_workers_than_cores() -> None:
    """A generator that downloads: 28 ms of a step of 30 without a CPU second, on two cores."""
    waiting = MAKING.but(
        forward=0.8,
        backward=0.8,
        optimizer=0.4,
        other=28.0,
        consumer_cpu=2.1,
        cores=2.0,
        lines=(at(3, 28 / 30, "batches"),),
    )
    first = sick(RULE, waiting).prescriptions[0]
    assert "num_workers=8)" in first.code
    assert first.predicted_speedup == pytest.approx(30 / 3.67, rel=0.1)
    computing = sick(RULE, waiting.but(consumer_cpu=30.0)).prescriptions
    assert not any("num_workers=8)" in one.code for one in computing)
    busy = sick(RULE, waiting.but(cpu_util=100.0)).prescriptions  # a computing thread waits there, too
    assert not any("num_workers=8)" in one.code for one in busy)
    recording = waiting.but(cpu_util=100.0).recording()
    queue = replace(recording.series[0], metric=replace(recording.series[0].metric, name="load_average"))
    for running, waits in ((6.0, True), (20.0, False)):  # three threads a core, or ten: 2.1 ms of CPU take 6 ms or 21
        loaded = replace(recording, series=(*recording.series, replace(queue, values=queue.times_s * 0 + running)))
        found = rule(RULE).finds(measure(loaded))
        assert found is not None
        assert any("num_workers=8)" in one.code for one in found.prescriptions) == waits


def test_a_worker_that_saves_next_to_nothing_is_not_said_first() -> None:
    # As recorded: 88 ms of Python a step, 7 of training: one worker ahead of it gives 1.07x, two 2.1x. Vectorised it
    # gave 15x in truth.
    making = MAKING.but(forward=3.0, backward=3.0, optimizer=1.0, other=88.0, lines=(at(3, 0.9, "batches"),))
    first, second, _ = sick(RULE, making.but(cores=2.0)).prescriptions
    assert "vectorise" in first.text
    assert "num_workers=2" in second.code and (second.predicted_speedup or 0.0) > 1.5
    first, *_ = sick(RULE, making.but(cores=16.0)).prescriptions  # there workers do nearly as well
    assert "num_workers=13" in first.code  # 88 ms over 7, though the looks saw 0.90 where the clock has 0.93


QUEUE = "while True:\n    x = q.get()\n    loss = net(x).mean()\n    loss.backward()\n    opt.step()\n"
FED = MAKING.but(
    source=QUEUE,
    forward=1.0,
    backward=1.0,
    optimizer=1.0,
    other=10.0,
    consumer_cpu=3.2,
    lines=(LineCost("<cell>", 2, "<module>", "x = q.get()", "other", 10 / 13),),
)


def test_who_waits_for_a_queue_of_his_own_has_a_worker_that_runs_ahead() -> None:
    found = sick(RULE, FED)
    assert "waits for the queue" in found.headline and "77 %" in found.headline
    first = found.prescriptions[0]
    assert "4 times as many threads" in first.text and first.predicted_speedup == pytest.approx(4.0, rel=0.05)
    assert all("ahead" not in one.text for one in found.prescriptions)
    for one in found.prescriptions:
        compile(one.code, RULE, "exec")


def test_threads_that_compute_are_not_multiplied() -> None:
    first = sick(RULE, FED.but(consumer_cpu=13.0)).prescriptions[0]
    assert "Dataset" in first.text and "threads" not in first.text
    asked_by_key = FED.but(
        source=QUEUE.replace("q.get()", "d.get(i)"),
        lines=(LineCost("<cell>", 2, "<module>", "x = d.get(i)", "other", 10 / 13),),
    )
    assert "itself" in sick(RULE, asked_by_key).headline
