"""A stand-in GPU for whole programs: an unchanged PyTorch training program runs on the CPU, and sees a `cuda:0`.

What is computed is right and real. The clocks are those of a card (`stand_in_card`): each operation on its tensors
costs the host a launch and goes into a queue; the host waits where a card would make it wait. `install()` must be the
first thing of a process that does nothing else, before torch is imported: it loads a device guard and hooks that a CPU
build of torch lacks (compiled by g++ once), replaces the functions of `torch.cuda` that ask for a card, and the clocks
of the module `time`. gpu_doctor is not told of it: its own taps put `torch.cuda.Event`s, its clocks are `time`'s.

Loader workers are processes with real time. One that has fetched a batch hands it over only when the training's clock
has gone on by as much as the fetch took: what the training computes meanwhile gives the workers no time for free.

Limits, beside those of the roofline:
- One card, float tensors with strides. No compiler, CUDA graphs, sparse gradients, `device="cuda"` generators or
  distributed training; attention is computed by hand, recurrent layers cannot be differentiated twice.
- Threads of the program's own run in real time: they have what the CPU computes for free. So has pinning, which is not
  priced. Workers must be forked.
- Tensors cost Python's dispatching on top of a launch (about 20 us an operation): the host is a slow one.
- The host is the real one: busy neighbours slow its Python and its workers, and gpu_doctor tells of them.
- Nothing was compared with a real card.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import importlib.metadata
import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from tests.support.stand_in_clock import HostClock, Queue

_SOURCE: Final = Path(__file__).with_suffix(".cpp")
_RESIZING: Final = (
    "arange",
    "arange.start",
    "arange.start_step",
    "randperm",
    "eye",
    "eye.m",
    "tril_indices",
    "triu_indices",
)
UUID: Final = "GPU-57a4d1f0-0000-0000-0000-000000000000"


def install() -> Any:
    """Makes this process see the stand-in; returns it (a `stand_in_tensor.Gpu`).

    Raises:
        RuntimeError: if torch was imported before.
        OSError: if there is no compiler, or it cannot compile the hooks for this torch.
    """
    if "torch" in sys.modules:
        raise RuntimeError("the stand-in must be installed before torch is imported")
    _hooks()
    clock = HostClock()
    _clocks(clock)
    import torch._dynamo  # its tables of torch's functions are made of the real ones
    import torch.optim.optimizer

    from tests.support.stand_in_card import Card
    from tests.support.stand_in_recurrent import recurrent
    from tests.support.stand_in_tensor import Gpu, OnCard

    torch.set_num_threads(1)  # what is computed is CPU time of the thread that computes it
    OnCard.gpu = gpu = Gpu(Card(), clock)
    _torch(torch, gpu)
    _factories(torch, gpu)
    recurrent(gpu)
    _workers(clock)
    return gpu


def _hooks() -> None:
    """Loads the guard and the hooks: after torch's libraries, before torch looks for hooks."""
    found = importlib.util.find_spec("torch")
    assert found is not None and found.origin is not None
    at = Path(found.origin).parent
    told = _SOURCE.read_bytes() + importlib.metadata.version("torch").encode() + str(at).encode()
    library = Path(tempfile.gettempdir()) / f"stand_in_gpu_{hashlib.sha256(told).hexdigest()[:16]}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=library.parent) as room:
            made = Path(room) / "made.so"
            command = [
                "g++",
                "-std=c++20",
                "-O1",
                "-shared",
                "-fPIC",
                f"-I{at / 'include'}",
                str(_SOURCE),
                "-o",
                str(made),
            ]
            done = subprocess.run(
                [*command, f"-L{at / 'lib'}", "-lc10", "-ltorch_cpu"], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise OSError(done.stderr)
            made.replace(library)
    for name in ("libtorch_global_deps.so", "libc10.so", "libtorch_cpu.so"):
        ctypes.CDLL(str(at / "lib" / name), mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(library))


def _clocks(clock: HostClock) -> None:
    """The clocks of `time`, all on the one of the host; CPU time without what was computed for the card."""
    epoch, process = time.time_ns() - time.perf_counter_ns(), time.process_time_ns
    thread, ident = time.thread_time_ns, __import__("threading").get_ident
    readers: dict[str, Any] = {
        "perf_counter": clock.now,
        "monotonic": clock.now,
        "time": lambda: epoch + clock.now(),
        "process_time": lambda: process() - clock.cpu_ns,
        "thread_time": lambda: thread() - clock.cpu_of.get(ident(), 0),
    }
    for name, reader in readers.items():
        setattr(time, f"{name}_ns", reader)
        setattr(time, name, lambda reader=reader: reader() * 1e-9)


def _torch(torch: Any, gpu: Any) -> None:
    """What of torch asks for a card."""
    from tests.support import stand_in_tensor
    from tests.support.stand_in_tensor import OnCard

    card, queue = gpu.card, gpu.queue
    properties = SimpleNamespace(
        name=card.name, total_memory=card.memory, major=card.capability[0], minor=card.capability[1],
        multi_processor_count=108, uuid=UUID.removeprefix("GPU-"), warp_size=32, is_integrated=0,
    )  # fmt: skip
    device = torch.device("cuda", 0)
    stream_type = _stream_type(queue, device)
    event_type = _event_type(queue)

    def nothing(*args: Any, **kwargs: Any) -> None:
        return None

    def synchronize(device: Any = None) -> None:
        queue.drain()

    stand_ins = {
        "is_available": lambda: True,
        "is_initialized": lambda: gpu.begun,
        "_is_in_bad_fork": lambda: False,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "_exchange_device": lambda device: 0,
        "_maybe_exchange_device": lambda device: 0,
        "get_device_properties": lambda device=None: properties,
        "get_device_name": lambda device=None: card.name,
        "get_device_capability": lambda device=None: card.capability,
        "get_arch_list": lambda: [f"sm_{card.capability[0]}{card.capability[1]}"],
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_current_stream_capturing": lambda: False,
        "synchronize": synchronize,
        "empty_cache": synchronize,
        "current_stream": lambda device=None: stream_type.of(queue.current),
        "default_stream": lambda device=None: stream_type.of(0),
        "stream": stream_type.on,
        "set_stream": lambda stream: setattr(queue, "current", stream.stream_id),
        "Stream": stream_type,
        "Event": event_type,
        **_memory(gpu),
        "get_sync_debug_mode": lambda: 0,
        **dict.fromkeys(
            ("_lazy_init", "init", "set_device", "manual_seed", "manual_seed_all", "seed", "seed_all"), nothing
        ),
    }
    for name, value in stand_ins.items():
        setattr(torch.cuda, name, value)
    for name in ("synchronize", "empty_cache", "memory_allocated", "max_memory_allocated", "mem_get_info"):
        if hasattr(torch.cuda.memory, name):
            setattr(torch.cuda.memory, name, getattr(torch.cuda, name))
    torch.version.cuda = "12.4"
    torch.__future__.set_swap_module_params_on_conversion(True)
    sys.modules["torch.optim.optimizer"]._foreach_supported_types.append(OnCard)
    OnCard.record_stream = nothing
    torch.serialization.add_safe_globals([stand_in_tensor._loaded])
    # A tensor of the card is saved as its values: they are on the CPU when they are read, then moved.
    torch.serialization.register_package(0, lambda one: None, lambda one, at: one if at.startswith("cuda") else None)


def _memory(gpu: Any) -> dict[str, Any]:
    """What `torch.cuda` tells of the card's memory, of which nothing is reserved that is not allocated."""
    memory = gpu.memory

    def stats(device: Any = None) -> dict[str, Any]:
        held = {"current": memory.now, "peak": memory.peak}
        told = {"allocated_bytes": {"all": held}, "reserved_bytes": {"all": held}, "num_ooms": memory.ooms}
        return told if gpu.begun else {}

    def reset_peak(device: Any = None) -> None:
        memory.peak = memory.now

    return {
        "memory_stats_as_nested_dict": stats,
        "memory_allocated": lambda device=None: memory.now,
        "memory_reserved": lambda device=None: memory.now,
        "max_memory_allocated": lambda device=None: memory.peak,
        "max_memory_reserved": lambda device=None: memory.peak,
        "reset_peak_memory_stats": reset_peak,
        "mem_get_info": lambda device=None: (memory.most - memory.now, memory.most),
    }


def _stream_type(queue: Queue, device: Any) -> Any:
    class Stream:
        """A stream of the stand-in."""

        made: Final[dict[int, Any]] = {}

        def __init__(self, device: Any = None, priority: int = 0, **told: Any) -> None:
            self.stream_id = len(Stream.made)
            Stream.made[self.stream_id] = self

        device_index, cuda_stream, priority = 0, 0, 0

        @property
        def device(self) -> Any:
            return device

        @classmethod
        def of(cls, number: int) -> Any:
            return cls.made[number]

        @staticmethod
        def on(stream: Any) -> Any:
            return _On(queue, stream)

        def query(self) -> bool:
            return queue.streams.get(self.stream_id, 0) <= queue.clock.now()

        def synchronize(self) -> None:
            queue.wait(self.stream_id)

        def wait_stream(self, other: Any) -> None:
            queue.hold(self.stream_id, queue.streams.get(other.stream_id, 0))

        def wait_event(self, event: Any) -> None:
            event.wait(self)

        def record_event(self, event: Any = None) -> Any:
            event = event or _event_type(queue)()
            event.record(self)
            return event

        def __enter__(self) -> Any:
            self._before, queue.current = queue.current, self.stream_id
            return self

        def __exit__(self, *error: object) -> None:
            queue.current = self._before

    Stream()  # the default one
    return Stream


class _On:
    """`torch.cuda.stream(...)`."""

    def __init__(self, queue: Queue, stream: Any) -> None:
        self.queue, self.stream = queue, stream

    def __enter__(self) -> Any:
        self.before = self.queue.current
        if self.stream is not None:
            self.queue.current = self.stream.stream_id
        return self.stream

    def __exit__(self, *error: object) -> None:
        self.queue.current = self.before


def _event_type(queue: Queue) -> Any:
    class Event:
        """A mark in a stream."""

        def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
            self.passed_ns: int | None = None

        def record(self, stream: Any = None) -> None:
            at = queue.streams.get(queue.current if stream is None else stream.stream_id, 0)
            self.passed_ns = max(at, queue.clock.now())

        def query(self) -> bool:
            return self.passed_ns is None or self.passed_ns <= queue.clock.now()

        def synchronize(self) -> None:
            queue.clock.wait_until(self.passed_ns or 0)

        def wait(self, stream: Any = None) -> None:
            queue.hold(queue.current if stream is None else stream.stream_id, self.passed_ns or 0)

        def elapsed_time(self, end: Any) -> float:
            if self.passed_ns is None or end.passed_ns is None:
                raise RuntimeError("Both events must be recorded before calculating elapsed time.")
            return float((end.passed_ns - self.passed_ns) * 1e-6)

    return Event


def _factories(torch: Any, gpu: Any) -> None:
    """`torch.empty(..., device="cuda")`, which all other factories and copies to the card are made of."""
    library = torch.library.Library("aten", "IMPL")
    clock = gpu.clock

    def empty(
        size: Any,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        pin_memory: Any = None,
        memory_format: Any = None,
    ) -> Any:
        stopped = clock.stop()
        try:
            return gpu.wrap(torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format))
        finally:
            clock.go(stopped, 0)

    def empty_strided(
        size: Any, stride: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
    ) -> Any:
        stopped = clock.stop()
        try:
            return gpu.wrap(torch.empty_strided(size, stride, dtype=dtype))
        finally:
            clock.go(stopped, 0)

    def copied(target: Any, source: Any, non_blocking: bool = False) -> Any:
        return gpu.run(torch.ops.aten.copy_.default, (target, source, non_blocking), {})

    def factory(operation: Any) -> Any:
        def made(*args: Any, **kwargs: Any) -> Any:
            told = {name: value for name, value in kwargs.items() if name == "dtype" and value is not None}
            return gpu.run(operation, args, {**told, "device": torch.device("cuda", 0)})

        return made

    for name in _RESIZING:  # torch makes these by resizing an empty tensor, whose wrapper would not hear of it
        packet, _, overload = name.partition(".")
        library.impl(name, factory(getattr(getattr(torch.ops.aten, packet), overload or "default")), "CUDA")
    library.impl("empty.memory_format", empty, "CUDA")
    library.impl("empty_strided", empty_strided, "CUDA")
    library.impl(
        "copy_", copied, "CUDA"
    )  # `torch.tensor(..., device="cuda")` comes here past the tensor's own dispatch
    gpu.library = library  # it lives as long as the card


_SHORTEST_SLEEP_NS: Final = 100_000


class _Tasks:
    """A worker's queue of tasks: says when one was begun."""

    def __init__(self, queue: Any, clock: HostClock) -> None:
        self.queue, self.clock = queue, clock
        self.begun = self.begun_real = 0

    def get(self, *args: Any, **kwargs: Any) -> Any:
        task = self.queue.get(*args, **kwargs)
        self.begun, self.begun_real = self.clock.shared_now(), self.clock.real()
        return task


class _Batches:
    """Its queue of batches: one is put in when the training's clock has gone on by what it took."""

    def __init__(self, queue: Any, tasks: _Tasks) -> None:
        self.queue, self.tasks = queue, tasks

    def put(self, *args: Any) -> None:
        clock, tasks = self.tasks.clock, self.tasks
        done = tasks.begun + clock.real() - tasks.begun_real
        while (left := done - clock.shared_now()) > 0:
            clock.sleep(max(left, _SHORTEST_SLEEP_NS) * 1e-9)
        self.queue.put(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.queue, name)


def _workers(clock: HostClock) -> None:
    worker: Any = importlib.import_module("torch.utils.data._utils.worker")

    original = worker._worker_loop

    def loop(kind: Any, dataset: Any, index_queue: Any, data_queue: Any, *rest: Any) -> None:
        clock.own_excess = clock.real() - clock.now()
        tasks = _Tasks(index_queue, clock)
        original(kind, dataset, tasks, _Batches(data_queue, tasks), *rest)

    worker._worker_loop = loop
