"""Knob `worker_threads`: how many threads each worker process computes with (torch, OpenCV, and BLAS where it tells).

torch itself gives its workers one thread. OpenCV and numpy's BLAS know nothing of that: with eight workers on eight
cores they start 64 threads. One thread a worker keeps all of them to one.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from gpu_doctor.capture.describe import FORKED_THREADS
from gpu_doctor.cell import Edits
from gpu_doctor.diagnosis import Safety
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.found_loaders import trained_from
from gpu_doctor.trials.knobs.knob import Choice, TrialScope
from gpu_doctor.trials.knobs.loader import MOST_AT_ONCE, loader_refusal, loaders_turned, whole_number

AS_WRITTEN = 0


class WorkerThreads:
    """See `Knob`; 0 leaves the workers as the code and their libraries have it."""

    name = "worker_threads"
    label = "worker threads"
    safety = Safety.SAFE
    changes = "Sums in the dataset are added up in another order, so their last digits differ."
    front = False
    written_with = ""

    def found(self, setup: Setup) -> int | None:
        return None if trained_from(setup) is None else AS_WRITTEN

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        most = max(1, round(setup.usable_cores))
        counts = [2**power for power in range(10) if 2**power <= most]
        return (
            Choice(AS_WRITTEN, "as written"),
            *(Choice(count, str(count), self.refusal(count, setup)) for count in counts),
        )

    def parsed(self, text: str) -> int:
        return whole_number(text, self.name, AS_WRITTEN, MOST_AT_ONCE)

    def refusal(self, value: SettingValue, setup: Setup) -> str:
        if value == AS_WRITTEN:
            return ""
        said, loader = loader_refusal(self.name, setup), trained_from(setup)
        if said or loader is None:
            return said
        if not loader.num_workers:
            return "There are no workers whose threads could be set: set num_workers above 0 first."
        return FORKED_THREADS if int(value) > 1 and loader.start_method == "fork" else ""

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        return loaders_turned(self.name, int(value), scope)

    def code(self, value: SettingValue, setup: Setup) -> str:
        if int(value) == AS_WRITTEN:
            return "# without a worker_init_fn that sets threads"
        opencv = 0 if int(value) == 1 else int(value)
        return (
            "def worker_threads(worker):\n"
            f"    torch.set_num_threads({int(value)})  # with OpenCV: cv2.setNumThreads({opencv}) as well\n"
            "DataLoader(..., worker_init_fn=worker_threads)"
        )

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        if not settings[self.name]:
            raise draft.no_line(self.name, settings[self.name])
        return draft.loaders.worker_threads(int(settings[self.name]))


KNOB = WorkerThreads()
