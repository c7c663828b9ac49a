"""Shows the ranks that a cell started, in the panel."""

from __future__ import annotations

from gpu_doctor.formatting import clean
from gpu_doctor.job import Job
from gpu_doctor.report.contract import RanksShown


def ranks_shown(job: Job) -> RanksShown:
    """Converts a job to plain data for the page: the problems of the job, and the table of its ranks."""
    rows = job.rows
    return RanksShown(
        sentence=clean(job.head),
        remarks=tuple((clean(remark.sentence, 600), clean(remark.to_do, 300)) for remark in job.remarks),
        head=tuple(rows[0]) if rows else (),
        rows=tuple(tuple(row.values()) for row in rows),
        notes=tuple(clean(note, 400) for note in job.footer),
    )
