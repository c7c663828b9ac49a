"""The fixture that looks for leftovers finds each kind of them (run in a pytest of its own, on tests that leak)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import ROOT

pytestmark = pytest.mark.slow

LEAKS = {
    "patch": (
        "from gpu_doctor.capture.patching import Patches\nclass Seam:\n    act = 1\n"
        "def test_leak():\n    Patches().wrap(Seam, 'act', lambda old: 2)\n",
        "patch Seam.act",
    ),
    "thread": (
        "import threading\ndef test_leak():\n"
        "    threading.Thread(target=threading.Event().wait, name='gpu_doctor-poller', daemon=True).start()\n",
        "thread gpu_doctor-poller",
    ),
    "hook": (
        "from torch.optim.optimizer import register_optimizer_step_post_hook\n"
        "def test_leak():\n    register_optimizer_step_post_hook(lambda *a: None)\n",
        "hook in torch.optim.optimizer._global_optimizer_post_hooks",
    ),
    "seam": (
        "import torch\ndef test_leak():\n    torch.Tensor.backward = lambda *a: None\n",
        "replaced Tensor.backward",
    ),
    "signal": (
        "import signal\ndef test_leak():\n    signal.signal(signal.SIGINT, signal.SIG_IGN)\n",
        "the handler of SIGINT",
    ),
}


def run_pytest(folder: Path, body: str) -> str:
    (folder / "conftest.py").write_text("from tests.support.leftovers import nothing_of_ours_survives\n")
    (folder / "test_it.py").write_text(body)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.parametrize("kind", LEAKS)
def test_a_leftover_fails_the_test(kind: str, tmp_path: Path) -> None:
    body, named = LEAKS[kind]
    said = run_pytest(tmp_path, body)
    assert f"This test left behind: {named}" in said
    assert "1 error" in said


def test_a_clean_test_passes_and_torch_is_not_imported_for_it(tmp_path: Path) -> None:
    said = run_pytest(tmp_path, "import sys\ndef test_clean():\n    assert 'torch' not in sys.modules\n")
    assert "1 passed" in said
