"""Knob `worker_threads`: how many threads each worker process computes with (torch, OpenCV, and BLAS where it tells).

torch itself gives its workers one thread. OpenCV and numpy's BLAS know nothing of that: with eight workers on eight
cores they start 64 threads. One thread a worker keeps all of them to one.
"""

from __future__ import annotations

from gpu_doctor.capture.describe import FORKED_THREADS
from gpu_doctor.cell import Edits
from gpu_doctor.recording import LoaderSetup, Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.count import MOST_AT_ONCE, CountKnob, powers_up_to
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.found_loaders import trained_from
from gpu_doctor.trials.knobs.knob import Choice
from gpu_doctor.trials.knobs.loader import LoaderKnob

AS_WRITTEN = 0


class WorkerThreads(LoaderKnob, CountKnob):
    """See `Knob`; 0 leaves the workers as the code and their libraries have it."""

    name = "worker_threads"
    label = "worker threads"
    changes = "Sums in the dataset are added up in another order, so their last digits differ."
    written_with = ""
    least, most = AS_WRITTEN, MOST_AT_ONCE

    def found(self, setup: Setup) -> int | None:
        """See `Knob`."""
        return None if trained_from(setup) is None else AS_WRITTEN

    def counts(self, setup: Setup) -> set[int]:
        """See `CountKnob`."""
        return powers_up_to(max(1, round(setup.usable_cores)))

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        """See `Knob`."""
        return (Choice(AS_WRITTEN, "as written"), *super().choices(setup))

    def refusal(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        return "" if value == AS_WRITTEN else self.why_not(value, setup)

    def unfit(self, value: SettingValue, loader: LoaderSetup, setup: Setup) -> str:
        """See `LoaderKnob`."""
        if not loader.num_workers:
            return "There are no workers whose threads could be set: set num_workers above 0 first."
        return FORKED_THREADS if int(value) > 1 and loader.start_method == "fork" else ""

    def code(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        if int(value) == AS_WRITTEN:
            return "# without a worker_init_fn that sets threads"
        opencv = 0 if int(value) == 1 else int(value)
        return (
            "def worker_threads(worker):\n"
            f"    torch.set_num_threads({int(value)})  # with OpenCV: cv2.setNumThreads({opencv}) as well\n"
            "DataLoader(..., worker_init_fn=worker_threads)"
        )

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        """See `Knob`."""
        if not settings[self.name]:
            raise draft.no_line(self.name, settings[self.name])
        return draft.loaders.worker_threads(int(settings[self.name]))


KNOB = WorkerThreads()
