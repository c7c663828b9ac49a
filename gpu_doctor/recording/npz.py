"""How a recording is saved and loaded: one `.npz` of plain arrays with a JSON header, never pickle."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from gpu_doctor import recording_form
from gpu_doctor.facts import (
    Chore,
    EvaluationFacts,
    Flops,
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
LATER: Final = (
    *("syncs", "exposed_wait_s", "exposed_transfer_s", "no_grad_s"),
    *("gpu_forward_s", "gpu_backward_s", "gpu_optimizer_s"),
)
"""Columns of the steps that files of this schema may lack: they were not measured then."""
LARGE_BYTES: Final = 1 << 20
"""Arrays from here on (131 072 rows) are compressed fast, or not at all where that does not pay."""
PIECE_BYTES: Final = 1 << 16
WORTH_IT: Final = 0.8
"""A piece must shrink to less than this."""
_BROKEN: Final = (
    *(OSError, EOFError, LookupError, ValueError, TypeError, AttributeError),
    *(ArithmeticError, MemoryError, RuntimeError),  # an endless number, a claim of 70 TiB; no end of brackets, a cipher
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
        OSError: if it is a directory or cannot be written; what lay there before is then still there.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a directory: name a file in it, such as {target / 'run.npz'}")
    if not target.suffix:
        target = target.with_suffix(".npz")
    arrays, header = _packed(recording)
    header["schema"] = SCHEMA
    packed = json.dumps(header, default=_plain)
    arrays["header"] = np.frombuffer(packed.encode(), dtype=np.uint8)
    _replaced(target, arrays)
    return target


def _plain(one: Any) -> Any:
    """A number of numpy's, as code has it from an array, as Python's own."""
    if isinstance(one, np.generic):
        return one.item()
    raise TypeError(f"A recording holds plain values, and no {type(one).__name__}.")


def _replaced(target: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Writes beside the target and puts it in its place when it is whole: a run that is cut off leaves no half file."""
    target = target.resolve()  # a link stays a link
    if target.exists() and not target.is_file():  # a device or a pipe cannot be replaced
        with target.open("wb") as file:
            _write(file, arrays)
        return
    beside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            _write(file, arrays)
        if target.exists():
            shutil.copymode(target, beside)
        beside.replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(beside):  # name the file that was asked for
            error.filename = str(target)
        raise


def _write(file: IO[bytes], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """What `np.savez_compressed` writes, in a third of its time: of a million steps it alone would take seconds.

    The host clock's times hardly shrink however hard one tries, so a large array is tried on a piece of it: it is
    written as it is where that does not pay.
    """
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as archive:
        for name, array in arrays.items():
            whole = np.ascontiguousarray(array)
            large = whole.nbytes > LARGE_BYTES
            archive.compression = zipfile.ZIP_STORED if large and not _shrinks(whole) else zipfile.ZIP_DEFLATED
            archive.compresslevel = 1 if large else 6
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, whole, allow_pickle=False)


def _shrinks(array: npt.NDArray[Any]) -> bool:
    """Whether a piece from the middle of an array becomes much smaller by being compressed."""
    flat = array.reshape(-1)
    middle = len(flat) // 2
    piece = flat[middle : middle + PIECE_BYTES // flat.itemsize].tobytes()
    return len(zlib.compress(piece, 1)) < WORTH_IT * len(piece)


def load(path: str | Path) -> Recording:
    """Reads a recording that `Recording.save` wrote.

    Raises:
        RecordingError: if the file is missing, truncated, not a recording, or from a newer schema.
        TypeError: if it is no path.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"load() takes the path of a file that recording.save() wrote, not {path!r:.60}.")
    where = Path(path)
    if not where.is_file():
        raise RecordingError(f"There is no recording at {where}: give the path of a file written by recording.save().")
    try:
        # numpy leaves a file open that turns out to be none of its own, so it is opened here.
        with where.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            header = json.loads(bytes(archive["header"]).decode())
            if int(header["schema"]) > SCHEMA:
                raise RecordingError(
                    f"{where} was written by a newer gpu_doctor (schema {header['schema']}, this one reads up to "
                    f"{SCHEMA}): upgrade jupyter-gpu-doctor to open it."
                )
            return recording_form.check(_unpacked(archive, header))
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
        elif item.name in ("traffic", "flops"):
            header[item.name] = None if value is None else dataclasses.asdict(value)
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
        steps=_steps(archive),
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
        written=None if header.get("written") is None else tuple(header["written"]),
        chores=None if chores is None else tuple(Chore(**one) for one in chores),
        looks=header.get("looks"),
        traffic=of_plain(Traffic, header.get("traffic")),
        flops=of_plain(Flops, header.get("flops")),
        **{name: header[name] for name in plain},
    )


def _steps(archive: Mapping[str, Any]) -> Steps:
    named = {name: f"steps.{name}" for name in STEP_COLUMNS}
    found = {name: archive[key] for name, key in named.items() if name not in LATER or key in archive}
    lacking = dict.fromkeys(named.keys() - found.keys(), np.full(len(found["wall_s"]), np.nan))
    return Steps(**{name: np.asarray(values, dtype=np.float64) for name, values in {**found, **lacking}.items()})
