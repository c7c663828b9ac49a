"""Checkpoints, emptied caches and collected garbage are heard in real loops: how often, how long, on which line."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import save as bound_before

from gpu_doctor.capture import patching, taps
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.costly_calls import tap
from gpu_doctor.recording.setup import Chore
from tests.support.one_tap import Ticking, batches, model, on
from tests.support.simulated_device import Noted

pytestmark = pytest.mark.slow

MS = 1_000_000


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = torch.serialization._open_zipfile_writer, gc.collect
    yield
    assert patching.active() == ()
    assert (torch.serialization._open_zipfile_writer, gc.collect) == before
    assert isinstance(gc.collect, types.BuiltinFunctionType)


def trained(
    body: Callable[[int], Any],
    steps: int = 6,
    before: Callable[[], Any] | None = None,
    epochs: int = 1,
    accelerated: bool | None = None,
) -> tuple[Chore, ...]:
    """A real loop under all taps with `body(step)` after each optimizer step; what was heard."""
    recorder, net = Recorder(), model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with taps.listening(recorder, {"net": net}, accelerated):
        if before is not None:
            before()
        step = 0
        for _ in range(epochs):
            for x, y in batches(8 * steps):
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(net(x).squeeze(1), y).backward()
                optimizer.step()
                body(step)
                step += 1
    recording = recorder.close()
    assert recording.notes == ()
    assert recording.chores is not None
    return recording.chores


def one(kind: str, chores: tuple[Chore, ...]) -> Chore:
    (found,) = [chore for chore in chores if chore.kind == kind]
    return found


def test_a_loop_without_any_says_so() -> None:
    assert trained(lambda step: None) == ()


class Sluggish:
    """Takes a while to be pickled."""

    def __reduce__(self) -> tuple[type[Sluggish], tuple[()]]:
        time.sleep(SLUGGISH_S)
        return Sluggish, ()


SLUGGISH_S = 0.005


def test_calls_seconds_bytes_and_the_line(tmp_path: Path) -> None:
    took: list[float] = []
    weights = [torch.rand(500_000), Sluggish()]

    def checkpoint(step: int) -> None:
        if step % 2 == 0:
            begin = time.perf_counter()
            torch.save(weights, tmp_path / "weights.pt")
            took.append(time.perf_counter() - begin)

    found = one("checkpoint", trained(checkpoint, steps=12))
    assert found.calls == 6
    assert 6 * SLUGGISH_S <= found.wall_s <= sum(took)
    assert found.other_s == found.wall_s
    assert found.nbytes == 6 * (tmp_path / "weights.pt").stat().st_size
    assert (found.file, found.function) == (__file__, "checkpoint")
    assert found.text == 'torch.save(weights, tmp_path / "weights.pt")'


def test_a_name_bound_before_is_heard_too_and_once() -> None:
    buffer = io.BytesIO()

    def both(step: int) -> None:
        bound_before(torch.ones(3), buffer)
        torch.save(torch.ones(3), buffer)

    found = one("checkpoint", trained(both))
    assert found.calls == 12 and found.nbytes != found.nbytes, "of a buffer it is not known"


class Lingering:
    """Garbage that takes a while to be collected."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        time.sleep(SLUGGISH_S)


def test_garbage_counts_only_where_it_is_collected_by_hand() -> None:
    heap = [[index] for index in range(50_000)]
    took: list[float] = []

    def collect(step: int) -> None:
        Lingering()
        begin = time.perf_counter()
        gc.collect()
        took.append(time.perf_counter() - begin)
        [[index] for index in range(5_000)]  # automatic collections are not heard

    found = one("collect-garbage", trained(collect, steps=12))
    assert found.calls == 12 and found.text == "gc.collect()"
    assert 12 * SLUGGISH_S <= found.wall_s <= sum(took)
    assert len(heap) == 50_000


@pytest.fixture
def emptied(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """`torch.cuda.empty_cache`, bound before the run, of a build with CUDA. GPU: not yet run."""
    monkeypatch.setattr(torch._C, "_cuda_emptyCache", lambda: None, raising=False)
    monkeypatch.setattr(torch.cuda.memory, "is_initialized", lambda: True)
    return torch.cuda.empty_cache


def test_an_emptied_cache_counts_once_under_each_of_its_names(emptied: Callable[[], None]) -> None:
    def empty(step: int) -> None:
        torch.cuda.empty_cache()
        torch.cuda.memory.empty_cache()
        emptied()

    assert one("empty-cache", trained(empty, accelerated=True)).calls == 18


def test_the_dearest_kind_comes_first(emptied: Callable[[], None]) -> None:
    def work(step: int) -> None:
        emptied()
        torch.save(torch.rand(300_000), io.BytesIO())

    assert [chore.kind for chore in trained(work, accelerated=True)] == ["checkpoint", "empty-cache"]


def test_before_the_loop_and_after_it_nothing_counts() -> None:
    final: list[Callable[[], Any]] = []
    chores = trained(lambda step: final.append(gc.collect), before=gc.collect)
    assert chores == ()
    recorder = Recorder()
    with taps.listening(recorder):
        loader = batches(24)
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, _ in loader:
            net(x).sum().backward()
            optimizer.step()
            gc.collect()
        for _ in range(5):
            gc.collect()  # after the last step
    chores = recorder.close().chores or ()
    assert one("collect-garbage", chores).calls == 3
    final[0]()  # a name kept from the run works on, and is not heard


def test_in_steps_that_repeat_each_call_counts_in_its_own() -> None:
    recorder, net = Recorder(), model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with taps.listening(recorder, {"net": net}):
        for step, (x, _) in enumerate(batches(8 * 60)):
            net(x).sum().backward()
            optimizer.step()
            if step == 49:
                break
            gc.collect(0)
        for _ in range(7):
            gc.collect(0)  # after the last step
    found = one("collect-garbage", recorder.close().chores or ())
    assert found.calls == 49 and found.other_s == found.wall_s


def test_a_call_in_an_evaluation_counts_and_is_no_part_of_other() -> None:
    recorder, net = Recorder(), model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with taps.listening(recorder, {"net": net}):
        for x, _ in batches(32):
            net(x).sum().backward()
            optimizer.step()
            net.eval()
            with torch.no_grad():
                for value, _ in batches(16):
                    net(value)
                    gc.collect()
            net.train()
    found = one("collect-garbage", recorder.close().chores or ())
    assert found.calls == 8 and found.other_s < 0.5 * found.wall_s


def test_the_injected_clock_counts() -> None:
    clock = Ticking()
    recorder = Recorder(clock=clock)
    told = Noted(recorder)
    with on(tap, recorder):
        told.pull()
        gc.collect()
        recorder.fold()
        before = clock.ns
        assert recorder.parts["chores"]() == ()  # its step has not ended
        assert clock.ns == before
        told.step()
        told.stepped()
        told.ask()
    found = one("collect-garbage", recorder.close().chores or ())
    assert (found.calls, found.wall_s) == (1, pytest.approx(1e-6))


def test_other_threads_are_ignored() -> None:
    def elsewhere(step: int) -> None:
        thread = threading.Thread(target=lambda: (gc.collect(), torch.save(torch.ones(3), io.BytesIO())))  # type: ignore[func-returns-value]
        thread.start()
        thread.join()

    assert trained(elsewhere) == ()


def test_exceptions_pass_untouched(tmp_path: Path) -> None:
    raised: list[BaseException] = []

    class Sour:
        def __reduce__(self) -> Any:
            raise ValueError("no")

    def fail(step: int) -> None:
        for target, thing in ((tmp_path / "nowhere" / "x.pt", torch.ones(1)), (io.BytesIO(), Sour())):
            try:
                torch.save(thing, target)
            except Exception as error:
                raised.append(error)

    chores = trained(fail, steps=3)
    assert [type(error) for error in raised] == [RuntimeError, ValueError] * 3
    assert "does not exist" in str(raised[0]) and str(raised[1]) == "no"
    assert one("checkpoint", chores).calls == 6  # they cost what they cost


def test_a_save_within_a_save_counts_once() -> None:
    class Nest:
        def __reduce__(self) -> Any:
            torch.save(torch.ones(3), io.BytesIO())
            return list, ()

    assert one("checkpoint", trained(lambda step: torch.save(Nest(), io.BytesIO()))).calls == 6


def test_copies_and_pickles_of_the_names_are_the_functions_themselves() -> None:
    recorder = Recorder()
    original = gc.collect
    with on(tap, recorder):
        assert gc.collect is not original and gc.collect == original and hash(gc.collect) == hash(original)
        kept = gc.collect
        assert copy.deepcopy({"f": gc.collect})["f"] is original and copy.copy(gc.collect) is original
        text = pickle.dumps((gc.collect, bound_before))
        assert b"gpu_doctor" not in text
        assert gc.collect.__name__ == "collect" and gc.collect.__doc__ == original.__doc__
    assert pickle.loads(text)[0] is original
    assert pickle.loads(pickle.dumps(kept)) is original
    assert isinstance(kept(), int)


def test_safetensors_is_heard_where_it_is_imported(tmp_path: Path) -> None:
    pytest.importorskip("safetensors.torch")
    from safetensors.torch import save_file, save_model

    net = model()

    def checkpoint(step: int) -> None:
        sys.modules["safetensors.torch"].save_file({"a": torch.ones(3)}, tmp_path / "a.safetensors")
        save_file({"a": torch.ones(3)}, tmp_path / "b.safetensors")
        save_model(net, str(tmp_path / "c.safetensors"))

    assert one("checkpoint", trained(checkpoint)).calls == 18
