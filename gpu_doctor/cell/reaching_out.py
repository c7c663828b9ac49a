"""Calls in the user's code that reach out of its process: requests that are sent, and processes that are started.

Read off the text; where a name is there already it says what it stands for, such as a session of an earlier cell.
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
"""What is called, by its full name with patterns as in a shell. A loader's workers are none of it: the loader starts
them for the loop, and a trial ends them."""
_HARMLESS: Final = (
    "requests.exceptions.* subprocess.*Error subprocess.list2cmdline socket.gethostname *.Timeout *.Error "
    "urllib3.disable_warnings urllib3.util.* multiprocessing.current_process multiprocessing.parent_process "
    "huggingface_hub.constants.* huggingface_hub.utils.* openai.*Error *.ThreadPool *.ThreadPool.*"
)
_MAGICS: Final = ("bash", "sh", "script", "system", "sx", "cmd", "pip", "conda", "mamba", "perl", "ruby")
_SHELL: Final = re.compile(rf"^\s*(?:[\w.,\s]+=\s*)?(?:!+|%+(?={'|'.join(_MAGICS)}\b))\s*([\w./-]+)")


@dataclass(frozen=True)
class Reach:
    """One call."""

    kind: str
    """`NETWORK` or `PROCESSES`."""
    what: str
    """As it is written: `requests.post`, `!cp`."""
    line: int


def reaches(source: CellSource, namespace: Mapping[str, Any]) -> list[Reach]:
    """The calls of a cell or a function that reach out, in order, each kind of call once."""
    found = [*_shell_lines(source)]
    names = _Names(source, namespace)
    for call in source.walk(ast.Call):
        meant = names.meant(call.func)
        kind = next((kind for kind, patterns in REACHES.items() if is_among(meant, patterns)), None)
        if kind is not None and not is_among(meant, _HARMLESS):
            found.append(Reach(kind, ast.unparse(call.func), call.lineno))
    return list({(one.kind, one.what): one for one in reversed(found)}.values())[::-1]


def called_names(source: CellSource) -> list[tuple[str, ...]]:
    """What a cell or a function calls by names alone: `("send",)` of `send()`, `("bot", "send")` of `bot.send()`."""
    found = (tuple(dotted(call.func)) for call in source.walk(ast.Call))
    return list(dict.fromkeys(one for one in found if one))


class _Names:
    """What the names of a text stand for."""

    def __init__(self, source: CellSource, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._own = dict.fromkeys(_assigned_names(source), "")
        self._own |= imported(source.tree) if source.tree is not None else {}
        for node in source.walk(ast.Assign, ast.withitem):
            self._assigned(node)

    def _assigned(self, node: Any) -> None:
        """`session = requests.Session()`, `with Pool(4) as pool`: the name stands for what the call makes."""
        value, target = (
            (node.value, node.targets[0]) if isinstance(node, ast.Assign) else (node.context_expr, node.optional_vars)
        )
        if isinstance(value, ast.Call) and isinstance(target, ast.Name):
            meant = self.meant(value.func)
            if meant and any(is_among(meant, patterns) for patterns in REACHES.values()):
                self._own[target.id] = meant

    def meant(self, func: ast.expr) -> str:
        """The full name of what an expression stands for, as far as it is known."""
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
    """Names that a text gives to what it makes, or takes as an argument: none of them is a package."""
    for node in source.walk(ast.Name, ast.arg, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
        if isinstance(node, ast.arg):
            yield node.arg
        elif not isinstance(node, ast.Name):
            yield node.name
        elif isinstance(node.ctx, ast.Store):
            yield node.id


def _full_name(value: Any) -> str:
    cls = type(value)
    if issubclass(cls, types.ModuleType):
        return str(value.__name__)
    if issubclass(cls, types.MethodType):
        return f"{type(value.__self__).__module__}.{value.__qualname__}"
    named = value if issubclass(cls, (type, types.FunctionType, types.BuiltinFunctionType)) else cls
    return f"{named.__module__}.{named.__qualname__}"


def _shell_lines(source: CellSource) -> Iterator[Reach]:
    """`!cp a b` and `%%bash`: only where the text is no Python as it stands, so that no string is taken for one."""
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
    """Whether a name is one of those that patterns as in a shell stand for, parted by blanks; of none without any."""
    return _pattern(patterns).match(name) is not None


@functools.cache
def _pattern(patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, patterns.split())) or "(?!)")


def full_names_called(source: CellSource, namespace: Mapping[str, Any]) -> list[str]:
    """The full names of what a cell or a function calls, as far as they are known, each once: `cv2.imwrite`."""
    names = _Names(source, namespace)
    return list(dict.fromkeys(name for call in source.walk(ast.Call) if (name := names.meant(call.func))))
