"""Parses the text of a cell into a syntax tree, and answers basic questions about the nodes of a tree.

IPython's own lines (`%magic`, `!command`) are not Python: they are replaced by `pass`, so that every other line keeps
its number.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

__all__ = ["FUNCTIONS", "Function", "Loop", "calls_of", "dotted", "imported", "name_of", "parts_of_target"]

Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS: Final = (*FUNCTIONS, ast.ClassDef)
Loop: TypeAlias = "ast.For | ast.AsyncFor | ast.While"
LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)
_CELL_MAGIC: Final = re.compile(r"\s*%%(\w+)")
_ELSEWHERE: Final = {
    *("bash", "sh", "script", "system", "sx", "cmd", "perl", "ruby", "python", "python2", "python3", "pypy", "px"),
    *("writefile", "file", "html", "HTML", "svg", "SVG", "latex", "markdown", "javascript", "js", "cython", "R", "sql"),
}
"""Cell magics whose text is in another language, goes into a file, or is run by another process."""
_SHELL_LINE: Final = re.compile(r"^(\s*)(?:[%!?].*|[\w.]+\?{1,2}\s*|[\w.,\s]+=\s*[%!].*)$")


def tree_of(text: str) -> ast.Module | None:
    """Returns a text's syntax tree, with IPython's lines masked; None if the text is not valid Python."""
    lines = re.split(r"\r\n|\r|\n", text)
    for at, line in enumerate(lines):
        magic = _CELL_MAGIC.match(line)
        if magic is not None and magic.group(1) in _ELSEWHERE:
            return None
        if magic is not None:
            lines[at] = ""
        elif line.strip():
            break
    for _ in range(len(lines) + 1):
        try:
            return _parse(lines)
        except SyntaxError as error:
            at = (error.lineno or 0) - 1
            if not 0 <= at < len(lines) or not _SHELL_LINE.match(lines[at]):
                break
            lines[at] = _masked(lines[at])
        except (ValueError, RecursionError, MemoryError):  # a null byte, half a character, brackets without end
            return None
    try:
        return _parse([_masked(line) if _SHELL_LINE.match(line) else line for line in lines])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _parse(lines: Iterable[str]) -> ast.Module:
    """Parses lines of Python, without warnings about their escape sequences."""
    text = "\n".join(lines)
    if "\\" not in text:
        return ast.parse(text)
    with warnings.catch_warnings():  # "invalid escape sequence" was reported when the text itself was compiled
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _masked(line: str) -> str:
    """Replaces a line by `pass`, with its indentation."""
    return line[: len(line) - len(line.lstrip())] + "pass"


def name_of(node: ast.AST) -> str:
    """Returns the last name of an expression, and for a call that of the function; empty if there is none."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def calls_of(node: ast.AST, name: str) -> Iterator[ast.Call]:
    """Returns the calls of functions and methods with this name inside a node."""
    return (call for call in ast.walk(node) if isinstance(call, ast.Call) and name_of(call) == name)


def dotted(node: ast.expr) -> list[str]:
    """Splits a dotted name: `["optim", "SGD"]` for `optim.SGD` and `optim.SGD[...]`; empty for anything else."""
    parts: list[str] = []
    node = node.value if isinstance(node, ast.Subscript) else node  # DataLoader[Rows](...)
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


def imported(tree: ast.AST) -> dict[str, str]:
    """Returns the names that a text imports, each with the full name of the module or of the module's member.

    The full name after a relative import begins with its dots. `from module import *` shows no names and adds none.
    """
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
            if isinstance(node, ast.ImportFrom):
                if alias.name != "*":
                    parent = "." * node.level + (f"{node.module}." if node.module else "")
                    found[alias.asname or alias.name] = parent + alias.name
            else:
                first = alias.name.partition(".")[0]
                found[alias.asname or first] = alias.name if alias.asname else first
    return found


def full_name(node: ast.expr, imports: Mapping[str, str]) -> str:
    """Returns an expression's full name, as `numpy.save` for `np.save`; its last name if it begins with a call or item.

    Args:
        node: The expression.
        imports: Full names of the imported names, see `imported`.
    """
    parts = dotted(node)
    return ".".join([imports.get(parts[0], parts[0]), *parts[1:]]) if parts else name_of(node)


def targets_of(statement: ast.AST) -> list[ast.expr]:
    """Returns the targets that a statement or the head of a block assigns to."""
    if isinstance(statement, ast.Assign):
        return statement.targets
    if isinstance(statement, (ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor)):
        return [statement.target]
    return [item.optional_vars for item in getattr(statement, "items", ()) if item.optional_vars is not None]


def parts_of_target(target: ast.expr) -> list[ast.expr]:
    """Splits a target into its parts: `a` and `b[0]` of `(a, b[0])`."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return [part for element in target.elts for part in parts_of_target(element)]
    return [target]


def pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yields target and value of an assignment, part by part if both are tuples or lists of the same length."""
    if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
        starred = any(isinstance(element, ast.Starred) for element in (*target.elts, *value.elts))
        if not starred and len(target.elts) == len(value.elts):
            for left, right in zip(target.elts, value.elts, strict=True):
                yield from pairs(left, right)
            return
    yield target, value


def blocks(statement: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yields the blocks of a statement: its body, `else`, `finally`, handlers and cases."""
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def nested(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields all statements of a body and of the blocks inside it, but not those inside definitions."""
    for statement in body:
        yield statement
        if not isinstance(statement, DEFINITIONS):
            for block in blocks(statement):
                yield from nested(block)
