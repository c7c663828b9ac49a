"""Forward and backward of the outermost modules are recorded; modules, copies and files hold nothing of ours."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gpu_doctor
from gpu_doctor.capture.gpu.clock import QuietClock
from gpu_doctor.capture.gpu.marks import MarkReader
from gpu_doctor.capture.recorder import Recorder, RunEnded
from gpu_doctor.capture.taps import listening
from gpu_doctor.capture.taps.backward import tap
from gpu_doctor.capture.taps.forward import SEAM
from gpu_doctor.recording.steps import BACKWARD, EVALUATION, FORWARD, LOSS, OTHER
from tests.support.one_tap import batches, model, on
from tests.support.simulated_device import Noted, SimulatedDevice
from tests.support.told_loop import begun, billed_ns, open_spans, phase_now


def train_with_copies(net: nn.Module, take: Any) -> Any:
    """Trains two steps with all taps on; `take` is called with the model in the middle."""
    recorder = Recorder()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with listening(recorder, {"net": net}, accelerated=False):
        taken = None
        for x, _ in batches(16):
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()
            taken = taken or take(net)
            assert torch.isfinite(net(x)).all()
    assert not recorder.close().notes
    return taken


def fed(recorder: Recorder) -> float:
    """Samples of the newest forwards that are learned from; NaN if none was recorded since a step began."""
    samples = [span.forward_samples for span in open_spans(recorder)]
    return next((count for count in reversed(samples) if count == count), float("nan"))


def listeners(net: nn.Module) -> int:
    """What stands on a module and all its parts that is none of theirs."""
    hooks = sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in net.modules())
    return hooks + sum(SEAM in vars(part) for part in net.modules())


def test_only_the_outermost_module_carries_a_listener() -> None:
    net = model()
    with on(tap, namespace={"net": net}):
        assert listeners(net) == 1
    assert listeners(net) == 0


def test_forward_and_backward_are_billed() -> None:
    recorder, net = begun(Recorder()), model()
    phases: list[int] = []
    net[0].register_forward_hook(lambda *_: phases.append(phase_now(recorder)))  # type: ignore[operator, index]
    with on(tap, recorder, {"net": net}):
        out = net(torch.rand(8, 4))
        out.register_hook(lambda _: phases.append(phase_now(recorder)))
        phases.append(phase_now(recorder))
        out.sum().backward()
        phases.append(phase_now(recorder))
    assert phases == [FORWARD, LOSS, BACKWARD, OTHER]
    assert billed_ns(recorder, FORWARD) > 0
    assert billed_ns(recorder, BACKWARD) > 0
    assert fed(recorder) == 8


@pytest.mark.parametrize("way", ["tensor", "autograd", "list", "grad"])
def test_every_way_backwards_is_recorded(way: str) -> None:
    recorder, net = begun(Recorder()), model()
    told = Noted(recorder)
    with on(tap, recorder, {"net": net}):
        loss = net(torch.rand(8, 4)).sum()
        if way == "tensor":
            loss.backward()
        elif way == "autograd":
            torch.autograd.backward(loss)
        elif way == "list":
            torch.autograd.backward([loss])
        else:
            torch.autograd.grad(loss, list(net.parameters()))
        told.step()
        told.stepped()
    recording = recorder.close()
    assert recording.steps.backward_s[0] > 0
    assert recording.losses.value.tolist() == ([] if way == "grad" else [pytest.approx(float(loss.detach()))])


def test_a_forward_or_backward_that_raises_ends_its_phase() -> None:
    recorder, net = begun(Recorder()), model()
    with on(tap, recorder, {"net": net}):
        with pytest.raises(RuntimeError):
            net(torch.rand(8, 5))
        assert phase_now(recorder) == LOSS
        with pytest.raises(RuntimeError):
            torch.zeros(1).backward()
        assert phase_now(recorder) == OTHER


def test_a_model_inside_a_model_and_a_later_model_are_recorded_once() -> None:
    recorder, namespace = begun(Recorder()), {"inner": model()}
    with on(tap, recorder, namespace) as scope:
        late = nn.Sequential(nn.Linear(4, 4), namespace["inner"])
        optimizer = torch.optim.SGD(late.parameters(), lr=0.1)
        for hear in scope.optimized:
            hear(optimizer)
        late(torch.rand(2, 4))
        assert phase_now(recorder) == LOSS
        assert fed(recorder) == 2
    assert listeners(late) == 0


class Held(nn.Module):
    """A module whose forward nobody calls: its steps call what is inside."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = model()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """For later use."""
        return self.inside(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("called", [False, True])
def test_what_steps_call_is_recorded_where_the_outermost_module_is_not_called(called: bool) -> None:
    recorder, held = Recorder(), Held()
    optimizer = torch.optim.SGD(held.parameters(), lr=0.1)
    heard = []
    with listening(recorder, {"held": held}, accelerated=False) as scope:
        for _ in range(4):
            out = (held if called else held.inside)(torch.rand(2, 4))
            heard.append(fed(recorder) == 2)
            out.sum().backward()
            optimizer.step()
        assert not any(hear.__name__ == "boxes" for hear in scope.stepped)
        assert listeners(held.inside) == (0 if called else 1)
    assert heard == [called, called, True, True]
    assert listeners(held) == 0


def test_a_frozen_model_of_the_optimizer_does_not_evaluate() -> None:
    recorder = begun(Recorder())
    told = Noted(recorder)
    frozen, head = model().requires_grad_(False).eval(), nn.Linear(1, 1)
    told.step()
    told.stepped()
    with on(tap, recorder, {"frozen": frozen, "head": head}) as scope:
        for hear in scope.optimized:
            hear(torch.optim.SGD([*frozen.parameters(), *head.parameters()], lr=0.1))
        with torch.no_grad():
            frozen(torch.rand(2, 4))
        assert phase_now(recorder) != EVALUATION
        head.eval()
        with torch.no_grad():
            head(torch.rand(2, 1))
        assert phase_now(recorder) == EVALUATION
    assert billed_ns(recorder, EVALUATION) > 0


def test_the_end_of_a_run_comes_before_a_forward() -> None:
    recorder, net = begun(Recorder()), model()
    with on(tap, recorder, {"net": net}):
        recorder.stop()
        with pytest.raises(RunEnded):
            net(torch.rand(2, 4))


def test_autocast_is_recorded() -> None:
    recorder, net = begun(Recorder()), model()
    with on(tap, recorder, {"net": net}) as scope:
        for hear in scope.optimized:
            hear(torch.optim.SGD(net.parameters(), lr=0.1))
        with torch.autocast("cpu", torch.bfloat16):
            net(torch.rand(2, 4))
    assert recorder.setup().autocast == "bfloat16"


def test_a_copy_taken_meanwhile_holds_nothing_of_ours() -> None:
    twin, loaded = train_with_copies(model(), lambda net: (copy.deepcopy(net), pickle.loads(pickle.dumps(net))))
    for one in (twin, loaded):
        assert listeners(one) == 0
        assert one(torch.rand(2, 4)).shape == (2, 1)
    assert b"gpu_doctor" not in pickle.dumps(twin)


@pytest.mark.filterwarnings("error::torch.jit.TracerWarning")
def test_a_script_and_a_trace_are_made_of_the_bare_model() -> None:
    def make(net: nn.Module) -> Any:
        return torch.jit.script(net), torch.jit.trace(net, torch.rand(2, 4))

    net = model()
    scripted, traced = train_with_copies(net, make)
    for one in (scripted, traced):
        torch.testing.assert_close(one(torch.ones(2, 4)).shape, (2, 1))
        assert len(one._forward_hooks) == 0
        file = io.BytesIO()
        torch.jit.save(one, file)
        assert b"gpu_doctor" not in file.getvalue()


def test_a_scripted_model_trains_and_its_forward_is_not_recorded() -> None:
    """TorchScript modules take no hooks of Python: their forward is `other`, steps and samples are right."""
    recorder = Recorder()
    net = torch.jit.script(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with listening(recorder, {"net": net}, accelerated=False):
        for x, _ in batches(160):  # beyond the steps after which a `forward` is looked for
            net(x).sum().backward()
            optimizer.step()
    recording = recorder.close()
    steps = recording.steps
    assert steps.samples.tolist() == [8] * 20 and not recording.notes
    assert steps.forward_s.sum() == 0
    assert steps.backward_s.sum() > 0


def test_a_forward_of_another_thread_and_one_inside_of_a_forward_are_passed_on() -> None:
    recorder, inner = begun(Recorder()), model()
    with on(tap, recorder, {"net": inner}):
        made: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: made.append(inner(torch.rand(2, 4))))
        thread.start()
        thread.join()
        assert made[0].shape == (2, 1) and phase_now(recorder) == OTHER


def test_a_scaled_loss_is_stored_as_it_was_before_the_scaling() -> None:
    recorder, net = begun(Recorder()), model()
    told = Noted(recorder)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    before = torch.amp.GradScaler.scale
    with on(tap, recorder, {"net": net}):
        loss = net(torch.rand(8, 4)).square().sum()
        scaler.scale(loss).backward()
        told.step()
        told.stepped()
    assert recorder.close().losses.value.tolist() == pytest.approx([loss.item()])
    assert torch.amp.GradScaler.scale is before


def test_autocast_that_a_library_turns_on_inside_of_the_forward_is_seen() -> None:
    class Prepared(nn.Linear):
        """As Accelerate and HF make it."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return self.inner(x).float()  # type: ignore[operator]

    net = Prepared(4, 2)
    net.inner = nn.Sequential(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def loop() -> None:
        for _ in range(5):
            optimizer.zero_grad()
            net(torch.rand(8, 4)).sum().backward()
            optimizer.step()

    recording = gpu_doctor.case(loop, {"net": net, "optimizer": optimizer}).run()
    assert recording.setup.autocast == "bfloat16"
    assert listeners(net) == 0


@pytest.mark.parametrize("way", ["backward", "of the parameters", "of the input"])
def test_the_end_of_a_backward_is_marked_where_no_optimizer_steps(way: str) -> None:
    recorder, net = begun(Recorder()), model()
    device = SimulatedDevice(exact=True)
    recorder.marks = MarkReader(QuietClock(device), recorder.table)
    recorder.log.marker = recorder.marks.clock
    with on(tap, recorder, {"net": net}):
        for _ in range(3):
            x = torch.rand(8, 4, requires_grad=True)
            loss = net(x).sum()
            before = len(device.marks)
            if way == "backward":
                loss.backward()
            else:
                torch.autograd.grad(loss, x if way == "of the input" else list(net.parameters()))
            assert len(device.marks) == before + 2  # its begin, and its end
        recorder.loop_over()
    steps = recorder.close().steps
    assert steps.device_steps.sum() == (0 if way == "of the input" else 2)  # without a loader no step shows


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


@pytest.mark.parametrize("method", [False, True])
def test_a_backward_that_torch_passes_to_a_mode_is_recorded_once(method: bool) -> None:
    recorder, net = begun(Recorder()), model()
    with on(tap, recorder, {"net": net}), torch.device("cpu"):  # a default device is such a mode
        for _ in range(3):
            loss = net(torch.rand(8, 4)).sum()
            loss.backward() if method else torch.autograd.backward(loss)
    assert recorder.log.steps == 3
