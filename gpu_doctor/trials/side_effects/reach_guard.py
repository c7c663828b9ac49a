"""Ends a side of a trial before it starts a process or uses the network without permission.

A cell's text does not show all of these: a library downloads, a dataset calls a program. Allowed are a loader's
workers, the compilers of torch and Triton, look-ups by trackers and by Python itself (`platform`), multiprocessing's
sockets on this machine, and everything in threads that were there before the side.
"""

from __future__ import annotations

import ipaddress
import mmap
import multiprocessing.process
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, Final

from gpu_doctor.capture import Patches, RunEnded
from gpu_doctor.cell import NETWORK, PROCESSES
from gpu_doctor.trials.knobs.knob import Refused
from gpu_doctor.trials.side_effects.tracker_table import PACKAGES as TRACKING
from gpu_doctor.trials.snapshot.parts import is_users

_LOADERS: Final = ("torch.utils.data.", "torchdata.")
"""Packages whose worker processes end with the side."""
_HARMLESS: Final = ("torch._inductor", "torch.utils.cpp_extension", "triton", *TRACKING)
"""Packages that start compilers, or ask git for the state of the code; trackers are muted anyway."""
_LOOK_UPS: Final = ("platform", "ctypes.util", "uuid", "sysconfig")
"""Modules of Python that query the system by a program."""
_STARTS: Final = ("fork", "forkpty", "posix_spawn", "posix_spawnp", "execv", "execve", "system", "startfile")
"""Functions of `os` that start a process; the others there call these or `subprocess.Popen`."""
_SENDS: Final = ("connect", "connect_ex", "sendto")
_SLOT_BYTES: Final = 1024


class ReachGuard:
    """Context manager that keeps a side from starting processes and from using the network."""

    def __init__(self, allowed: Collection[str]) -> None:
        """`allowed`: permissions that a person gave."""
        self.reached: tuple[str, str] | None = None
        """The permission that the side needed, and what needed it, such as `subprocess.run in line 3`."""
        self._allowed = allowed
        self._patches = Patches()
        self._local = threading.local()
        self._process = os.getpid()
        self._foreign: list[threading.Thread] = []
        """Threads that do not belong to the side."""
        self._slot = mmap.mmap(-1, _SLOT_BYTES)
        """Shared memory in which forked workers write what ended them."""

    def __enter__(self) -> ReachGuard:
        own = threading.current_thread()
        self._foreign = [thread for thread in threading.enumerate() if thread is not own]
        try:
            self._stand_in()
        except BaseException:  # an interrupt meanwhile
            self._patches.restore()
            raise
        return self

    def _stand_in(self) -> None:
        wrap = self._patches.wrap
        wrap(threading.Thread, "start", self._following)
        if PROCESSES not in self._allowed:
            wrap(multiprocessing.process.BaseProcess, "start", self._starting)
            wrap(subprocess.Popen, "__init__", partial(self._barred, label="subprocess.Popen"))
            for name in _STARTS:
                if hasattr(os, name):
                    wrap(os, name, partial(self._barred, label=f"os.{name}"))
        if NETWORK not in self._allowed:
            wrap(socket, "getaddrinfo", self._looking_up)
            for name in _SENDS:
                wrap(socket.socket, name, self._sending)

    def __exit__(self, *raised: object) -> None:
        self._patches.restore()
        kind, _, what = self._slot[:].rstrip(b"\0").decode(errors="replace").partition("\0")
        if kind and self.reached is None:
            self.reached = kind, what
        self._slot.close()

    # ---- what stands in place of a function ----------------------------------------------------------------------

    def _following(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the stand-in for `Thread.start`: a thread that a foreign thread starts is foreign, too."""

        def start(thread: Any, *args: Any, **named: Any) -> Any:
            if threading.current_thread() in self._foreign:
                self._foreign.append(thread)
            return original(thread, *args, **named)

        return start

    def _starting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the stand-in for a process's `start`: refuses all but a data loader's workers and exempt callers."""

        def start(process: Any, *args: Any, **named: Any) -> Any:
            target = getattr(getattr(process, "_target", None), "__module__", None) or ""
            if not target.startswith(_LOADERS):
                self._pass_or_end(PROCESSES, f"{type(process).__name__}.start")
            self._local.starts = True
            try:
                return original(process, *args, **named)
            finally:
                self._local.starts = False

        return start

    def _barred(self, original: Callable[..., Any], label: str) -> Callable[..., Any]:
        """Returns the stand-in for a function that starts a process: refuses all but a worker's and exempt callers."""

        def barred(*args: Any, **named: Any) -> Any:
            if not getattr(self._local, "starts", False):
                self._pass_or_end(PROCESSES, label)
            result = original(*args, **named)
            if os.getpid() != self._process:
                self._local.starts = False  # only the worker itself was allowed, not what it starts
            return result

        return barred

    def _looking_up(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the stand-in for `getaddrinfo`: refuses a name of another machine, unless the caller is exempt."""

        def getaddrinfo(host: Any, *args: Any, **named: Any) -> Any:
            if _is_name(host):
                self._pass_or_end(NETWORK, "socket.getaddrinfo", str(host))
            return original(host, *args, **named)

        return getaddrinfo

    def _sending(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the stand-in for a socket's function: refuses an internet address, unless the caller is exempt.

        Local sockets pass.
        """

        def reach(own: Any, *args: Any, **named: Any) -> Any:
            address = next((argument for argument in reversed(args) if isinstance(argument, tuple) and argument), None)
            if own.family in (socket.AF_INET, socket.AF_INET6) and address is not None:
                self._pass_or_end(NETWORK, f"socket.{original.__name__}", str(address[0]))
            return original(own, *args, **named)

        return reach

    # ---- the decision --------------------------------------------------------------------------------------------

    def _pass_or_end(self, kind: str, label: str, host: str = "") -> None:
        """Lets a call pass, or ends the side.

        Raises:
            RunEnded: in the side's own process. Refused: in a worker, which passes it on to the process above.
        """
        what = label
        with suppress(Exception):  # a failure of our own check permits nothing
            frames = [*_outward(sys._getframe(2))]
            if threading.current_thread() in self._foreign or _is_exempt(kind, frames, host):
                return
            what = _named(frames, label) + (f", to {host}" if host else "")
        if os.getpid() != self._process:
            reached = f"{kind}\0{what}".encode()[:_SLOT_BYTES]
            with suppress(ValueError):  # it is closed: the side is over
                self._slot[: len(reached)] = reached
            raise Refused(what)
        self.reached = self.reached or (kind, what)
        raise RunEnded("refused")


def _outward(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__") or "__main__")


def _is_exempt(kind: str, frames: list[FrameType], host: str) -> bool:
    """True if a call is not the user's, judged by the modules of Python that it goes through, and their caller."""
    through = list[str]()
    caller = ""
    for module in map(_module, frames):
        if module.partition(".")[0] not in sys.stdlib_module_names:
            caller = module
            break
        through.append(module)
    if kind == PROCESSES:
        return caller.startswith(_HARMLESS) or any(name in _LOOK_UPS for name in through)
    return _is_here(host) and any(name.startswith("multiprocessing.") for name in through)


def _named(frames: list[FrameType], label: str) -> str:
    """Returns the user's call and its line: `subprocess.run in line 3 of send()`."""
    called = label
    for frame in frames:
        module, name = _module(frame), frame.f_code.co_name
        if is_users(module):
            place = "" if name == "<module>" else f" of {name}()"
            return f"{called} in line {frame.f_lineno}{place}"
        if not name.startswith(("_", "<")) and not module.startswith("gpu_doctor."):
            called = f"{module.partition('.')[0]}.{name}"
    return called


def _is_name(host: Any) -> bool:
    """True if a host is a name that needs a look-up on another machine."""
    if isinstance(host, bytes):
        host = host.decode(errors="replace")
    if not isinstance(host, str) or host in ("", "localhost", socket.gethostname()):
        return False
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return True
    return False


def _is_here(host: str) -> bool:
    """True for a loopback address of this machine."""
    try:
        return host in ("", "localhost") or ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
