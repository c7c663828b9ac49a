"""A simulated device under torch: `with SimulatedCuda() as cuda:` torch and NVML find a GPU, and our taps hear it.

Whatever is computed is right and real, on the CPU. A tensor that lies "on the device" carries a tag; every function of
torch that takes one launches a kernel on `simulated_device.SimulatedDevice`, a copy to it takes its time, and a value
that is asked for is waited for. Programs run as they are written: `.to("cuda")`, `torch.zeros(device="cuda")`, streams,
events, graphs, GradScaler. All cards share one timeline. What a worker process does is not simulated, nor is
`torch.compile`.

Which of torch's functions touch CUDA is read off torch's own source, as it differs from version to version.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import os
import time
from collections.abc import Callable, Iterator, Mapping
from threading import get_ident
from types import SimpleNamespace, TracebackType
from typing import Any, Final
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device

from gpu_doctor.machine import cuda as our_cuda
from gpu_doctor.machine.nvml import probe
from tests.support.simulated_device import Graph, Mark, SimulatedDevice
from tests.support.stub_nvml import GIB, Card, StubNvml

NAME: Final = "Simulated GPU"
NAME_BY_NVML: Final = "Simulated GPU, by NVML"
MEMORY: Final = 16 * GIB
UUIDS: Final = ("aaaa", "bbbb", "cccc", "dddd")
BYTES_PER_MS: Final = 12e6
"""Of a copy from pinned memory; from pageable memory it takes twice as long."""
_MODULES: Final = (torch.cuda, torch.cuda.memory, torch.cuda.random)
_GUARDED: Final = ("is_initialized", "_lazy_call", "_cuda_isCurrentStreamCapturing", "_cuda_getArchFlags")
"""A function that calls one of these waits until CUDA is initialised, or asks what needs no device."""
_TAG: Final = "_lies_on_cuda"
_ATTRIBUTE: Final[Any] = type(torch.Tensor.device)
_group: Final[Callable[..., Any]] = vars(torch._C)["_group_tensors_by_device_and_dtype"]
_PINNED: Final = "_lies_pinned"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WAITS: Final = _names(
    "item tolist __bool__ __float__ __int__ __index__ __complex__ __repr__ nonzero masked_select equal allclose "
    "is_nonzero argwhere unique unique_consecutive bincount"
)
_VIEWS: Final = _names(
    "size dim numel stride view reshape detach requires_grad_ register_hook data_ptr is_floating_point element_size "
    "unsqueeze squeeze expand transpose permute flatten __len__ is_contiguous is_complex storage_offset "
    "untyped_storage __hash__ nelement ndimension view_as register_post_accumulate_grad_hook expand_as unbind __iter__ "
    "chunk split is_pinned narrow result_type is_sparse t select type is_inference retain_grad zero_grad"
)


@functools.cache
def touching() -> Mapping[str, bool]:
    """Names of torch's functions that touch CUDA: True = they initialise it, False = they only call its driver."""
    trees = [ast.parse(inspect.getsource(module)) for module in _MODULES]
    functions = [node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)]
    calls = {one.name: _called_by(one) for one in functions}
    calls = {name: called for name, called in calls.items() if called.isdisjoint(_GUARDED) or name == "init"}
    lazily = _reaching({name for name, called in calls.items() if "_lazy_init" in called} | {"_lazy_init"}, calls)
    driven = {name for name, called in calls.items() if any(one.startswith("_cuda_") for one in called)}
    return {name: name in lazily for name in sorted(_reaching(lazily | driven, calls))}


def _reaching(found: set[str], calls: Mapping[str, set[str]]) -> set[str]:
    """These functions, and all that call one of them."""
    while more := {name for name, called in calls.items() if not called.isdisjoint(found)} - found:
        found = found | more
    return found


def _called_by(function: ast.FunctionDef) -> set[str]:
    """Names that a function calls, of functions and of attributes."""
    called = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    names = {one.id for one in called if isinstance(one, ast.Name)}
    return names | {one.attr for one in called if isinstance(one, ast.Attribute)}


def _grouping(group: Callable[..., Any]) -> Callable[..., Any]:
    """Tensors by device, for operations on many: by the one that they are said to lie on."""

    def grouped(lists: Any, with_indices: bool = False) -> Any:
        found = {}
        for (device, dtype), group_of in group(lists, with_indices).items():
            card = _card(group_of[0])
            found[device if card is None else torch.device("cuda", card), dtype] = group_of
        return found

    return grouped


class SimulatedCuda(TorchFunctionMode):
    """The mode that sees all of torch's functions on the thread that entered it, and stands in for `torch.cuda`."""

    def __init__(
        self,
        device: SimulatedDevice | None = None,
        kernel_ms: float = 0.0,
        launch_ms: float = 0.0,
        cards: int = 1,
    ) -> None:
        """Nothing is pretended before it is entered.

        Args:
            device: what computes; None = a new one.
            kernel_ms: how long the device takes for each of torch's functions, twice as long for its backward.
            launch_ms: how long the host takes to launch it.
            cards: how many torch and NVML find.
        """
        super().__init__()
        self.device = device or SimulatedDevice()
        self.kernel_ms, self.launch_ms = kernel_ms, launch_ms
        self.uuids, self.bytes_per_ms = UUIDS[:cards], BYTES_PER_MS
        self.events = 0
        """That were made."""
        self.pending: list[tuple[float, int, float]] = []
        """What the next backward launches besides: milliseconds, kernels, and what the host takes for each."""
        self._forwards = 0
        """Kernels launched with gradients since the last backward."""
        self._ends = contextlib.ExitStack()

    def __enter__(self) -> SimulatedCuda:
        self._ends.__enter__()
        self._functions_replaced()
        self._methods_replaced()
        self._replace(torch.backends.cuda, is_built=lambda: True)
        self._replace(torch.version, cuda="13.0")
        self._replace(our_cuda, _driver_loads=lambda: True)
        cards = [Card(name=NAME_BY_NVML, uuid=f"GPU-{one}", bus=f"0000:{one}", memory=MEMORY) for one in self.uuids]
        self._replace(probe, VENDOR=StubNvml(*cards))
        self._ends.enter_context(mock.patch.dict(os.environ))
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        if self.device.virtual:
            self._replace(time, **_clocks(self.device))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def _functions_replaced(self) -> None:
        found = _functions(self)
        accelerator = {
            "is_available": lambda: True,
            "current_accelerator": lambda *_, **__: torch.device("cuda"),
            "current_device_index": found["current_device"],
            "set_device_index": found["set_device"],
            "current_stream": found["current_stream"],
            "synchronize": found["synchronize"],
        }
        self._replace(getattr(torch, "accelerator", None), **accelerator)  # since torch 2.6
        for name, initialises in touching().items():
            self._replace(*_MODULES, **{name: self._touching(name, initialises, found.pop(name, None))})
        self._replace(torch.cuda, **found)
        self._replace(torch._C, _group_tensors_by_device_and_dtype=_grouping(_group))
        self._replace(torch.cuda.memory, memory_stats_as_nested_dict=lambda device=None: {})
        self._replace(torch.autograd, _engine_run_backward=self._engine(vars(torch.autograd)["_engine_run_backward"]))

    def _methods_replaced(self) -> None:
        """Those that the mode does not see: on the thread of a loader that pins, and with streams of ours."""
        self._replace(
            torch.Tensor,
            pin_memory=_pinned,
            record_stream=lambda tensor, stream: None,
            is_pinned=lambda tensor, *_: bool(vars(tensor).get(_PINNED)),
        )
        self._replace(torch.nn.Parameter, __new__=staticmethod(_made_by(torch.nn.Parameter.__new__)))
        self._replace(torch.nn.Module, cuda=lambda net, *given: net.to(*(given or ("cuda",))))

    def _replace(self, *owners: Any, **values: Any) -> None:
        """Puts values in the place of those that the owners have of these names."""
        for owner in owners:
            for name, value in values.items():
                if hasattr(owner, name):
                    self._ends.enter_context(mock.patch.object(owner, name, value))

    def _touching(self, name: str, initialises: bool, answer: Any) -> Callable[..., Any]:
        """A function that touches CUDA, and answers."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.device.touch(name)
            if initialises:
                self.device.initialise()
            return answer(*args, **kwargs) if callable(answer) else answer

        return call

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
        if name in ("__format__", "backward") and on_cuda(args[0]):
            return self._composed(name, *args, **kwargs)
        if name == "backward":  # `torch.autograd.backward` hands itself over, as it stands there: with our tap
            return inspect.unwrap(func)(*args, **kwargs)
        if name in ("to", "cuda", "cpu", "copy_"):
            return getattr(self, f"_{name}")(func, args, kwargs)
        return self._called(func, name, args, kwargs)

    def _attribute(self, func: Callable[..., Any], name: str, args: Any) -> Any:
        card = _card(args[0])
        if card is not None and name in ("device", "is_cuda", "is_cpu"):
            return {"device": torch.device("cuda", card), "is_cuda": True, "is_cpu": False}[name]
        if len(args) > 1 and on_cuda(args[1]):
            _put(args[0], _card(args[1]))
        found = func(*args)
        return _put(found, card) if isinstance(found, torch.Tensor) else found

    def _called(self, func: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
        if kwargs.get("device") is None and func in _constructors():
            kwargs = {**kwargs, "device": _device.CURRENT_DEVICE}
        card = self._number(kwargs.get("device"))
        if card is not None:
            self.needed(name)
            kwargs = {**kwargs, "device": "cpu"}
        else:
            card = _card((args, kwargs))
        if card is None:
            return func(*args, **kwargs)
        if name == "numpy":
            raise TypeError("can't convert a cuda tensor to numpy")
        if name == "get_device":
            return card
        if name in _WAITS or (name == "__getitem__" and _masks(args[1])):
            self.device.synchronize()
        found = func(*args, **kwargs)
        if name in ("tensor", "as_tensor") and not on_cuda(args[0]):
            self._transfer(found, True, True)
        elif name not in _VIEWS and name not in _WAITS:
            self._kernel(torch.is_grad_enabled())
        return _put(found, card)

    def _composed(self, name: str, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """As torch does it, in calls of its own: our taps are among them, and must find tensors where they lie."""
        super().__enter__()  # type: ignore[no-untyped-call]
        try:
            if name == "backward":
                return torch.autograd.backward(tensor, kwargs.pop("gradient", None), **kwargs)
            return format(tensor.item(), *args) if tensor.dim() == 0 else object.__format__(tensor, *args)
        finally:
            super().__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def needed(self, name: str) -> None:
        """A call of torch that needs CUDA."""
        self.device.touch(name)
        self.device.initialise()

    def _number(self, target: Any) -> int | None:
        """The card that is meant; None = no card is."""
        if target is None or not _names_a_device(target):
            return None
        named = torch.device("cuda", target) if isinstance(target, int) else torch.device(target)
        if named.type != "cuda":
            return None
        return self.device.card if named.index is None else named.index

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
        named = next((one for one in (*given, kwargs.get("device")) if _names_a_device(one)), None)
        other = next((one for one in (*given, kwargs.get("other")) if isinstance(one, torch.Tensor)), None)
        here = _card(tensor)
        card = _card(other) if other is not None else self._number(named) if named is not None else here
        if card == here:
            plain = ["cpu" if self._number(one) is not None else one for one in given]
            if self._number(kwargs.get("device")) is not None:
                kwargs = {**kwargs, "device": "cpu"}
            found = func(tensor, *plain, **kwargs)
            return found if found is tensor else _put(found, here)
        dtype = next((one for one in (*given, kwargs.get("dtype")) if isinstance(one, torch.dtype)), tensor.dtype)
        blocks = not (kwargs.get("non_blocking") or any(one is True for one in given))
        return self._moved(tensor, card, blocks, dtype)

    def _cuda(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return self._to(func, (args[0], *(args[1:] or ("cuda",))), kwargs)

    def _cpu(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return self._moved(args[0], None, True) if on_cuda(args[0]) else func(*args, **kwargs)

    def _copy_(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        into, source = args[0], args[1] if len(args) > 1 else kwargs["src"]
        if on_cuda(into) != on_cuda(source):
            blocks = not (kwargs.get("non_blocking") or any(one is True for one in args[2:]))
            self._transfer(source, on_cuda(into), blocks)
        elif on_cuda(into):
            self._kernel(False)
        return func(*args, **kwargs)

    def _moved(
        self, tensor: torch.Tensor, card: int | None, blocks: bool, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        self.needed("to")
        self._transfer(tensor, card is not None, blocks)
        found: torch.Tensor = _put(tensor.to(dtype=dtype or tensor.dtype, copy=True), card)
        return found

    def _transfer(self, tensor: torch.Tensor, there: bool, blocks: bool) -> None:
        pinned = bool(getattr(tensor, _PINNED, False))
        took_ms = tensor.numel() * tensor.element_size() / self.bytes_per_ms * (1 if pinned else 2)
        self.device.copy(took_ms, blocks or (there and not pinned), 0.005)


def on_cuda(value: Any) -> bool:
    """Whether a value is a tensor that lies on a card."""
    return isinstance(value, torch.Tensor) and value.__dict__.get(_TAG) is not None


def _put(value: Any, card: int | None) -> Any:
    """The tensors in a value lie on a card; None = in main memory."""
    if isinstance(value, torch.Tensor):
        value.__dict__[_TAG] = card
    elif isinstance(value, (tuple, list)):
        for one in value:
            _put(one, card)
    return value


def _pinned(tensor: torch.Tensor, *_: Any) -> torch.Tensor:
    found = tensor.clone()
    setattr(found, _PINNED, True)
    return found


def _made_by(original: Callable[..., Any]) -> Callable[..., Any]:
    """Makes parameters, which lie where their data do."""
    return lambda kind, data=None, *args, **kwargs: _put(original(kind, data, *args, **kwargs), _card(data))


@functools.cache
def _constructors() -> frozenset[Any]:
    """Functions of torch that ask for the default device."""
    return frozenset(_device._device_constructors())


def _card(value: Any, depth: int = 3) -> int | None:
    """The card of a tensor, or of the first one in a value that lies on one."""
    if isinstance(value, torch.Tensor):
        found: int | None = value.__dict__.get(_TAG)
        return found
    ones = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return next((card for one in ones if (card := _card(one, depth - 1)) is not None), None) if depth else None


def _masks(index: Any) -> bool:
    ones = index if isinstance(index, tuple) else (index,)
    return any(isinstance(one, torch.Tensor) and one.dtype == torch.bool for one in ones)


def _names_a_device(value: Any) -> bool:
    return isinstance(value, (torch.device, str, int)) and not isinstance(value, bool)


def _clocks(device: SimulatedDevice) -> dict[str, Any]:
    """What stands in `time` where the device's time is virtual; all that the host does is computing."""
    thread, asleep = get_ident(), time.sleep

    def sleep(seconds: float) -> None:
        if get_ident() == thread:
            device.host(seconds * 1e3)
        else:
            asleep(seconds)

    found: dict[str, Any] = {"sleep": sleep}
    for name in ("perf_counter", "thread_time", "process_time"):
        found |= {name: lambda: device.now * 1e-9, f"{name}_ns": lambda: device.now}
    return found


def _functions(cuda: SimulatedCuda) -> dict[str, Any]:
    """What stands in `torch.cuda` meanwhile."""
    device = cuda.device

    class Stream:
        """A queue."""

        def __init__(self, device_: Any = None, priority: int = 0, number: int | None = None) -> None:
            cuda.needed("Stream")
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

        def record_event(self, event: Event | None = None) -> Event:
            found = event or Event()
            found.record(self)
            return found

        def is_capturing(self) -> bool:
            return device.graph is not None

        def wait_event(self, event: Event) -> None:
            event.wait(self)

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
            cuda.needed("Event")
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

        def wait(self, by: Stream | None = None) -> None:
            number = device.stream if by is None else by.number
            if self._mark is not None:
                device.streams[number] = max(device.streams[number], self._mark.passed_ns)

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

    @contextlib.contextmanager
    def card(index: int) -> Iterator[None]:
        before, device.card = device.card, torch.device("cuda", index).index
        try:
            yield
        finally:
            device.card = before

    def properties(index: Any = None) -> Any:
        uuid = cuda.uuids[device.card if index is None else torch.device("cuda", index).index]
        return SimpleNamespace(
            name=NAME, total_memory=MEMORY, major=9, minor=0, multi_processor_count=100, uuid=uuid, warp_size=32
        )

    generators = tuple(torch.Generator() for _ in cuda.uuids)
    return {
        "is_available": True,
        "is_initialized": lambda: bool(device.initialised),
        "device_count": len(cuda.uuids),
        "current_device": lambda: device.card,
        "get_rng_state_all": lambda: [one.get_state() for one in generators],
        "set_device": lambda one: setattr(device, "card", cuda._number(one) or 0),
        "device": card,
        "default_generators": generators,
        "get_device_properties": properties,
        "get_device_capability": (9, 0),
        "get_device_name": NAME,
        "get_rng_state": lambda index="cuda": generators[torch.device(index).index or 0].get_state(),
        "initial_seed": lambda: generators[device.card].initial_seed(),
        "is_bf16_supported": True,
        "mem_get_info": (MEMORY // 2, MEMORY),
        "memory_allocated": lambda *_: 0,
        "max_memory_allocated": lambda *_: 0,
        "memory_reserved": lambda *_: 0,
        "max_memory_reserved": lambda *_: 0,
        "memory_stats": lambda *_: {},
        "empty_cache": lambda: None,
        "get_sync_debug_mode": 0,
        "Event": Event,
        "Stream": Stream,
        "stream": stream,
        "current_stream": lambda *_: Stream(number=device.stream),
        "default_stream": lambda *_: Stream(number=0),
        "synchronize": lambda *_: device.synchronize(),
        "is_current_stream_capturing": lambda: device.graph is not None,
        "CUDAGraph": CUDAGraph,
        "graph": graph,
    }
