"""What counts the arithmetic of a model changes neither its compiled graphs nor the files that it writes meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from tests.support.compute_parts import train_with_copies
from tests.support.one_tap import model

pytestmark = pytest.mark.core


def test_a_file_written_meanwhile_needs_nothing_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"

    def save(net: nn.Module) -> bool:
        torch.save(net, path)
        torch.save(net.state_dict(), tmp_path / "weights.pt")
        return True

    train_with_copies(model(), save)
    assert b"gpu_doctor" not in path.read_bytes()
    code = (
        "import sys; sys.modules['gpu_doctor'] = None\n"
        "import torch\n"
        f"net = torch.load({str(path)!r}, weights_only=False)\n"
        "print(tuple(net(torch.rand(2, 4)).shape))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(2, 1)", done.stderr


@pytest.mark.parametrize("how", ["function", "method"])
def test_a_compiled_model_keeps_its_graphs(how: str) -> None:
    from torch._dynamo.testing import CompileCounter

    def graphs(tapped: bool) -> tuple[int, int, float]:
        torch._dynamo.reset()
        counter, net = CompileCounter(), model()
        run: Any = torch.compile(net, backend=counter) if how == "function" else net
        if how == "method":
            net.compile(backend=counter)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        recorder = Recorder()

        def loop() -> None:
            for _ in range(3):
                optimizer.zero_grad()
                run(torch.rand(2, 4)).sum().backward()
                optimizer.step()

        if tapped:
            with listening(recorder, {"run": run}, accelerated=True):
                loop()
        else:
            loop()
        return counter.frame_count, counter.op_count, float(recorder.close().steps.forward_s.sum())

    bare, tapped = graphs(False), graphs(True)
    assert tapped[:2] == bare[:2]
    assert tapped[2] > 0
