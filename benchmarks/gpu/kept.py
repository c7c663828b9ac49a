"""What a proof has found: `rows.jsonl` of its output folder, a JSON line each, on the disk as soon as it is found.

A line holds the machine of all lines after it, a row of a block, or how a block stands. Later lines replace earlier
ones. Nothing is ever rewritten, so that a process may be ended at any time.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

NAME: Final = "rows.jsonl"
DONE: Final = "done"
FAILED: Final = "failed"
CUT_OFF: Final = "cut off"
"""Its time was over: another call goes on with the rows that are left."""
NEEDS_A_CARD: Final = ("CUDA", "cuda", "NVML", "NVIDIA")
"""An error of a rehearsal has one of these words where the simulated device ends."""
Row = dict[str, Any]
"""`said` in a sentence, `good`: whether its aim is met (None = there is none), `figures`, and `error`: a traceback."""
Work = Callable[[], Row]
Found = dict[str, dict[str, Any]]
"""Block -> its `status`, `seconds`, and `rows` by their keys."""


class OutOfTime(BaseException):
    """A row has had its time; no `except Exception` of a loop takes it."""


def row(said: str, good: bool | None = None, /, **figures: Any) -> Row:
    """Makes a row from a sentence and the figures that it rests on."""
    return {"said": said, "good": good, "figures": figures}


def settled(found: Row) -> bool:
    """Tells whether a row need not be found again: it neither failed nor missed its aim."""
    return not found.get("error") and found.get("good") is not False


def add(out: Path, line: Mapping[str, Any]) -> None:
    """Appends a line and has the system write it to the disk."""
    with (out / NAME).open("a", encoding="utf-8") as file:
        file.write(json.dumps(_plain(line)) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read(out: Path, machine: Mapping[str, Any] | None = None) -> Found:
    """Reads what is kept; only what this machine gave where one is named, as figures of two cards are never mixed."""
    found: Found = {}
    counts = True
    try:
        lines = (out / NAME).read_text(encoding="utf-8").splitlines()
    except OSError:
        return found
    for text in lines:
        try:
            line = json.loads(text)
        except ValueError:  # the process was ended while it wrote this one
            continue
        if "machine" in line:
            counts = machine is None or _same(line["machine"], machine)
        elif counts:
            block = found.setdefault(line["block"], {"status": "", "seconds": 0.0, "rows": {}})
            if "row" in line:
                block["rows"][line["row"]] = {name: line[name] for name in line if name not in ("block", "row")}
            else:
                block["status"] = line["status"]
                block["seconds"] += line["seconds"]
    return found


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(name) == other.get(name) for name in ("card", "simulated", "torch"))


class Stage:
    """Holds what a block works with: its device, its time, its folders, and the rows that it has found."""

    def __init__(
        self,
        block: str,
        out: Path,
        machine: Mapping[str, Any],
        seconds: float,
        work: Path | None = None,
        device: str = "cuda",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args: out: gets `rows.jsonl`. work: for files that the call gathers. device: as torch names it."""
        self.block, self.out, self.machine, self.device = block, out, machine, device
        self.work, self.rehearse = work or out, bool(machine.get("simulated"))
        self._clock, self._ends = clock, clock() + seconds
        kept = read(out, machine).get(block, {"rows": {}})["rows"]
        self.rows: dict[str, Row] = {key: one for key, one in kept.items() if settled(one)}
        self.left: list[str] = []
        """There was no time for these rows."""

    def seconds(self) -> float:
        """Returns the time that is left."""
        return self._ends - self._clock()

    def size(self, full: int, small: int) -> int:
        """Chooses a size for the card or for the rehearsal."""
        return small if self.rehearse else full

    def run(self, works: Mapping[str, Work], share: float = 2.0) -> None:
        """Finds the rows that are not there yet; each may take twice an equal share of the time that is left."""
        waiting = [key for key in works if key not in self.rows]
        for at, key in enumerate(waiting):
            left = self.seconds()
            if left <= 0:
                self.left += waiting[at:]
                return
            self.row(key, works[key], min(left, share * left / (len(waiting) - at)))

    def row(self, key: str, work: Work, seconds: float) -> None:
        """Does the work and keeps what it found; what fails, or takes longer, is kept as a failure."""
        began = self._clock()
        try:
            with limited(seconds):
                found = work()
        except (Exception, OutOfTime) as error:
            found = {"said": f"{type(error).__name__}: {error}"[:300], "good": False, "error": traceback.format_exc()}
            if self.rehearse and any(word in str(error) for word in NEEDS_A_CARD):
                found = row(f"needs a card: {error}"[:300])
        self.keep(key, {**found, "seconds": round(self._clock() - began, 2)})

    def keep(self, key: str, found: Row) -> None:
        """Keeps a row; what was not found on a card says so wherever it is read, and judges nothing."""
        if self.rehearse:
            good = None if not found.get("error") else False
            found = {**found, "said": f"simulated: {found['said']}", "good": good}
        self.rows[key] = found
        print(f"{self.block}: {key}: {found['said']}", flush=True)
        add(self.out, {"block": self.block, "row": key, **found})

    def record(self, name: str, recording: Any) -> None:
        """Keeps a recording under a file's name."""
        folder = self.work / "recordings"
        folder.mkdir(exist_ok=True)
        recording.save(folder / f"{re.sub('[^a-z0-9]+', '-', name.lower())}.npz")

    def status(self) -> str:
        """Tells how the block stands at its end."""
        if any(one.get("error") for one in self.rows.values()):
            return FAILED
        return CUT_OFF if self.left else DONE


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises `OutOfTime` in the main thread after so long, and again and again until it is heard."""

    def over(*_: object) -> None:
        raise OutOfTime(f"it had {seconds:.1f} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01), 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _plain(value: Any) -> Any:
    """Converts to what JSON takes: what is not a number becomes null, a number of numpy or torch a plain one."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if hasattr(value, "item") and not isinstance(value, float):
        return _plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)
