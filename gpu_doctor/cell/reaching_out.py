"""Finds calls in the user's code that reach outside its process: network requests, and started processes.

They are found in the text. A name that has a value already, such as a session from an earlier cell, is resolved by it.
"""

from __future__ import annotations

import ast
import fnmatch
import functools
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpu_doctor.cell.source import CellSource
from gpu_doctor.cell.syntax import dotted, imported

NETWORK: Final = "network"
PROCESSES: Final = "processes"
REACHES: Final[Mapping[str, str]] = {
    NETWORK: "requests.* httpx.* aiohttp.* urllib.request.* urllib3.* http.client.* socket.socket socket.socket.* "
    "socket.create_connection smtplib.* ftplib.* telnetlib.* imaplib.* paramiko.* fabric.* boto3.* botocore.* "
    "google.cloud.* azure.* websocket.* websockets.* grpc.* pika.* kafka.* redis.* pymongo.* psycopg* pymysql.* zmq.* "
    "paho.* slack_sdk.* telegram.* openai.* anthropic.* "
    "huggingface_hub.* datasets.*.push_to_hub *.push_to_hub *.upload_to_hub",
    PROCESSES: "subprocess.* os.system os.popen os.fork os.forkpty os.spawn* os.posix_spawn* os.exec* os.startfile "
    "posix.system posix.fork posix.spawn* posix.posix_spawn* posix.exec* pty.spawn pexpect.* "
    "multiprocessing.*Process multiprocessing.*Pool multiprocessing.*Manager multiprocessing.pool.* "
    "multiprocessing.process.*.start torch.multiprocessing.*spawn torch.multiprocessing.*start_processes "
    "torch.multiprocessing.*Process torch.multiprocessing.*Pool concurrent.futures.*ProcessPoolExecutor* "
    "asyncio.create_subprocess_* asyncio.subprocess.* joblib.*Parallel loky.* pathos.* "
    "get_ipython().system get_ipython().getoutput get_ipython().system_raw",
}
"""Shell patterns of the full names of such calls, by kind. A loader's workers are not included: the loader starts them
for the loop, and a trial ends them."""
_HARMLESS: Final = (
    "requests.exceptions.* subprocess.*Error subprocess.list2cmdline socket.gethostname *.Timeout *.Error "
    "urllib3.disable_warnings urllib3.util.* multiprocessing.current_process multiprocessing.parent_process "
    "huggingface_hub.constants.* huggingface_hub.utils.* openai.*Error *.ThreadPool *.ThreadPool.*"
)
_MAGICS: Final = ("bash", "sh", "script", "system", "sx", "cmd", "pip", "conda", "mamba", "perl", "ruby")
_SHELL: Final = re.compile(rf"^\s*(?:[\w.,\s]+=\s*)?(?:!+|%+(?={'|'.join(_MAGICS)}\b))\s*([\w./-]+)")


@dataclass(frozen=True)
class Reach:
    """A call that reaches outside the process."""

    kind: str
    """`NETWORK` or `PROCESSES`."""
    what: str
    """The function as written: `requests.post`, `!cp`."""
    line: int


def reaches(source: CellSource, namespace: Mapping[str, Any]) -> list[Reach]:
    """Returns the calls of a cell or a function that reach outside the process, in order, each function once."""
    found = [*_shell_lines(source)]
    names = _Names(source, namespace)
    for call in source.walk(ast.Call):
        meant = names.meant(call.func)
        kind = next((kind for kind, patterns in REACHES.items() if is_among(meant, patterns)), None)
        if kind is not None and not is_among(meant, _HARMLESS):
            found.append(Reach(kind, ast.unparse(call.func), call.lineno))
    return list({(reach.kind, reach.what): reach for reach in reversed(found)}.values())[::-1]


def called_names(source: CellSource) -> list[tuple[str, ...]]:
    """Returns the dotted names that a cell or a function calls, such as `("bot", "send")` for `bot.send()`."""
    found = (tuple(dotted(call.func)) for call in source.walk(ast.Call))
    return list(dict.fromkeys(names for names in found if names))


class _Names:
    """Full names of the objects that the names in a text refer to."""

    def __init__(self, source: CellSource, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._own = dict.fromkeys(_assigned_names(source), "")
        self._own |= imported(source.tree) if source.tree is not None else {}
        for node in source.walk(ast.Assign, ast.withitem):
            self._assigned(node)

    def _assigned(self, node: Any) -> None:
        """Resolves a name bound to the result of a call: `session = requests.Session()`, `with Pool(4) as pool`."""
        value, target = (
            (node.value, node.targets[0]) if isinstance(node, ast.Assign) else (node.context_expr, node.optional_vars)
        )
        if isinstance(value, ast.Call) and isinstance(target, ast.Name):
            meant = self.meant(value.func)
            if meant and any(is_among(meant, patterns) for patterns in REACHES.values()):
                self._own[target.id] = meant

    def meant(self, func: ast.expr) -> str:
        """Returns the full name of the object that an expression refers to, as far as it is known."""
        parts: list[str] = []
        while isinstance(func, ast.Attribute):
            parts.insert(0, func.attr)
            func = func.value
        if isinstance(func, ast.Call):
            return ".".join([ast.unparse(func) if not func.args else "", *parts])
        if not isinstance(func, ast.Name):
            return ""
        name = func.id
        if not self._own.get(name) and name in self._namespace:
            return ".".join([_full_name(self._namespace[name]), *parts])
        return ".".join([self._own.get(name, name), *parts])


def _assigned_names(source: CellSource) -> Iterator[str]:
    """Yields the names that a text assigns, defines or has as parameters: none of them refers to a package."""
    for node in source.walk(ast.Name, ast.arg, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
        if isinstance(node, ast.arg):
            yield node.arg
        elif not isinstance(node, ast.Name):
            yield node.name
        elif isinstance(node.ctx, ast.Store):
            yield node.id


def _full_name(value: Any) -> str:
    """Returns the full name of a module, function or class; for any other object, that of its class."""
    cls = type(value)
    if issubclass(cls, types.ModuleType):
        return str(value.__name__)
    if issubclass(cls, types.MethodType):
        return f"{type(value.__self__).__module__}.{value.__qualname__}"
    named = value if issubclass(cls, (type, types.FunctionType, types.BuiltinFunctionType)) else cls
    return f"{named.__module__}.{named.__qualname__}"


def _shell_lines(source: CellSource) -> Iterator[Reach]:
    """Yields the shell lines of a text, such as `!cp a b` and `%%bash`.

    A text that is valid Python has none, so that no string is mistaken for one.
    """
    try:
        ast.parse(source.text)
        return
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    for number, line in enumerate(source.text.splitlines(), 1):
        match = _SHELL.match(line)
        if match is not None:
            mark = "!" if "!" in line[: match.start(1)] else "%"
            yield Reach(PROCESSES, mark + match.group(1), number)


def is_among(name: str, patterns: str) -> bool:
    """Returns True if a name matches one of several shell patterns, which are separated by spaces."""
    return _pattern(patterns).match(name) is not None


@functools.cache
def _pattern(patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, patterns.split())) or "(?!)")


def full_names_called(source: CellSource, namespace: Mapping[str, Any]) -> list[str]:
    """Returns the full names that a cell or a function calls, as far as they are known, each once: `cv2.imwrite`."""
    names = _Names(source, namespace)
    return list(dict.fromkeys(name for call in source.walk(ast.Call) if (name := names.meant(call.func))))
