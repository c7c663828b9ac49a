"""A job of several ranks: their recordings side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

from gpu_doctor.diagnosis import NAMING_BAR
from gpu_doctor.formatting import clean, count, pretty, seconds, share
from gpu_doctor.job import shares, words
from gpu_doctor.job.rank import Rank
from gpu_doctor.job.shares import Remark
from gpu_doctor.job.waiting import LATE_SHARE, Waiting, waiting
from gpu_doctor.labels import PHASE_LABELS

PHASE_WORDS: Final = {**PHASE_LABELS, "other": "own Python"}
RARE: Final = ("sync", "evaluation")
"""Phases without a column where no rank spends time in them."""


@dataclass(frozen=True)
class Missing:
    """A rank without a recording."""

    number: int | None
    """None: it began without knowing its rank."""
    began_at: float | None = None
    """Unix time; None = nothing says that it ever began."""
    host: str = ""
    runs: bool = False
    """Its process is still there, on this machine."""

    @property
    def state(self) -> str:
        """In a few words."""
        if self.began_at is None:
            return "missing: never began"
        return "has not ended yet" if self.runs else "missing: began, never ended"


@dataclass(frozen=True)
class Job:
    """What `gpu_doctor.load(folder)` gives: the ranks that left a recording, and what they say side by side.

    `print(job)` shows the table; in a notebook it is the cell's last expression. `job.ranks[1].recording()` is the
    whole recording of a rank, for `gpu_doctor.diagnose`.

    Example:
        >>> import gpu_doctor
        >>> import tempfile
        >>> import torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with gpu_doctor.watch(folder=folder):
        ...         for inputs in torch.utils.data.DataLoader(torch.rand(64, 8), batch_size=16):
        ...             pass
        ...     job = gpu_doctor.load(folder)
        >>> job.world_size, job.ranks[0].number
        (1, 0)
    """

    ranks: tuple[Rank, ...]
    """By their numbers."""
    world_size: int
    """Ranks that the job has, as far as those that left a recording say."""
    missing: tuple[Missing, ...] = ()
    folder: str = ""
    notes: tuple[str, ...] = ()
    """On files that are no part of the job."""

    @cached_property
    def waiting(self) -> Waiting:
        """Who waits for whom."""
        return waiting(self.ranks)

    @cached_property
    def remarks(self) -> tuple[Remark, ...]:
        """What is wrong with the job: ranks that are missing or were cut off first, then by what it costs."""
        ended = (*_missing(self.missing), *_cut_off(self.ranks), *_late(self.ranks))
        compared = (*_waiting(self.waiting), *shares.data(self.ranks), *shares.cores_of_hosts(self.ranks))
        return (*ended, *compared, *shares.gpus(self.ranks))

    def to_dict(self) -> dict[str, Any]:
        """The job as plain data (strings, numbers, lists, dicts, None), ready for JSON."""
        return {
            "folder": self.folder,
            "world_size": self.world_size,
            "ranks": [one.to_dict() for one in self.ranks],
            "missing": [{**asdict(one), "state": one.state} for one in self.missing],
            "waiting": {**asdict(self.waiting), "waits_s": {str(k): v for k, v in self.waiting.waits_s.items()}},
            "remarks": [asdict(one) for one in self.remarks],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return words.text(self.head, self.remarks, self.rows, self.footer)

    def _repr_html_(self) -> str:
        return words.html(self.head, self.remarks, self.rows, self.footer)

    _repr_pretty_ = pretty

    @property
    def head(self) -> str:
        """How many ranks there are."""
        wrong = f", {len(self.ranks)} of them with a recording" if len(self.ranks) < self.world_size else ""
        hosts = len({one.host for one in self.ranks} | {one.host for one in self.missing if one.host}) or 1
        return f"Job of {count(self.world_size, 'rank')} on {count(hosts, 'machine')}{wrong}"

    @property
    def rows(self) -> list[dict[str, str]]:
        """The table: a row a rank, its cells by their headings; a column that no rank measured is left out."""
        rows = [_row(one, self.waiting) for one in self.ranks]
        rows += [{"rank": "?" if one.number is None else str(one.number), "state": one.state} for one in self.missing]
        names = [name for name in rows[0] if any(row.get(name) for row in rows)] if rows else []
        rows.sort(key=lambda row: int(row["rank"]) if row["rank"].isdecimal() else self.world_size)
        return [{name: row.get(name, "") for name in names} for row in rows]

    @property
    def footer(self) -> list[str]:
        """How to read the table, and notes."""
        said = ["Times are of one step after warm-up, by each host's clock."] if self.ranks else []
        if self.waiting.reason and len(self.ranks) > 1:
            said.append(f"Who waits for whom is not known: {self.waiting.reason}.")
        elif self.waiting.waits_s:
            said.append(
                "waits for others: by how much shorter the rank's own work is than that of the last rank of the step, "
                "which it waits for in its backward."
            )
        return said + [clean(note) for note in self.notes]


def _row(one: Rank, found: Waiting) -> dict[str, str]:
    wait = found.waits_s.get(one.number)
    taken = {PHASE_WORDS[name]: "" if name in RARE and not took else _cell(took) for name, took in one.phases_s.items()}
    return {
        "rank": str(one.number),
        "steps": str(one.steps),
        "step": _cell(one.step_s),
        **taken,
        "waits for others": _cell(wait),
        "GPU busy": "" if one.gpu_busy_share is None else share(one.gpu_busy_share),
        "samples": "" if one.samples is None else str(int(one.samples)),
        "state": clean(one.outcome, 40) + ("  <- last" if one.number == found.straggler else ""),
    }


def _cell(took_s: float | None) -> str:
    return "" if took_s is None else seconds(took_s)


def _missing(missing: Sequence[Missing]) -> Iterator[Remark]:
    for one in missing:
        name = "A process that did not know its rank" if one.number is None else f"Rank {one.number}"
        where = f" on {clean(one.host, 80)}" if one.host else ""
        if one.began_at is None:
            yield Remark(
                "ranks", f"{name} is missing: nothing says that it began.", "Is it watched, in the same folder?"
            )
        elif one.runs:
            yield Remark("ranks", f"{name}{where} has not ended yet: load the folder again later.")
        else:
            yield Remark(
                "ranks", f"{name}{where} is missing: it began and never ended. It was killed, or the machine was lost."
            )


def _cut_off(ranks: Sequence[Rank]) -> Iterator[Remark]:
    for one in ranks:
        if one.outcome != "completed":
            why = f": {clean(one.reason, 200)}" if one.reason else ""
            yield Remark(
                "ranks", f"Rank {one.number} was cut off after {count(one.steps, 'step')}, {one.outcome}{why}."
            )
    done = [one for one in ranks if one.outcome == "completed"]
    short = min(done, key=lambda one: one.steps, default=None)
    if short is not None and short.steps < max(one.steps for one in ranks):
        yield Remark(
            "ranks",
            f"Rank {short.number} took {count(short.steps, 'step')}, others up to {max(one.steps for one in ranks)}: "
            "what lies behind them is not compared.",
        )


def _late(ranks: Sequence[Rank]) -> Iterator[Remark]:
    """A rank that takes its first step long after the first one did; several hosts may have several times."""
    begun = {one.number: one.started_at + one.first_step_s for one in ranks if one.first_step_s is not None}
    if len(begun) < 2:
        return
    last, first = max(begun, key=lambda number: begun[number]), min(begun.values())
    late_s, whole_s = begun[last] - first, max(one.duration_s for one in ranks)
    if late_s >= NAMING_BAR * whole_s:
        yield Remark(
            "ranks", f"Rank {last} begins its first step {seconds(late_s)} after the first rank, by the hosts' clocks."
        )


def _waiting(found: Waiting) -> Iterator[Remark]:
    if found.straggler is not None:
        longest = (
            f" Its {PHASE_WORDS[found.phase]} takes {seconds(found.phase_s)} longer than theirs." if found.phase else ""
        )
        yield Remark(
            "waiting",
            f"The others wait for rank {found.straggler}. Its own work takes {seconds(found.late_s)} longer than that "
            f"of the next slowest rank: at most {share(found.late_share)} of a step would be gone.{longest}",
            f"Look at the diagnosis of rank {found.straggler}'s own recording.",
            found.late_share,
        )
    elif found.waiting_share >= LATE_SHARE:
        yield Remark(
            "waiting",
            f"The ranks wait for each other {share(found.waiting_share)} of a step: now one is the last, now another.",
            "Make the steps of all ranks alike, such as by batches of like lengths.",
            found.waiting_share,
        )
