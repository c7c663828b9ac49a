"""Of several loaders in the cells, the one that was seen is changed: told apart by what its arguments say."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils.data import DataLoader

from gpu_doctor.recording import LoaderSetup, Setup
from gpu_doctor.trials import fix as fixing

LOOP = "for x in chosen():\n    model(x).sum().backward()\n    opt.step()\n"
SEEN = LoaderSetup(
    key="loader",
    role="training",
    batch_size=8,
    num_workers=2,
    dataset="",
    sampler="SequentialSampler",
    prefetch_factor=2,
)
DS: Any = [0.0] * 64


def after(cell: str, namespace: dict[str, Any] | None = None, seen: LoaderSetup = SEEN) -> str:
    """The cell with pinned memory for the loader that was seen."""
    names = {"DataLoader": DataLoader, "ds": DS, **(namespace or {})}
    fix = fixing.fix([cell + LOOP], {"pin_memory": True}, Setup(loaders=(seen,)), str, names)
    assert fix.cells, str(fix)
    return fix.cells[0].after.removesuffix(LOOP)


def changed(cell: str, namespace: dict[str, Any] | None = None, seen: LoaderSetup = SEEN) -> list[int]:
    """The numbers of the lines that were changed."""
    lines = zip(cell.splitlines(), after(cell, namespace, seen).splitlines(), strict=True)
    return [number for number, (was, is_now) in enumerate(lines, 1) if was != is_now]


@pytest.mark.parametrize(
    "helper",
    [
        "def made(data, workers=2, size=8): return [DataLoader(data, size, num_workers=workers)]",
        "def made(data, *, size=8, workers=2): return [DataLoader(data, size, num_workers=workers)]",
        "def made(data, /, workers=2, size=8): return [DataLoader(data, num_workers=workers, batch_size=size)]",
    ],
)
def test_by_the_defaults_of_a_helper(helper: str) -> None:
    cell = f"{helper}\nplain = [DataLoader(ds, 8)]\nother = [DataLoader(ds, 2, num_workers=2)]\nmade(ds)\n"
    assert changed(cell) == [1]


def test_by_what_a_name_holds_by_now() -> None:
    cell = "n = 0\nm = 2\na = [DataLoader(ds, 8, num_workers=n)]\nb = [DataLoader(ds, 8, num_workers=m)]\n"
    assert changed(cell, {"n": 0, "m": 2}) == [4]
    assert changed(cell, {"n": 2, "m": 0}) == [3]


def test_a_parameter_is_not_the_name_outside_that_is_spelled_like_it() -> None:
    cell = "n = 0\ndef some(n): return [DataLoader(ds, 8, num_workers=n)]\nplain = [DataLoader(ds, 8, num_workers=0)]\n"
    assert changed(cell, {"n": 0}) == [2], "its callers may have handed it any number"


def test_what_a_helper_only_hands_on_is_changed_at_the_call_of_the_one_that_was_seen() -> None:
    cell = (
        "def made(data, **options): return [DataLoader(data, num_workers=2, **options)]\n"
        "train = made(ds, batch_size=8)\n"
        "held_out = made(ds, batch_size=4)\n"
    )
    assert changed(cell) == [2]


def test_by_the_loader_that_a_name_holds() -> None:
    cell = "a = DataLoader(ds, size, num_workers=many)\nb = DataLoader(ds, size, num_workers=many)\n"
    plain: Any = DataLoader(DS, 8)
    fast: Any = DataLoader(DS, 8, num_workers=2)
    assert changed(cell, {"a": plain, "b": fast}) == [2]
    assert changed(cell, {"a": fast, "b": plain}) == [1]
    assert changed(cell, {"a": DataLoader(DS, 4, num_workers=2), "b": fast}) == [2]


def test_options_are_overridden_where_they_are_spread_and_once() -> None:
    cell = "options = {'batch_size': 8}\noptions['num_workers'] = 2\ntrain = [DataLoader(ds, **options)]\n"
    once = after(cell)
    assert once == cell.replace("**options", '**{**options, "pin_memory": True}')
    fix = fixing.fix([once + LOOP], {"pin_memory": False}, Setup(loaders=(SEEN,)), str, {"DataLoader": DataLoader})
    assert fix.cells[0].after == (once + LOOP).replace("True", "False")


def test_a_class_without_a_readable_signature_takes_the_arguments_of_torchs_loader() -> None:
    class Own(DataLoader[Any]):
        __signature__ = "not told"

    for known in ({"Own": Own}, {}):
        cell = "from own import Own\ntrain = Own(ds, 8)\n" if known else "train = DataLoader(ds, 8)\n"
        fix = fixing.fix([cell + LOOP], {"num_workers": 4, "persistent_workers": True}, Setup(), str, known)
        assert "(ds, 8, num_workers=4, persistent_workers=True)" in fix.cells[0].after, str(fix)


def test_nothing_is_changed_where_there_is_no_cell() -> None:
    fix = fixing.fix([], {"num_workers": 2}, Setup(loaders=(SEEN,)), str, {})
    assert not fix.cells and not fix.complete and fix.paste


def test_a_name_that_its_function_gives_two_values_does_not_tell() -> None:
    twice = "def fast(): n = 0; n = 2; return [DataLoader(ds, 8, num_workers=n)]\n"
    assert changed(f"{twice}plain = [DataLoader(ds, 8, num_workers=0)]\n") == [1]


def test_by_what_options_hold_by_now_where_no_cell_writes_them() -> None:
    cell = "a = [DataLoader(ds, **plain)]\nb = [DataLoader(ds, **fast)]\n"
    plain, fast = ({"batch_size": 8, "num_workers": many, "pin_memory": False} for many in (0, 2))
    assert changed(cell, {"plain": plain, "fast": fast}) == [2]
    assert changed(cell, {"plain": fast, "fast": plain}) == [1]


@pytest.mark.parametrize("parameter", ["options", "*, options", "**options"])
def test_options_that_a_function_is_passed_are_not_those_outside_that_are_spelled_like_them(parameter: str) -> None:
    cell = f"def made({parameter}): return [DataLoader(ds, **options)]\n"
    becomes = cell.replace("ds, **options)", 'ds, **{**options, "pin_memory": True})')
    assert after(cell, {"options": {}}) == becomes
    for outside in ("options = {}\n", "options = {'pin_memory': False}\n", "options = dict(pin_memory=False)\n"):
        assert after(outside + cell) == outside + becomes


@pytest.mark.parametrize(
    "cell",
    [
        "train = [DataLoader(ds, **options(), **more())]\n",
        "def own(data, workers=0, /): return [DataLoader(data, 8, num_workers=workers)]\ntrain = own(ds)\n",
    ],
)
def test_an_argument_that_might_be_passed_twice_or_not_be_taken_is_left_to_paste(cell: str) -> None:
    fix = fixing.fix([cell + LOOP], {"num_workers": 4}, Setup(loaders=(SEEN,)), str, {"DataLoader": DataLoader})
    assert not fix.cells and not fix.complete and fix.notes
