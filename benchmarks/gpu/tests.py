"""Tests of tests/gpu by pytest, the most telling ones by name; a row a test, as soon as it has ended.

Another torch or Python than the tested one may warn of things that ours does not: here a warning is no failure.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.gpu.kept import Stage, row
from tests.support.repository import ROOT

TELLING: Final = (
    "test_sync_gpu.py::test_we_add_no_wait_torch_would_tell_of",
    "test_sync_gpu.py::test_the_driver_hears_of_no_more_waits_with_us",
    "test_sync_gpu.py::test_a_loop_that_never_waits_has_no_waits",
    "test_sync_gpu.py::test_a_wait_is_counted_timed_and_found[item]",
    "test_in_backward_gpu.py::test_the_loop_keeps_its_thread",
    "test_device_clock_gpu.py::test_the_phases_are_those_of_events_put_by_hand",
    "test_device_clock_gpu.py::test_copies_that_the_host_waits_for_take_it_as_long_as_the_device",
    "test_device_clock_gpu.py::test_marks_keep_within_their_share",
    "test_probes_gpu.py::test_nvml_and_torch_number_the_devices_alike",
    "test_probes_gpu.py::test_a_busy_gpu_is_seen_busy",
    "test_stretch_gpu.py::test_a_run_is_as_fast_as_the_card",
    "test_memory_gpu.py::test_torchs_own_message_is_understood",
    "test_trials_gpu.py::test_a_knob_is_turned_for_real_and_put_back[amp bf16]",
    "test_trials_gpu.py::test_a_trials_peak_is_the_loops_own",
    "test_largest_batch_gpu.py::test_it_is_found_in_three_probes_and_lies_within_the_limit",
)
RESTORE: Final = (
    "test_snapshot_gpu.py",
    "test_trials_gpu.py::test_a_knob_is_turned_for_real_and_put_back[amp fp16]",
    "test_trials_gpu.py::test_memory_that_ran_out_piece_by_piece_is_freed",
    "test_trials_gpu.py::test_everything_is_as_it_was_however_it_ended",
)
OUTCOME: Final = re.compile(r"^(?:tests/gpu/)?(\S+?\.py::.+?) (PASSED|FAILED|SKIPPED|ERROR|XFAIL|XPASS|RERUN)\b")
HOW: Final = ("-v", "-rA", "--color=no", "--tb=short", "-o", "addopts=-p no:cacheprovider", "-W", "default")


def run(stage: Stage) -> None:
    """Runs the tests of the first call."""
    tested(stage, TELLING)


def restore(stage: Stage) -> None:
    """Runs those of the second."""
    tested(stage, RESTORE)


def tested(stage: Stage, names: Sequence[str]) -> None:
    """Runs those that have not passed yet, in their order; what pytest says goes into a file of its own."""
    words = [sys.executable, "-m", "pytest", *HOW, *(f"tests/gpu/{one}" for one in names)]
    words += [f"--deselect=tests/gpu/{name}" for name in stage.rows]
    with (stage.work / "pytest.txt").open("w", encoding="utf-8") as file:
        process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            file.flush()
            if found := OUTCOME.match(line):
                name, how = found.groups()
                stage.keep(name, row(how.lower(), how == "PASSED" if how != "SKIPPED" else None))
    code = process.wait()
    if code not in (0, 1, 5):  # 5: all of them have passed before
        stage.keep("pytest", {**row(f"pytest ended with {code}", False), "error": f"pytest ended with {code}"})
