"""What holds of a snapshot for every state: whatever a cell does to it, it is back, in the same objects."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_doctor.trials.snapshot.snapshot import Snapshot
from tests.support.everything import Everything
from tests.support.properties import examples
from tests.support.properties import hypothesis_is_set_up as hypothesis_is_set_up

CHECK: Final = examples(60)
MOST: Final = 9
"""Objects of a state."""


class Box:
    """An instance of the user's."""


class OtherBox(Box):
    """What one may become."""


@pytest.fixture(autouse=True)
def the_process_as_it_was() -> Iterator[None]:
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(kept[0])
    np.random.set_state(kept[1])
    torch.set_rng_state(kept[2])


# ---- states ---------------------------------------------------------------------------------------------------------


def _leaf(pick: Callable[[int], int]) -> torch.Tensor:
    made = torch.arange(float(2 + pick(3)), requires_grad=bool(pick(2)))
    if made.requires_grad and pick(2):
        made.grad = torch.ones_like(made)
    return made


def _optimizer(pick: Callable[[int], int]) -> Any:
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.full((3,), 0.5)
    made = (torch.optim.Adam, torch.optim.SGD)[pick(2)]([weight], lr=0.1)
    if pick(2):
        made.step()
    return made


def _module(pick: Callable[[int], int]) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))


MADE: Final[tuple[Callable[[Callable[[int], int]], Any], ...]] = (
    lambda pick: [],
    lambda pick: {},
    lambda pick: collections.OrderedDict(),
    lambda pick: collections.deque(maxlen=None),
    lambda pick: set(range(pick(4))),
    lambda pick: Box(),
    lambda pick: bytearray(b"abc"),
    lambda pick: np.arange(4.0),
    lambda pick: np.random.default_rng(pick(9)),
    lambda pick: random.Random(pick(9)),
    lambda pick: torch.Generator().manual_seed(pick(9)),
    _leaf,
    _optimizer,
    _module,
)


def _held(holder: Any, value: Any, number: int) -> None:
    """Lets a container or an instance hold something, itself perhaps."""
    if isinstance(holder, (list, collections.deque)):
        holder.append(value)
    elif isinstance(holder, dict):
        holder[f"k{number}"] = value
    elif isinstance(holder, Box):
        setattr(holder, f"a{number}", value)


@st.composite
def states(draw: st.DrawFn) -> tuple[dict[str, Any], list[Any]]:
    """Some names, and all objects below them: shared, in circles, with views of one tensor or array."""

    def pick(below: int) -> int:
        return draw(st.integers(0, below - 1))

    objects: list[Any] = []
    for _ in range(draw(st.integers(1, MOST))):
        base = objects[pick(len(objects))] if objects and pick(4) == 0 else None
        if isinstance(base, torch.Tensor):
            objects.append(base.detach()[: 1 + pick(2)])
        elif isinstance(base, np.ndarray):
            objects.append(base[pick(2) :: 2])
        else:
            objects.append(MADE[pick(len(MADE))](pick))
    for number in range(draw(st.integers(0, 2 * MOST))):
        _held(objects[pick(len(objects))], objects[pick(len(objects))], number)
    space = {f"n{at}": one for at, one in enumerate(objects) if at == 0 or pick(2)}
    return {"__name__": "__main__", **space, "all_of_them": objects}, objects


# ---- what a cell does -----------------------------------------------------------------------------------------------


def _change_tensor(one: torch.Tensor, way: int, other: Any) -> None:
    with torch.no_grad():
        if way == 0:
            one.add_(1.0)
        elif way == 1:
            one.data = torch.zeros(5, dtype=torch.float64)
        elif way == 2 and one.is_leaf and one.dtype == torch.float32:
            one.grad = torch.full_like(one, 7.0)
        elif way == 3 and one.is_leaf:
            one.requires_grad_(not one.requires_grad)
        elif way == 4 and one.grad is not None:
            one.grad.mul_(3.0)
        else:
            one.grad = None


def _change_optimizer(one: torch.optim.Optimizer, way: int, other: Any) -> None:
    if way == 0:
        one.param_groups[0]["lr"] = 9.0
    elif way == 1:
        one.add_param_group({"params": [torch.nn.Parameter(torch.zeros(2))]})
    elif way == 2:
        one.state.clear()
    elif way == 3:
        one.load_state_dict(one.state_dict())
    else:
        one.step()


def _change_module(one: Any, way: int, other: Any) -> None:
    if way == 0:
        one.eval()
    elif way == 1:
        one.add_module("new", torch.nn.ReLU())
    elif way == 2:
        one[0].weight = torch.nn.Parameter(torch.zeros(2, 2))
    elif way == 3:
        one.double()
    else:
        one.train()
        one.to(torch.float32)[1](torch.ones(3, 2))


def _change_row(one: Any, way: int, other: Any) -> None:
    if way == 0:
        one.clear()
    elif way == 1:
        one.reverse()
    elif way == 2 and one:
        one[0] = other
    else:
        one.append(other)


def _change_dict(one: dict[Any, Any], way: int, other: Any) -> None:
    key = next(iter(one), "new")
    if way == 0:
        one.clear()
    elif way == 1 and one:
        one[key] = one.pop(key)  # the order alone, where there are two
    elif way == 2:
        one[key] = other
    elif way == 3 and isinstance(one, collections.OrderedDict) and one:
        one.move_to_end(key)
    else:
        one["new"] = other


def _change_box(one: Box, way: int, other: Any) -> None:
    if way == 0:
        vars(one).clear()
    elif way == 1:
        one.__class__ = OtherBox
    else:
        one.new = other  # type: ignore[attr-defined]


def _change(one: Any, way: int, other: Any) -> None:
    """Does something to an object, of what code does to such ones."""
    if isinstance(one, torch.Tensor):
        _change_tensor(one, way, other)
    elif isinstance(one, torch.optim.Optimizer):
        _change_optimizer(one, way, other)
    elif isinstance(one, torch.nn.Module):
        _change_module(one, way, other)
    elif isinstance(one, (list, collections.deque)):
        _change_row(one, way, other)
    elif isinstance(one, dict):
        _change_dict(one, way, other)
    elif isinstance(one, Box):
        _change_box(one, way, other)
    elif isinstance(one, set):
        (one.clear if way == 0 else lambda: one.add(99))()
    elif isinstance(one, bytearray):
        (one.clear if way == 0 else lambda: one.extend(b"more"))()
    elif isinstance(one, np.ndarray):
        one += 1.0
    elif isinstance(one, torch.Generator):
        one.manual_seed(1 + way)
    else:
        one.random()


Changes = list[tuple[int, int, int]]
CHANGES: Final = st.lists(st.tuples(*[st.integers(0, 99)] * 3), min_size=1, max_size=12)


def happens(space: dict[str, Any], objects: list[Any], changes: Changes) -> None:
    """Runs the changes, as a cell would, and draws from every generator of the process."""
    every = list(objects)
    for which, way, other in changes:
        _change(every[which % len(every)], way % 6, every[other % len(every)])
    names = [name for name in space if not name.startswith("__")]
    space.pop(names[len(changes) % len(names)])
    space["new"] = every[0]
    _ = random.random(), np.random.rand(), torch.rand(1)


# ---- the properties --------------------------------------------------------------------------------------------------


@CHECK
@given(states(), CHANGES, CHANGES)
def test_whatever_happened_everything_is_back_in_the_same_objects(
    state: tuple[dict[str, Any], list[Any]], first: Changes, second: Changes
) -> None:
    """Twice, as both sides of a trial begin from one snapshot."""
    space, objects = state
    before = Everything(space)
    snapshot = Snapshot.take(space)
    assert before.differences(Everything(space)) == [], "taking it changes nothing"
    for changes in (first, second):
        happens(space, objects, changes)
        assert snapshot.restore() == ()
        assert before.differences(Everything(space)) == []


@CHECK
@given(states())
def test_where_nothing_happened_nothing_is_written(state: tuple[dict[str, Any], list[Any]]) -> None:
    space, _ = state
    before = Everything(space)
    assert Snapshot.take(space).restore() == () and before.differences(Everything(space)) == []
