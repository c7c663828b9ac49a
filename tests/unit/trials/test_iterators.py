"""Iterators of earlier cells: a cell that draws from one is refused by name; what a side makes itself is its own."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor
from gpu_doctor.trials.beforehand import beforehand
from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.side_effects.leftover_workers import parked

START = """
import itertools, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
net = nn.Linear(1, 1); opt = torch.optim.SGD(net.parameters(), 0.001)
loader = DataLoader(TensorDataset(torch.arange(240.0)[:, None]), 4)
def batches():
    while True:
        for (x,) in loader:
            yield x
class Reader:
    def __init__(self): self.it = iter(loader)
    def read(self): return next(self.it)[0]
"""
LOOP = """for step in range(6):
    {draw}
    opt.zero_grad(); net(x).sum().backward(); opt.step()
"""


def notebook(line: str) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(START + line, space)
    return space


@pytest.mark.parametrize(
    ("line", "draw", "said"),
    [
        ("it = batches()", "x = next(it)", "`it` is an iterator (generator) of an earlier cell: create it"),
        ("it = iter(loader)", "x = next(it)[0]", "`it` is an iterator (SingleProcessDataLoaderIter)"),
        (
            "it = iter(loader)\ndef draw(): return next(it)[0]",
            "x = draw()",
            "`it` is an iterator (SingleProcessDataLoaderIter)",
        ),
        ("it = itertools.cycle(loader)", "x = next(it)[0]", "`it` is an iterator (cycle) of"),
        ("it = iter([1.0] * 9)", "x = torch.ones(1) * next(it)", "`it` is an iterator (list_iterator) of"),
        ("reader = Reader()", "x = reader.read()", "`reader` holds an iterator (SingleProcessDataLoaderIter) of"),
    ],
)
def test_what_an_earlier_cell_made_is_refused_by_name_and_stays_where_it_is(line: str, draw: str, said: str) -> None:
    space = notebook(line)
    effect = gpu_doctor.case(LOOP.format(draw=draw), space).trial({"threads": 1}, steps=3, pairs=1)
    assert effect.outcome == "refused" and effect.reason.startswith(said)
    assert beforehand(Runner("print(1)", space)).refusals == (), "a cell that draws from none"


@pytest.mark.parametrize(
    ("make", "draw"),
    [
        ("it = batches()", "x = next(it)"),
        ("reader = Reader()", "x = reader.read()"),
        ("it = iter(loader)", "x, = next(it)"),
    ],
)
def test_what_the_cell_makes_itself_is_each_sides_own_and_the_users_goes_on(make: str, draw: str) -> None:
    space = notebook("")
    case = gpu_doctor.case(f"{make}\n{LOOP.format(draw=draw)}", space)
    case.run()
    ours = space.get("it") or space["reader"]
    effect = case.trial({"threads": 1}, steps=3, pairs=1)
    assert effect.outcome in ("completed", "budget-reached") and effect.not_restored == (), effect
    assert (space.get("it") or space["reader"]) is ours
    exec(draw, space)
    assert space["x"].flatten().tolist() == [24.0, 25.0, 26.0, 27.0], "the batch after the run's six"


def test_what_the_cells_own_run_made_out_of_sight_is_no_reason_to_refuse() -> None:
    space = notebook("text = 'it = batches()'\nother = batches()")
    case = gpu_doctor.case("exec(text)\n" + LOOP.format(draw="x = next(it)"), space)
    case.run()
    (said,) = beforehand(case).refusals
    assert said.startswith("`other` is an iterator (generator)"), "not `it`, which each side makes anew"


def test_a_generator_at_its_end_in_an_object_is_no_matter() -> None:
    space = notebook("reader = Reader(); reader.it = (one for one in ()); list(reader.it)")
    assert beforehand(Runner("print(reader)", space)).refusals == ()


ANY_KIND = (
    "import csv\nit = csv.reader(['1', '2'])",
    "from collections import deque\nit = iter(deque([1]))",
    "import numpy\nit = numpy.arange(500).flat",
    "import os\nit = os.scandir('.')",
    "import pandas, io\nit = pandas.read_csv(io.StringIO('a\\n1\\n2'), chunksize=1)",
    "class Cycle(itertools.cycle): pass\nit = Cycle([1])",
    "import re\nit = re.finditer('a', 'aaa')",
)


@pytest.mark.parametrize("line", ANY_KIND)
def test_an_iterator_is_known_wherever_its_type_comes_from(line: str) -> None:
    space = notebook(line)
    (said,) = beforehand(gpu_doctor.case("next(it)", space)).refusals
    getattr(space["it"], "close", int)()
    assert said.startswith("`it` is an iterator (")


OWN = """
class Own:
    def __init__(self): self.at = 0
    def __iter__(self): return self
    def __next__(self): self.at += 1; return torch.ones(1) * self.at
it = Own()
"""


def test_an_iterator_of_the_users_own_class_is_put_back_like_any_object() -> None:
    space = notebook(OWN)
    effect = gpu_doctor.case(LOOP.format(draw="x = next(it)"), space).trial({"threads": 1}, steps=3, pairs=1)
    assert effect.outcome in ("completed", "budget-reached") and space["it"].at == 0, effect


def test_any_name_may_be_meant_where_names_stand_in_no_code() -> None:
    space = notebook("it = iter(loader); reader = Reader(); name = 'it'")
    assert len(beforehand(gpu_doctor.case("eval(name)", space)).refusals) == 2


def test_an_iterator_that_a_trainer_keeps_ends_with_its_side() -> None:
    """The garbage collector would end its workers' queues first, and torch then wait 5 s for each worker."""
    loader = DataLoader(TensorDataset(torch.zeros(8)), num_workers=1, multiprocessing_context="fork")
    trainer = SimpleNamespace()
    trainer.itself = trainer
    theirs: Any = iter(loader)
    with parked([]):
        trainer.batches = iter(loader)
        next(trainer.batches)
    assert trainer.batches._shutdown and not theirs._shutdown
    assert len(list(theirs)) == 8


def test_a_loader_that_is_built_in_a_side_is_not_kept_alive() -> None:
    """One that is built anew each epoch would keep its workers and its data until the side is over."""
    with parked([]):
        loader = DataLoader(TensorDataset(torch.ones(4, 1)), 4)
        assert len(list(loader)) == 1
        gone = weakref.ref(loader)
        del loader
        assert gone() is None
