"""How a recording is saved and loaded: one `.npz` of plain arrays with a JSON header, never pickle."""

from __future__ import annotations

import dataclasses
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpu_doctor.facts import (
    Chore,
    EvaluationFacts,
    InputFacts,
    ModelFacts,
    OptimizerFacts,
    Traffic,
    World,
    of_plain,
)
from gpu_doctor.recording import DeviceSetup, Fetch, LineCost, LoaderSetup, Losses, Metric, Recording, Series, Setup
from gpu_doctor.steps import STEP_COLUMNS, Steps

_FACTS: Final = {"model": ModelFacts, "inputs": InputFacts, "evaluation": EvaluationFacts, "world": World}
SCHEMA: Final = 1
"""Number of the file format; a file with a higher one was written by a newer gpu_doctor and is refused."""


_BROKEN: Final = (
    *(OSError, EOFError, KeyError, ValueError, TypeError, AttributeError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error),
)
"""What reading a damaged file may raise, in zipfile, numpy, json and our own types."""


class RecordingError(ValueError):
    """A file is not a readable recording; the message says in one sentence what to do."""


def save(recording: Recording, path: str | Path) -> Path:
    """Writes a recording as a compressed `.npz` with a JSON header; never pickle.

    Returns:
        The path written (with `.npz` added if it had no suffix).

    Raises:
        OSError: if it is a directory or cannot be written.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a directory: name a file in it, such as {target / 'run.npz'}")
    if not target.suffix:
        target = target.with_suffix(".npz")
    arrays, header = _packed(recording)
    header["schema"] = SCHEMA
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with target.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return target


def load(path: str | Path) -> Recording:
    """Reads a recording that `Recording.save` wrote.

    Raises:
        RecordingError: if the file is missing, truncated, not a recording, or from a newer schema.
    """
    where = Path(path)
    if not where.is_file():
        raise RecordingError(f"There is no recording at {where}: give the path of a file written by recording.save().")
    try:
        with np.load(where, allow_pickle=False) as archive:
            header = json.loads(bytes(archive["header"]).decode())
            if int(header["schema"]) > SCHEMA:
                raise RecordingError(
                    f"{where} was written by a newer gpu_doctor (schema {header['schema']}, this one reads up to "
                    f"{SCHEMA}): upgrade jupyter-gpu-doctor to open it."
                )
            return _unpacked(archive, header)
    except RecordingError:
        raise
    except _BROKEN as error:
        raise RecordingError(
            f"{where} is not a complete gpu_doctor recording ({type(error).__name__}): save it again, "
            "or copy it again if the copy broke off."
        ) from error


def _packed(recording: Recording) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Arrays and JSON header of a recording; `_unpacked` is its inverse."""
    arrays: dict[str, npt.NDArray[Any]] = {f"steps.{n}": getattr(recording.steps, n) for n in STEP_COLUMNS}
    header: dict[str, Any] = {}
    for item in dataclasses.fields(Recording):
        value = getattr(recording, item.name)
        if item.name == "steps":
            continue
        if item.name == "series":
            header["series"] = [dataclasses.asdict(one.metric) for one in value]
            for i, one in enumerate(value):
                arrays[f"series.{i}.times_s"], arrays[f"series.{i}.values"] = one.times_s, one.values
        elif item.name == "fetches":
            header["fetches"] = [{**dataclasses.asdict(one), "walls_s": None} for one in value]
            for i, one in enumerate(value):
                arrays[f"fetches.{i}.walls_s"] = one.walls_s
        elif item.name == "losses":
            for name in ("step", "samples", "value"):
                arrays[f"losses.{name}"] = getattr(value, name)
        elif item.name == "setup":
            header["setup"] = dataclasses.asdict(value)
        elif item.name == "lines":
            header["lines"] = [dataclasses.asdict(one) for one in value]
        elif item.name == "chores":
            header["chores"] = None if value is None else [dataclasses.asdict(one) for one in value]
        elif item.name == "traffic":
            header["traffic"] = None if value is None else dataclasses.asdict(value)
        else:
            header[item.name] = dict(value) if isinstance(value, Mapping) else value
    return arrays, header


def _unpacked(archive: Mapping[str, Any], header: dict[str, Any]) -> Recording:
    """The recording of `_packed`'s arrays and header; unknown keys of the header are ignored."""
    setup = dict(header["setup"])
    setup["loaders"] = tuple(LoaderSetup(**one) for one in setup["loaders"])
    setup["devices"] = tuple(
        DeviceSetup(**{**one, "capability": tuple(one["capability"]) if one["capability"] else None})
        for one in setup["devices"]
    )
    for name, kind in _FACTS.items():
        setup[name] = of_plain(kind, setup.get(name))
    optimizers = setup.get("optimizer_facts")
    setup["optimizer_facts"] = None if optimizers is None else tuple(OptimizerFacts(**one) for one in optimizers)
    chores = header.get("chores")
    setup["models"], setup["optimizers"] = tuple(setup["models"]), tuple(setup["optimizers"])
    plain = {"settings", "outcome", "reason", "name", "source", "started_at", "duration_s", "overhead_s", "peak_bytes"}
    return Recording(
        steps=Steps(**{name: np.asarray(archive[f"steps.{name}"], dtype=np.float64) for name in STEP_COLUMNS}),
        setup=Setup(**setup),
        series=tuple(
            Series(Metric(**metric), archive[f"series.{i}.times_s"], archive[f"series.{i}.values"])
            for i, metric in enumerate(header["series"])
        ),
        fetches=tuple(
            Fetch(**{**one, "walls_s": archive[f"fetches.{i}.walls_s"]}) for i, one in enumerate(header["fetches"])
        ),
        lines=tuple(LineCost(**one) for one in header["lines"]),
        losses=Losses(*(archive[f"losses.{name}"] for name in ("step", "samples", "value"))),
        notes=tuple(header["notes"]),
        chores=None if chores is None else tuple(Chore(**one) for one in chores),
        traffic=of_plain(Traffic, header.get("traffic")),
        **{name: header[name] for name in plain},
    )
