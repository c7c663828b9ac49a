"""Checks the arguments of a sweep and of a search for the largest batch. Needs no torch: the panel uses it."""

from __future__ import annotations

import importlib.util
import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from gpu_doctor.recording import SettingValue, Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.found_loaders import trained_from
from gpu_doctor.trials.knobs.knob import Refused

SWEEP_TRIALS: Final = 32
"""Default largest number of combinations in a sweep: half an hour of trials at worst."""


NO_RAY: Final = "A sweep runs on Ray Tune, which is not installed: pip install 'jupyter-gpu-doctor[ray]'"
NEEDED: Final = ("ray", "pyarrow", "pandas", "fsspec", "requests")
"""Packages that Ray Tune imports, Ray first: `pip install ray` alone does not install the others."""


def no_ray() -> str:
    """Returns why no sweep can run here, one sentence; empty where Ray Tune is installed. Nothing of it is imported."""
    return "" if all(map(_installed, NEEDED)) else NO_RAY


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # a module of that name that somebody made by hand
        return name in sys.modules
    except ImportError:
        return False


def no_largest(setup: Setup) -> str:
    """Returns why no largest batch can be looked for in a loop, one sentence; empty where it can."""
    loader = trained_from(setup)  # where the memory ran out in the first step, nobody learned what trains
    if not setup.on_gpu:
        return "The loop does not use a GPU: CPU memory is shared, so there is no largest batch."
    if loader is None or not loader.batch_size:
        return "The loop uses no DataLoader with a batch size."
    try:
        knobs.allow({"batch_size": 2 * loader.batch_size}, setup)
    except Refused as refused:
        return str(refused)
    return ""


def combinations(grid: Mapping[str, Sequence[SettingValue]], most: int) -> list[dict[str, SettingValue]]:
    """Every combination of a grid, the last knob turning fastest; values that are given twice count once.

    Raises:
        ValueError: if the grid is empty, names what is no knob, has a knob without values, or is too large.
        TypeError: if it is no mapping of knobs to lists.
    """
    form = "{'num_workers': [0, 2, 4], 'batch_size': [32, 64]}"
    if not isinstance(grid, Mapping):
        raise TypeError(f"A sweep takes a dict of knobs and the values to try, such as {form}, not {grid!r:.60}.")
    if not grid:
        raise ValueError(f"A sweep needs at least one knob with the values to try, such as {form}.")
    axes: list[list[tuple[str, SettingValue]]] = []
    for name, values in grid.items():
        try:
            knob = knobs.known(name)
        except Refused as unknown:
            raise ValueError(str(unknown)) from None
        if knob.bounds_only:
            raise ValueError(f"{name} measures a bound and is no setting to find: try it as a trial of its own.")
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise TypeError(f"The values of {name} are a list, such as {form}, not {values!r:.60}.")
        if not values:
            raise ValueError(f"{name} has no values to try: give at least one, or leave it out.")
        axes.append([(name, value) for value in _once_each(values)])
    count = math.prod(len(axis) for axis in axes)
    if count > most:
        raise ValueError(
            f"The grid has {count} combinations, and a sweep takes {most}: give fewer values, or max_trials={count}."
        )
    return [dict(settings) for settings in itertools.product(*axes)]


def _once_each(values: Sequence[SettingValue]) -> list[SettingValue]:
    """Returns the values in order, without repeats; True and 1 are two values."""
    kept: list[SettingValue] = []
    for value in values:
        if not any(type(value) is type(other) and value == other for other in kept):
            kept.append(value)
    return kept
