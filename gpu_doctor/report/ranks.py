"""The ranks that a cell has started, as the panel draws them."""

from __future__ import annotations

from gpu_doctor.formatting import clean
from gpu_doctor.job import Job
from gpu_doctor.report.contract import RanksShown


def ranks_shown(job: Job) -> RanksShown:
    """The table of the ranks, with what is wrong above it."""
    rows = job.rows
    return RanksShown(
        sentence=clean(job.head),
        remarks=tuple((clean(one.sentence, 600), clean(one.to_do, 300)) for one in job.remarks),
        head=tuple(rows[0]) if rows else (),
        rows=tuple(tuple(row.values()) for row in rows),
        notes=tuple(clean(one, 400) for one in job.footer),
    )
