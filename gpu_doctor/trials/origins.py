"""The line of an earlier cell that made a variable, where running it again means the same: read off the cells' texts.

It is the newest assignment of that name in the cells that ran, `name = ...` at the top of its cell, and none of the
names in it was assigned, deleted or imported since. Where a text could do so unseen (`exec`, `%run`, `global` in a
function, IPython's own syntax), there is no such line.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_doctor.trials.cell_reads import stored
from gpu_doctor.trials.used_names import names_in

_UNSEEN: Final = frozenset(("exec", "globals", "get_ipython"))
"""What binds names that stand in no text."""
_UNSEEN_MAGICS: Final = re.compile(r"^\s*%%?(run|store|reset|pylab|load|xdel)\b", re.MULTILINE)
_PYTHON_MAGICS: Final = re.compile(r"%%(gpudoctor|time|timeit|capture|prun)\b")


@dataclass(frozen=True)
class Origin:
    """How a variable was made."""

    value: ast.expr
    """What stands behind the equals sign."""
    text: str
    """The line: `stream = cycle(loader)`."""


def origin(name: str, cells: Sequence[str]) -> Origin | None:
    """The line that made a variable; None where there is none that may be run again.

    Args:
        name: of the variable.
        cells: texts as typed, oldest first, those that ran.
    """
    later: list[ast.stmt] = []
    for text in reversed(cells):
        body = _statements(text)
        if body is None:
            return None
        for statement in reversed(body):
            if name in _bound(statement):
                value = _assigned(statement)
                if value is None or (_named(value) | {name}) & _shared(cells) or _named(value) & _bound_in(later):
                    return None
                return Origin(value, f"{name} = {ast.unparse(value)}")
            if _binds_unseen(statement):
                return None
            later.append(statement)
    return None


@functools.lru_cache(maxsize=1024)
def _statements(text: str) -> list[ast.stmt] | None:
    """The statements of a cell; none of one in another language, None where it may bind names that stand in no text."""
    if text.lstrip().startswith("%%") and not _PYTHON_MAGICS.match(text.lstrip()):
        return None if _UNSEEN_MAGICS.match(text) else []
    if _UNSEEN_MAGICS.search(text):
        return None
    lines = ["" if line.lstrip().startswith(("%", "!", "?")) else line for line in text.split("\n")]
    try:
        return ast.parse("\n".join(lines)).body
    except (SyntaxError, ValueError, RecursionError):
        return None


def _binds_unseen(statement: ast.stmt) -> bool:
    return any(
        (isinstance(one, ast.Name) and one.id in _UNSEEN) or (isinstance(one, ast.alias) and one.name == "*")
        for one in ast.walk(statement)
    )


def _assigned(statement: ast.stmt) -> ast.expr | None:
    """What `name = ...` assigns, or `other = name = ...`; None for anything else."""
    if isinstance(statement, ast.AnnAssign):
        return statement.value if isinstance(statement.target, ast.Name) else None
    if not isinstance(statement, ast.Assign) or not all(isinstance(one, ast.Name) for one in statement.targets):
        return None
    return statement.value


def _bound_in(statements: Iterable[ast.stmt]) -> set[str]:
    return {name for one in statements for name in _bound(one)}


def _bound(statement: ast.stmt) -> set[str]:
    """Names of the notebook that a statement may bind or delete."""
    found = stored([statement])
    for one in ast.walk(statement):
        if isinstance(one, ast.Delete):
            found |= {target.id for target in one.targets if isinstance(target, ast.Name)}
        elif isinstance(one, ast.NamedExpr):
            found.add(one.target.id)
        elif isinstance(one, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
            found.add(one.name or "")
        elif isinstance(one, ast.MatchMapping):
            found.add(one.rest or "")
    return found


def _shared(cells: Iterable[str]) -> set[str]:
    """Names that functions of the cells bind for the notebook: `global stream`."""
    trees = [one for text in cells for one in _statements(text) or []]
    return {name for tree in trees for one in ast.walk(tree) if isinstance(one, ast.Global) for name in one.names}


def _named(value: ast.expr) -> set[str]:
    """Names of the notebook that an expression reads: those of its own, as of `(x for x in loader)`, are none."""
    return set(names_in(compile(ast.Expression(value), "<line>", "eval"))[0])
