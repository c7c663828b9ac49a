"""A job of several ranks: the comparison of their recordings."""

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
"""Phases that get a column only if a rank spends time in them."""


@dataclass(frozen=True)
class Missing:
    """A rank without a recording."""

    number: int | None
    """Rank; None if the process did not know it when it began."""
    began_at: float | None = None
    """Start as Unix time in seconds; None if the rank left no mark."""
    host: str = ""
    runs: bool = False
    """True if its process still runs on this machine."""

    @property
    def state(self) -> str:
        """State of the rank in a few words."""
        if self.began_at is None:
            return "missing: never began"
        return "has not ended yet" if self.runs else "missing: began, never ended"


@dataclass(frozen=True)
class Job:
    """The ranks of a job and their comparison, as `gpu_doctor.load(folder)` returns them.

    `print(job)` shows the table; so does a notebook if the job is the cell's last expression.
    `job.ranks[1].recording()` loads the whole recording of a rank, for `gpu_doctor.diagnose`.

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
    """Ranks with a recording, sorted by number."""
    world_size: int
    """Number of ranks of the job, according to the recordings and marks."""
    missing: tuple[Missing, ...] = ()
    folder: str = ""
    notes: tuple[str, ...] = ()
    """Notes on files in the folder that do not belong to the job."""

    @cached_property
    def waiting(self) -> Waiting:
        """How long each rank waits for the others, and the straggler if there is one."""
        return waiting(self.ranks)

    @cached_property
    def remarks(self) -> tuple[Remark, ...]:
        """Problems of the job: ranks that are missing, cut off or late first, then the results of the comparison."""
        ended = (*_missing(self.missing), *_cut_off(self.ranks), *_late(self.ranks))
        compared = (*_waiting(self.waiting), *shares.data(self.ranks), *shares.cores_of_hosts(self.ranks))
        return (*ended, *compared, *shares.gpus(self.ranks))

    def to_dict(self) -> dict[str, Any]:
        """Returns the job as plain data (strings, numbers, lists, dicts, None), ready for JSON."""
        return {
            "folder": self.folder,
            "world_size": self.world_size,
            "ranks": [entry.to_dict() for entry in self.ranks],
            "missing": [{**asdict(entry), "state": entry.state} for entry in self.missing],
            "waiting": {**asdict(self.waiting), "waits_s": {str(k): v for k, v in self.waiting.waits_s.items()}},
            "remarks": [asdict(entry) for entry in self.remarks],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return words.text(self.head, self.remarks, self.rows, self.footer)

    def _repr_html_(self) -> str:
        return words.html(self.head, self.remarks, self.rows, self.footer)

    _repr_pretty_ = pretty

    @property
    def head(self) -> str:
        """Headline of the job: its numbers of ranks and machines."""
        wrong = f", {len(self.ranks)} of them with a recording" if len(self.ranks) < self.world_size else ""
        hosts = len({rank.host for rank in self.ranks} | {rank.host for rank in self.missing if rank.host}) or 1
        return f"Job of {count(self.world_size, 'rank')} on {count(hosts, 'machine')}{wrong}"

    @property
    def rows(self) -> list[dict[str, str]]:
        """Rows of the table, one per rank, with cells by column title; columns that no rank measured are left out."""
        rows = [_row(rank, self.waiting) for rank in self.ranks]
        rows += [
            {"rank": "?" if rank.number is None else str(rank.number), "state": rank.state} for rank in self.missing
        ]
        names = [name for name in rows[0] if any(row.get(name) for row in rows)] if rows else []
        rows.sort(key=lambda row: int(row["rank"]) if row["rank"].isdecimal() else self.world_size)
        return [{name: row.get(name, "") for name in names} for row in rows]

    @property
    def footer(self) -> list[str]:
        """Sentences that explain the table, and the notes."""
        sentences = ["Times are of one step after warm-up, by each host's clock."] if self.ranks else []
        if self.waiting.reason and len(self.ranks) > 1:
            sentences.append(f"Who waits for whom is unknown: {self.waiting.reason}.")
        elif self.waiting.waits_s:
            sentences.append(
                "waits for others: the rank's own work in a step is this much shorter than that of the slowest rank, "
                "which it waits for in its backward."
            )
        return sentences + [clean(note) for note in self.notes]


def _row(rank: Rank, found: Waiting) -> dict[str, str]:
    wait = found.waits_s.get(rank.number)
    taken = {
        PHASE_WORDS[name]: "" if name in RARE and not took else _cell(took) for name, took in rank.phases_s.items()
    }
    return {
        "rank": str(rank.number),
        "steps": str(rank.steps),
        "step": _cell(rank.step_s),
        **taken,
        "waits for others": _cell(wait),
        "GPU busy": "" if rank.gpu_busy_share is None else share(rank.gpu_busy_share),
        "samples": "" if rank.samples is None else str(int(rank.samples)),
        "state": clean(rank.outcome, 40) + ("  <- last" if rank.number == found.straggler else ""),
    }


def _cell(took_s: float | None) -> str:
    return "" if took_s is None else seconds(took_s)


def _missing(missing: Sequence[Missing]) -> Iterator[Remark]:
    for absent in missing:
        name = "A process that did not know its rank" if absent.number is None else f"Rank {absent.number}"
        where = f" on {clean(absent.host, 80)}" if absent.host else ""
        if absent.began_at is None:
            yield Remark(
                "ranks", f"{name} is missing: it left no mark.", "Check that it is watched and uses the same folder."
            )
        elif absent.runs:
            yield Remark("ranks", f"{name}{where} has not ended yet: load the folder again later.")
        else:
            yield Remark(
                "ranks", f"{name}{where} is missing: it began and never ended. It was killed, or the machine was lost."
            )


def _cut_off(ranks: Sequence[Rank]) -> Iterator[Remark]:
    for rank in ranks:
        if rank.outcome != "completed":
            why = f": {clean(rank.reason, 200)}" if rank.reason else ""
            yield Remark(
                "ranks", f"Rank {rank.number} was cut off after {count(rank.steps, 'step')}, {rank.outcome}{why}."
            )
    done = [rank for rank in ranks if rank.outcome == "completed"]
    short = min(done, key=lambda rank: rank.steps, default=None)
    if short is not None and short.steps < max(rank.steps for rank in ranks):
        yield Remark(
            "ranks",
            f"Rank {short.number} took {count(short.steps, 'step')}, others up to {max(rank.steps for rank in ranks)}: "
            "later steps are not compared.",
        )


def _late(ranks: Sequence[Rank]) -> Iterator[Remark]:
    """Yields a remark if a rank takes its first step long after the first rank did, by the hosts' own clocks."""
    begun = {rank.number: rank.started_at + rank.first_step_s for rank in ranks if rank.first_step_s is not None}
    if len(begun) < 2:
        return
    last, first = max(begun, key=lambda number: begun[number]), min(begun.values())
    late_s, whole_s = begun[last] - first, max(rank.duration_s for rank in ranks)
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
            f"The ranks wait for each other {share(found.waiting_share)} of a step. The slowest rank changes from "
            "step to step.",
            "Give all ranks steps of equal length, for example with batches of similar lengths.",
            found.waiting_share,
        )
