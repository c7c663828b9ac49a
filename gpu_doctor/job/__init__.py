"""Jobs of several ranks: each rank saves its recording in one folder, and the recordings are compared.

This package knows neither torch nor a process group: how long a rank waits for another follows from the recordings of
both.
"""

from gpu_doctor.job.folder import Place
from gpu_doctor.job.job import Job, Missing
from gpu_doctor.job.rank import Rank
from gpu_doctor.job.reading import load, load_job
from gpu_doctor.job.shares import Remark
from gpu_doctor.job.waiting import Waiting

__all__ = ["Job", "Missing", "Place", "Rank", "Remark", "Waiting", "load", "load_job"]
