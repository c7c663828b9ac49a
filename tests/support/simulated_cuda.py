"""A simulated device under torch: `with SimulatedCuda() as cuda:` torch finds one GPU, and our taps hear it.

Whatever is computed is right and real, on the CPU. A tensor that lies "on the device" carries a tag; every function of
torch that takes one launches a kernel on `simulated_device.SimulatedDevice`, a copy to it takes its time, and a value
that is asked for is waited for. Programs run as they are written: `.to("cuda")`, `torch.zeros(device="cuda")`, streams,
events, GradScaler. What a worker process does is not simulated, nor is `torch.compile`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace, TracebackType
from typing import Any, Final
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from tests.support.simulated_device import Graph, Mark, SimulatedDevice

CUDA: Final = torch.device("cuda", 0)
NAME: Final = "Simulated GPU"
MEMORY: Final = 16 << 30
BYTES_PER_MS: Final = 12e6
"""Of a copy from pinned memory; from pageable memory it takes twice as long."""
_TAG: Final = "_lies_on_cuda"
_ATTRIBUTE: Final[Any] = type(torch.Tensor.device)
_PINNED: Final = "_lies_pinned"
_WAITS: Final = (
    *("item", "tolist", "__bool__", "__float__", "__int__", "__index__", "__repr__", "nonzero", "masked_select"),
    *("equal", "allclose", "is_nonzero", "argwhere", "unique", "bincount"),
)
_VIEWS: Final = (
    *("size", "dim", "numel", "stride", "view", "reshape", "detach", "requires_grad_", "register_hook", "data_ptr"),
    *(
        "is_floating_point",
        "element_size",
        "unsqueeze",
        "squeeze",
        "expand",
        "transpose",
        "permute",
        "flatten",
        "__len__",
    ),
    *(
        "is_contiguous",
        "is_complex",
        "storage_offset",
        "untyped_storage",
        "__hash__",
        "nelement",
        "ndimension",
        "view_as",
    ),
    *("register_post_accumulate_grad_hook", "expand_as", "unbind", "__iter__", "chunk", "split", "is_pinned", "narrow"),
    *("result_type", "is_sparse", "t", "select", "type", "is_inference", "retain_grad", "zero_grad", "__format__"),
)


class SimulatedCuda(TorchFunctionMode):
    """The mode that sees all of torch's functions on the thread that entered it, and stands in for `torch.cuda`."""

    def __init__(self, device: SimulatedDevice | None = None, kernel_ms: float = 0.0, launch_ms: float = 0.0) -> None:
        """Nothing is pretended before it is entered.

        Args:
            device: what computes; None = a new one.
            kernel_ms: how long the device takes for each of torch's functions, twice as long for its backward.
            launch_ms: how long the host takes to launch it.
        """
        super().__init__()
        self.device = device or SimulatedDevice()
        self.kernel_ms, self.launch_ms = kernel_ms, launch_ms
        self.events = 0
        """That were made."""
        self.pending: list[tuple[float, int, float]] = []
        """What the next backward launches besides: milliseconds, kernels, and what the host takes for each."""
        self._forwards = 0
        """Kernels launched with gradients since the last backward."""
        self._ends = contextlib.ExitStack()

    def __enter__(self) -> SimulatedCuda:
        self._ends.__enter__()
        for name, value in _functions(self).items():
            self._ends.enter_context(mock.patch.object(torch.cuda, name, value))
        self._ends.enter_context(mock.patch.object(torch.nn.Module, "cuda", lambda net, *_: net.to("cuda")))
        engine = vars(torch.autograd)["_engine_run_backward"]
        self._ends.enter_context(mock.patch.object(torch.autograd, "_engine_run_backward", self._engine(engine)))
        if self.device.virtual:
            now = self.device
            clocks = {"perf_counter": lambda: now.now * 1e-9, "perf_counter_ns": lambda: now.now}
            clocks |= {"thread_time": clocks["perf_counter"], "thread_time_ns": clocks["perf_counter_ns"]}
            for name, clock in clocks.items():
                self._ends.enter_context(mock.patch.object(time, name, clock))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._ends.__exit__(kind, error, trace)

    def launch(self, ms: float, kernels: int = 1, phase: str = "", cost_ms: float = 0.01) -> None:
        """Kernels of `ms` each; the host takes `cost_ms` to launch one."""
        for _ in range(kernels):
            self.device.launch(ms, cost_ms, phase)

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        of: Any = getattr(func, "__self__", None)
        if isinstance(of, _ATTRIBUTE):
            return self._attribute(func, of.__name__, args)
        name = getattr(func, "__name__", "")
        if name in ("to", "cuda", "cpu", "copy_", "pin_memory", "is_pinned"):
            return getattr(self, f"_{name}")(func, args, kwargs)
        return self._called(func, name, args, kwargs)

    def _attribute(self, func: Callable[..., Any], name: str, args: Any) -> Any:
        here = on_cuda(args[0])
        if here and name in ("device", "is_cuda", "is_cpu"):
            return {"device": CUDA, "is_cuda": True, "is_cpu": False}[name]
        if len(args) > 1 and on_cuda(args[1]):
            _put(args[0])
        found = func(*args)
        return _put(found) if here and isinstance(found, torch.Tensor) else found

    def _called(self, func: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
        given = kwargs.get("device")
        there = given is not None and torch.device(given).type == "cuda"
        if there:
            self.device.initialise()
            kwargs = {**kwargs, "device": "cpu"}
        if not there and not _any_on_cuda((args, kwargs)):
            return func(*args, **kwargs)
        if name in _WAITS or (name == "__getitem__" and _masks(args[1])):
            self.device.synchronize()
        found = func(*args, **kwargs)
        if name not in _VIEWS and name not in _WAITS:
            self._kernel(torch.is_grad_enabled())
        return _put(found)

    def _kernel(self, learns: bool) -> None:
        self._forwards += learns
        if self.kernel_ms or self.launch_ms:
            self.device.launch(self.kernel_ms, self.launch_ms)

    def _engine(self, engine: Callable[..., Any]) -> Callable[..., Any]:
        """The backward's kernels are launched where the engine runs."""

        def run(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            found = engine(tensors, *args, **kwargs)
            forwards, self._forwards = self._forwards, 0
            pending, self.pending = self.pending, []
            for ms, kernels, cost_ms in pending:
                self.launch(ms, kernels, "backward", cost_ms)
            for _ in range(2 * forwards if self.kernel_ms or self.launch_ms else 0):
                self.device.launch(self.kernel_ms, self.launch_ms, "backward")
            return found

        return run

    # ---- copies -----------------------------------------------------------------------------------------------------

    def _to(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        tensor, *given = args
        target = next((one for one in (*given, kwargs.get("device")) if _names_a_device(one)), None)
        other = next((one for one in given if isinstance(one, torch.Tensor)), None)
        there = on_cuda(other) if other is not None else _type(target) == "cuda" if target is not None else None
        if there is None or there == on_cuda(tensor):
            plain = ["cpu" if _names_a_device(one) else one for one in given]
            named = {**kwargs, "device": "cpu"} if "device" in kwargs else kwargs
            found = func(tensor, *plain, **named)
            return _put(found) if on_cuda(tensor) and found is not tensor else found
        dtype = next((one for one in (*given, kwargs.get("dtype")) if isinstance(one, torch.dtype)), tensor.dtype)
        blocks = not (kwargs.get("non_blocking") or any(one is True for one in given))
        return self._moved(tensor, there, blocks, dtype)

    def _cuda(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return args[0] if on_cuda(args[0]) else self._moved(args[0], True, not kwargs.get("non_blocking"))

    def _cpu(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return self._moved(args[0], False, True) if on_cuda(args[0]) else func(*args, **kwargs)

    def _copy_(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        into, source = args[0], args[1]
        if on_cuda(into) != on_cuda(source):
            self._transfer(source, on_cuda(into), not kwargs.get("non_blocking"))
        elif on_cuda(into):
            self._kernel(False)
        return func(*args, **kwargs)

    def _moved(self, tensor: torch.Tensor, there: bool, blocks: bool, dtype: torch.dtype | None = None) -> Any:
        self.device.initialise()
        self._transfer(tensor, there, blocks)
        found = tensor.to(dtype=dtype or tensor.dtype, copy=True)
        return _put(found) if there else found

    def _transfer(self, tensor: torch.Tensor, there: bool, blocks: bool) -> None:
        pinned = bool(getattr(tensor, _PINNED, False))
        took_ms = tensor.numel() * tensor.element_size() / BYTES_PER_MS * (1 if pinned else 2)
        self.device.copy(took_ms, blocks or (there and not pinned), 0.005)

    def _pin_memory(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        found = args[0].clone()
        setattr(found, _PINNED, True)
        return found

    def _is_pinned(self, func: Callable[..., Any], args: Any, kwargs: Any) -> bool:
        return bool(getattr(args[0], _PINNED, False))


def on_cuda(value: Any) -> bool:
    """Whether a value is a tensor that lies on the device."""
    return isinstance(value, torch.Tensor) and _TAG in value.__dict__


def _put(value: Any) -> Any:
    """The tensors in a value lie on the device."""
    if isinstance(value, torch.Tensor):
        value.__dict__[_TAG] = True
    elif isinstance(value, (tuple, list)):
        for one in value:
            _put(one)
    return value


def _any_on_cuda(value: Any, depth: int = 3) -> bool:
    if isinstance(value, torch.Tensor):
        return on_cuda(value)
    if depth and isinstance(value, dict):
        return any(_any_on_cuda(one, depth - 1) for one in value.values())
    return bool(depth) and isinstance(value, (tuple, list)) and any(_any_on_cuda(one, depth - 1) for one in value)


def _masks(index: Any) -> bool:
    ones = index if isinstance(index, tuple) else (index,)
    return any(isinstance(one, torch.Tensor) and one.dtype == torch.bool for one in ones)


def _names_a_device(value: Any) -> bool:
    return isinstance(value, (torch.device, str, int)) and not isinstance(value, bool)


def _type(target: Any) -> str:
    return "cuda" if isinstance(target, int) else torch.device(target).type


def _functions(cuda: SimulatedCuda) -> dict[str, Any]:
    """What stands in `torch.cuda` meanwhile."""
    device = cuda.device

    def needs(value: Any) -> Callable[..., Any]:
        """A call that initialises."""

        def call(*args: Any, **kwargs: Any) -> Any:
            device.initialise()
            return value(*args) if callable(value) else value

        return call

    class Stream:
        """A queue."""

        def __init__(self, device_: Any = None, priority: int = 0, number: int | None = None) -> None:
            device.initialise()
            self.device_index, self.device = device.card, torch.device("cuda", device.card)
            self.number = max(device.streams) + 1 if number is None else number
            device.streams.setdefault(self.number, 0)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Stream) and other._key == self._key

        @property
        def _key(self) -> tuple[int, int]:
            return self.device_index, self.number

        def __hash__(self) -> int:
            return hash(self._key)

        def query(self) -> bool:
            return device.now >= device.streams[self.number]

        def synchronize(self) -> None:
            with stream(self):
                device.synchronize()

        def wait_stream(self, other: Stream) -> None:
            with stream(self):
                device.wait_stream(other.number)

    @contextlib.contextmanager
    def stream(one: Stream | None) -> Iterator[None]:
        before = device.stream
        device.stream = before if one is None else one.number
        try:
            yield
        finally:
            device.stream = before

    class Event:
        """A mark."""

        def __init__(self, enable_timing: bool = False, blocking: bool = False) -> None:
            device.initialise()
            cuda.events += 1
            self._mark: Mark | None = None
            self._card: int | None = None

        def record(self, to: Stream | None = None) -> None:
            number = device.stream if to is None else to.number
            card = device.card if to is None else to.device_index
            if self._card not in (None, card):
                raise RuntimeError(f"Event device {self._card} does not match recording stream's device {card}.")
            self._card = card
            before, device.stream = device.stream, number
            try:
                self._mark = device.mark(current=True)
            finally:
                device.stream = before

        def query(self) -> bool:
            assert device.graph is None, "operation not permitted when stream is capturing"
            return self._mark is None or device.now >= self._mark.passed_ns

        def elapsed_time(self, end: Event) -> float:
            assert self._mark is not None and end._mark is not None
            if self._card != end._card:
                raise RuntimeError("Both events must be recorded on the same device")
            if not (self.query() and end.query()):
                raise RuntimeError("CUDA error: device not ready")
            return (end._mark.passed_ns - self._mark.passed_ns) * 1e-6

        def synchronize(self) -> None:
            assert self._mark is not None
            device.now = self._mark.passed_ns

    class CUDAGraph:
        """A captured graph."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._graph = Graph()

        def capture_begin(self, *args: Any, **kwargs: Any) -> None:
            device.graph = self._graph

        def capture_end(self) -> None:
            device.graph = None

        def replay(self) -> None:
            device.replay(self._graph)

        def pool(self) -> int:
            return 0

    @contextlib.contextmanager
    def graph(one: CUDAGraph, **options: Any) -> Iterator[None]:
        one.capture_begin()
        try:
            yield
        finally:
            one.capture_end()

    properties = SimpleNamespace(
        name=NAME, total_memory=MEMORY, major=9, minor=0, multi_processor_count=100, uuid="GPU-simulated"
    )
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: bool(device.initialised),
        "init": needs(None),
        "_lazy_init": needs(None),
        "device_count": lambda: 1,
        "current_device": needs(0),
        "set_device": needs(None),
        "get_device_properties": needs(properties),
        "get_device_capability": needs((9, 0)),
        "get_device_name": needs(NAME),
        "is_bf16_supported": needs(True),
        "mem_get_info": needs((MEMORY // 2, MEMORY)),
        "memory_allocated": lambda *_: 0,
        "max_memory_allocated": lambda *_: 0,
        "memory_reserved": lambda *_: 0,
        "max_memory_reserved": lambda *_: 0,
        "memory_stats": lambda *_: {},
        "reset_peak_memory_stats": lambda *_: None,
        "empty_cache": lambda: None,
        "get_sync_debug_mode": lambda: 0,
        "Event": Event,
        "Stream": Stream,
        "stream": stream,
        "current_stream": needs(lambda *_: Stream(number=device.stream)),
        "default_stream": needs(lambda *_: Stream(number=0)),
        "synchronize": lambda *_: device.synchronize(),
        "is_current_stream_capturing": lambda: device.graph is not None,
        "CUDAGraph": CUDAGraph,
        "graph": graph,
    }
