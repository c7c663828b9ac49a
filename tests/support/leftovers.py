"""The fixture that fails a test which leaves a patch, a hook, a mode, a thread or a signal handler of ours behind."""

from __future__ import annotations

import gc
import multiprocessing
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

THREAD_GRACE_S = 7.0
"""How long a thread of ours may take to end after the test: the garbage collector may run in it, and the end of a
forgotten loader's iterator, which waits up to 5 s for its workers."""

_HOOK_REGISTRIES = {
    "torch.nn.modules.module": (
        "_global_forward_hooks",
        "_global_forward_pre_hooks",
        "_global_backward_hooks",
        "_global_backward_pre_hooks",
        "_global_module_registration_hooks",
        "_global_buffer_registration_hooks",
        "_global_parameter_registration_hooks",
    ),
    "torch.optim.optimizer": ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"),
}
_SEAMS = {
    ("torch", "Tensor"): ("to", "cuda", "cpu", "item", "backward", "pin_memory"),
    ("torch.nn.modules.module", "Module"): ("__call__", "forward", "to", "cuda"),
    ("torch.utils.data.dataloader", "DataLoader"): ("__init__", "__iter__", "__len__", "__setattr__"),
    ("torch.utils.data.dataloader", "_BaseDataLoaderIter"): ("__next__", "__iter__"),
    ("torch", "autograd"): ("backward", "grad"),
}


@pytest.fixture(autouse=True)
def nothing_of_ours_survives() -> Iterator[None]:
    """Fails a test that leaves a patch, a hook, a mode, a thread or a signal handler of ours behind."""
    patches, seams, hooks, modes = _patches(), _seams(), _hooks(), _modes()
    threads = set(threading.enumerate())
    interrupt = signal.getsignal(signal.SIGINT)
    yield
    left = [f"patch {name}" for name in (_patches() - patches).elements()]
    left += [f"thread {thread.name}{_place(thread)}" for thread in _threads_left(threads)]
    left += [f"hook in {name}" for name, keys in _hooks().items() if keys - hooks.get(name, frozenset())]
    left += [f"replaced {name}" for name, value in _seams().items() if _is_ours(value, seams.get(name))]
    left += [f"mode {one!r} around torch's functions" for one in _modes()[len(modes) :]]
    if signal.getsignal(signal.SIGINT) is not interrupt:
        left.append("the handler of SIGINT")
        signal.signal(signal.SIGINT, interrupt)
    if left:
        pytest.fail("This test left behind: " + ", ".join(left), pytrace=False)


@pytest.fixture(autouse=True)
def no_worker_survives() -> Iterator[None]:
    """Ends the workers of loaders that a test has left alone."""
    with workers_ended():
        yield


@contextmanager
def workers_ended() -> Iterator[None]:
    """Afterwards no worker lives that a loader has started meanwhile; the loader would start others.

    The namespaces of cells are in cycles of references. torch waits 5 s for each worker of an iterator that is found
    in one: when Python collects it, which is at any later time and on any thread.
    """
    before = set(multiprocessing.active_children())
    yield
    left = set(multiprocessing.active_children()) - before
    torch_data = _loaded("torch.utils.data.dataloader")
    if not left or torch_data is None:
        return
    kinds = torch_data.DataLoader, torch_data._MultiProcessingDataLoaderIter
    every = gc.get_objects()  # noqa: TID251 (the test has ended: no thread of a loop's runs)
    known = [one for one in every if issubclass(type(one), kinds)]
    for one in known:
        if left.intersection(vars(one).get("_workers", ())):
            one._shutdown_workers()
        if left.intersection(getattr(vars(one).get("_iterator"), "_workers", ())):
            object.__setattr__(one, "_iterator", None)


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Iterator[None]:
    """Sets back after a test what it set in torch for the whole process: threads, cudnn's search, the precision."""
    before = _switches()
    yield
    now = _switches()
    torch: Any = _loaded("torch")
    if before is None or now is None or now == before:
        return
    threads, torch.backends.cudnn.benchmark, allowed, precision = before
    torch.set_num_threads(threads)
    if now[2] != allowed:
        torch.backends.cudnn.allow_tf32 = allowed
    if now[3] != precision:
        torch.set_float32_matmul_precision(precision)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """One thread of torch, for the modules that import it.

    A second one spins between small operations: the own work of a loop that fetches by itself was measured to take
    3.5 ms of 16 longer with it, and no longer beside workers.
    """
    torch: Any = _loaded("torch")
    torch.set_num_threads(1)


def _switches() -> tuple[Any, ...] | None:
    """None where torch is not loaded, or refuses to tell because older and newer names of the precision are mixed."""
    torch: Any = _loaded("torch")
    try:
        cudnn = torch.backends.cudnn
        precision = torch.get_float32_matmul_precision()
        return torch.get_num_threads(), cudnn.benchmark, cudnn.allow_tf32, precision
    except (AttributeError, RuntimeError):
        return None


def _loaded(name: str) -> ModuleType | None:
    """A module if somebody imported it already; the fixture must not make a test pay for torch."""
    return sys.modules.get(name)


def _patches() -> Counter[str]:
    patching = _loaded("gpu_doctor.capture.patching")
    return Counter(patching.active()) if patching else Counter()


def _threads_left(before: set[threading.Thread]) -> list[threading.Thread]:
    """Our threads that are alive after their grace."""
    deadline = time.monotonic() + THREAD_GRACE_S
    left = []
    for thread in threading.enumerate():
        if thread not in before and thread.name.startswith(("gpu_doctor", "gpu-doctor")):
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                left.append(thread)
    return left


def _place(thread: threading.Thread) -> str:
    """Where a thread is: ` in stop (poller.py:110)`."""
    frame = sys._current_frames().get(thread.ident or 0)
    return f" in {frame.f_code.co_name} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})" if frame else ""


def _hooks() -> dict[str, frozenset[Any]]:
    """Keys of torch's global hook registries."""
    found = {}
    for module_name, names in _HOOK_REGISTRIES.items():
        module = _loaded(module_name)
        for name in names if module else ():
            found[f"{module_name}.{name}"] = frozenset(getattr(module, name, ()))
    return found


def _modes() -> list[Any]:
    """What torch asks about each of its functions, such as a default device that was set."""
    overrides: Any = _loaded("torch.overrides")
    return list(overrides._get_current_function_mode_stack()) if overrides else []


def _seams() -> dict[str, Any]:
    """The attributes of torch on which taps and knobs may hang something for a while."""
    found: dict[str, Any] = {}
    for (module_name, owner_name), names in _SEAMS.items():
        owner = getattr(_loaded(module_name), owner_name, None)
        for name in names if owner is not None else ():
            found[f"{owner_name}.{name}"] = getattr(owner, name, None)
    return found


def _is_ours(now: Any, before: Any) -> bool:
    """True if the seam changed during the test, or (torch was imported by the test) what stands there is our code."""
    if before is not None:
        return now is not before
    return str(getattr(now, "__module__", "")).startswith("gpu_doctor")
