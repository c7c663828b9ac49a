"""How the text of a cell becomes a syntax tree, and the words in which every question about it is asked.

IPython's own lines (`%magic`, `!command`) are no Python: they are masked by `pass`, so that every other line keeps its
number.
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
"""Cell magics whose text is another language's, a file's, or run by another process."""
_SHELL_LINE: Final = re.compile(r"^(\s*)(?:[%!?].*|[\w.]+\?{1,2}\s*|[\w.,\s]+=\s*[%!].*)$")


def tree_of(text: str) -> ast.Module | None:
    """A tree of a text's own, IPython's lines masked; None if it is no Python."""
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
    text = "\n".join(lines)
    if "\\" not in text:
        return ast.parse(text)
    with warnings.catch_warnings():  # "invalid escape sequence" was said when the text itself was compiled
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _masked(line: str) -> str:
    return line[: len(line) - len(line.lstrip())] + "pass"


def name_of(node: ast.AST) -> str:
    """The last name of an expression, of a call that of what is called; empty where it has none."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def calls_of(node: ast.AST, name: str) -> Iterator[ast.Call]:
    """Calls of a method or function of that name."""
    return (one for one in ast.walk(node) if isinstance(one, ast.Call) and name_of(one) == name)


def dotted(node: ast.expr) -> list[str]:
    """`["torch", "optim", "SGD"]` for `torch.optim.SGD` and `torch.optim.SGD[...]`; empty for anything else."""
    parts: list[str] = []
    node = node.value if isinstance(node, ast.Subscript) else node  # DataLoader[Rows](...)
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


def imported(tree: ast.AST) -> dict[str, str]:
    """The names that a text imports, each with the module, or what of a module, it stands for."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
            if isinstance(node, ast.ImportFrom):
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            else:
                first = alias.name.partition(".")[0]
                found[alias.asname or first] = alias.name if alias.asname else first
    return found


def full_name(node: ast.expr, imports: Mapping[str, str]) -> str:
    """`numpy.save` for `np.save`; the last name alone of what hangs on a call or an item."""
    parts = dotted(node)
    return ".".join([imports.get(parts[0], parts[0]), *parts[1:]]) if parts else name_of(node)


def targets_of(statement: ast.AST) -> list[ast.expr]:
    """What a statement, or a block's head, assigns to."""
    if isinstance(statement, ast.Assign):
        return statement.targets
    if isinstance(statement, (ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor)):
        return [statement.target]
    return [one.optional_vars for one in getattr(statement, "items", ()) if one.optional_vars is not None]


def parts_of_target(target: ast.expr) -> list[ast.expr]:
    """A target's own parts: `a` and `b[0]` of `(a, b[0])`."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return [part for one in target.elts for part in parts_of_target(one)]
    return [target]


def pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Target and value of an assignment, part by part where both are written out."""
    if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
        starred = any(isinstance(one, ast.Starred) for one in (*target.elts, *value.elts))
        if not starred and len(target.elts) == len(value.elts):
            for left, right in zip(target.elts, value.elts, strict=True):
                yield from pairs(left, right)
            return
    yield target, value


def blocks(statement: ast.AST) -> Iterator[list[ast.stmt]]:
    """The statements in a statement, block by block: its body, `else`, `finally`, handlers and cases."""
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for one in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield one.body


def nested(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements of a body, a block before what is in it; a definition as one of them."""
    for one in body:
        yield one
        if not isinstance(one, DEFINITIONS):
            for block in blocks(one):
                yield from nested(block)
