"""What a part has found, a row at a time, in `parts/<name>.json` of the output folder: nothing that ran runs again."""

from __future__ import annotations

import json
import math
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

DONE: Final = "done"
FAILED: Final = "failed"
CUT_OFF: Final = "cut off"
"""Its time was over: another call goes on with the rows that are left."""
RUNNING: Final = "running"
Row = dict[str, Any]
"""`said` in a sentence, `good`: whether its aim is met (None = there is none), `figures`, and `error`: a traceback."""


def row(said: str, good: bool | None = None, /, **figures: Any) -> Row:
    """What a row says and the figures that it rests on."""
    return {"said": said, "good": good, "figures": figures}


def place(out: Path, part: str) -> Path:
    """The file of a part."""
    return out / "parts" / f"{part}.json"


def read(out: Path, part: str) -> dict[str, Any]:
    """What is kept of a part; empty if nothing is, or what lies there cannot be read."""
    try:
        found = json.loads(place(out, part).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("rows"), dict) else {}


def write(out: Path, part: str, found: Mapping[str, Any]) -> None:
    """Keeps it: whole or not at all, whenever the process is ended."""
    path = place(out, part)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(_finite(found), indent=1), encoding="utf-8")
    beside.replace(path)


def same_machine(found: Mapping[str, Any], machine: Mapping[str, Any]) -> bool:
    """Whether it was found where we are now: figures of two cards are never mixed."""
    told = found.get("machine", {})
    return all(told.get(name) == machine.get(name) for name in ("card", "simulated", "torch"))


class Stage:
    """Where a part works: its device, its time, and the rows that it has found."""

    def __init__(
        self,
        part: str,
        out: Path,
        machine: Mapping[str, Any],
        seconds: float,
        rehearse: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.part, self.out, self.machine, self.rehearse = part, out, machine, rehearse
        self.device = "cpu" if rehearse else "cuda"
        self._clock, self._began = clock, clock()
        self._ends = self._began + seconds
        before = read(out, part)
        kept: dict[str, Row] = before.get("rows", {}) if same_machine(before, machine) else {}
        self.rows = {key: one for key, one in kept.items() if not one.get("error")}
        self._earlier_s = float(before.get("seconds", 0.0)) if kept else 0.0
        self.left: list[str] = []
        """Rows for which there was no time."""

    def seconds(self) -> float:
        """What is left of its time."""
        return self._ends - self._clock()

    def size(self, full: int, small: int) -> int:
        """A size for the card, or for the rehearsal."""
        return small if self.rehearse else full

    def row(self, key: str, work: Callable[[], Row], needs_s: float = 0.0) -> None:
        """Does the work and keeps what it found, unless that is there already or the time is over.

        What fails is kept as a failure, and the part goes on.
        """
        if key in self.rows:
            return
        if self.seconds() <= needs_s:
            self.left.append(key)
            return
        try:
            found = work()
        except Exception as error:
            found = {"said": f"{type(error).__name__}: {error}"[:300], "good": False, "error": traceback.format_exc()}
        self.keep(key, found)

    def keep(self, key: str, found: Row) -> None:
        """Keeps a row; what was not found on a card says so wherever it is read."""
        self.rows[key] = found if not self.rehearse else {**found, "said": f"simulated: {found['said']}"}
        print(f"{self.part}: {key}: {self.rows[key]['said']}", flush=True)
        self.save(RUNNING)

    def save(self, status: str, error: str = "") -> None:
        """Keeps all that there is."""
        seconds = self._earlier_s + self._clock() - self._began
        found: dict[str, Any] = {"part": self.part, "status": status, "seconds": round(seconds, 1), "error": error}
        write(self.out, self.part, {**found, "machine": dict(self.machine), "left": self.left, "rows": self.rows})

    def end(self, error: str = "") -> str:
        """The part is over; says how."""
        failed = bool(error) or any(one.get("error") for one in self.rows.values())
        status = FAILED if failed else CUT_OFF if self.left else DONE
        self.save(status, error)
        return status


def ended_by_force(out: Path, part: str, machine: Mapping[str, Any], status: str, why: str) -> None:
    """Notes that a part's process ended without a word of its own; its rows stay."""
    found = read(out, part)
    if not found or not same_machine(found, machine):
        found = {"part": part, "seconds": 0.0, "machine": dict(machine), "left": [], "rows": {}}
    write(out, part, {**found, "status": status, "error": why})


def forget(out: Path, parts: tuple[str, ...]) -> None:
    """Nothing of these parts was ever found."""
    for part in parts:
        for path in (place(out, part), out / "logs" / f"{part}.txt"):
            path.unlink(missing_ok=True)


def _finite(value: Any) -> Any:
    """As JSON takes it: what is not a number is null, and a number of numpy or torch is a plain one."""
    if isinstance(value, Mapping):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_finite(one) for one in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if hasattr(value, "item") and not isinstance(value, float):
        return _finite(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)
