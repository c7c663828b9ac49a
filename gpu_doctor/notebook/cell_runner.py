"""Runs a cell as IPython itself would: compiled once under its own file name, in the user's namespace.

Tracebacks and line costs point to the cell as the user sees it (the magic's line is line 1). IPython's syntax, the
display of the last expression and top-level `await` work as in any cell. A trial runs the same compiled code again.
"""

from __future__ import annotations

import ast
import functools
import inspect
import io
import linecache
import sys
import tokenize
from collections.abc import Callable
from typing import Any, Final

from IPython.core.interactiveshell import InteractiveShell

from gpu_doctor.capture import Patches
from gpu_doctor.notebook.awaiting import awaited
from gpu_doctor.notebook.output import Captured
from gpu_doctor.trials import AlreadyShown

MAGIC: Final = "%%gpudoctor"


class Cell:
    """One compiled cell, ready to run any number of times."""

    def __init__(self, shell: InteractiveShell, line: str, body: str) -> None:
        """Compiles `body`, the text under the magic's line.

        Raises:
            SyntaxError: The cell has one; it is the error that IPython would raise, with the cell's own line number.
        """
        self._shell = shell
        self.source = f"{MAGIC} {line}".rstrip() + "\n" + body
        """Text of the cell as the user sees it, the magic's line first."""
        # An empty line replaces the magic's line, so that line 2 of the cell is line 2 of every traceback.
        code = "\n" + shell.transform_cell(body)
        self.file = _cached(shell, code, self.source)
        tree = shell.transform_ast(shell.compile.ast_parse(code, self.file))
        self._codes = self._compiled(tree, _ends_in_semicolon(body))

    @classmethod
    def of(cls, shell: InteractiveShell, source: str) -> Cell:
        """Compiles a cell from its whole text, the magic's line first, such as a cell with a change written in."""
        head, _, body = source.lstrip().partition("\n")
        magic, _, line = head.partition(" ")
        if magic.strip() != MAGIC:
            raise ValueError(f"A changed cell begins with {MAGIC}, not with {head!r:.60}.")
        return cls(shell, line.strip(), body)

    def _compiled(self, tree: ast.Module, silent: bool) -> list[Any]:
        """Compiles the statements in order; those that `ast_node_interactivity` displays are in `single` mode."""
        shell = self._shell
        mode = shell.ast_node_interactivity
        nodes = list(tree.body)
        if mode == "last_expr_or_assign":
            nodes = _with_assigned_name(nodes)
            mode = "last_expr"
        if mode == "last_expr":
            mode = "last" if nodes and isinstance(nodes[-1], ast.Expr) else "none"
        shown = {"all": len(nodes), "last": 0 if silent else 1, "none": 0}.get(mode, 0)
        quiet, loud = (nodes[:-shown], nodes[-shown:]) if shown else (nodes, [])
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if getattr(shell, "autoawait", False) else 0
        with shell.compile.extra_flags(flags):
            codes = [shell.compile(ast.Module([node], []), self.file, "exec") for node in quiet]
            codes += [shell.compile(ast.Interactive([node]), self.file, "single") for node in loud]
        return codes

    def run(self, namespace: dict[str, Any]) -> AlreadyShown | None:
        """Runs the cell in `namespace` and lets its errors pass unchanged.

        Returns:
            The last error that IPython showed itself instead of raising it, as `%run` does with a script's errors.
        """
        # IPython hides the frames above this frame from the traceback, as it does for its own.
        __tracebackhide__ = "__ipython_bottom__"
        shown = list[AlreadyShown]()

        def noting(original: Callable[..., Any]) -> Callable[..., Any]:
            """Wraps `showtraceback`: stores the error that it shows."""

            @functools.wraps(original)
            def showtraceback(*given: Any, **named: Any) -> Any:
                error = sys.exc_info()[1]
                if error is not None:
                    shown[:] = [AlreadyShown.of(error)]
                return original(*given, **named)

            return showtraceback

        with Patches() as patches:
            patches.wrap(self._shell, "showtraceback", noting)
            for code in self._codes:
                if inspect.CO_COROUTINE & code.co_flags:
                    awaited(eval(code, self._shell.user_global_ns, namespace), self._shell.loop_runner)
                else:
                    exec(code, self._shell.user_global_ns, namespace)
        return shown[0] if shown else None

    @staticmethod
    def quietly() -> Any:
        """Returns a context that captures what the cell writes and displays: a trial shows its row instead."""
        return Captured()


def _cached(shell: InteractiveShell, code: str, raw: str) -> str:
    """Registers the cell's text with IPython and linecache; returns the file name they know it by."""
    name = shell.compile.cache(code, shell.execution_count, raw_code=raw)
    linecache.cache.setdefault(name, (len(raw), None, raw.splitlines(keepends=True), name))
    return str(name)


def _ends_in_semicolon(body: str) -> bool:
    """Returns True if the cell ends in a semicolon, ignoring comments: its last value is not displayed."""
    try:
        tokens = [
            token.string
            for token in tokenize.generate_tokens(io.StringIO(body).readline)
            if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER, tokenize.DEDENT)
        ]
    except (tokenize.TokenError, SyntaxError):  # IPython's own syntax in the cell
        return body.rstrip().endswith(";")
    return bool(tokens) and tokens[-1] == ";"


def _with_assigned_name(nodes: list[ast.stmt]) -> list[ast.stmt]:
    """Appends the name of a last assignment's target, as IPython's mode `last_expr_or_assign` does."""
    last = nodes[-1] if nodes else None
    target = None
    if isinstance(last, ast.Assign):
        target = last.targets[-1]
    elif isinstance(last, (ast.AugAssign, ast.AnnAssign)):
        target = last.target
    if isinstance(target, ast.Name):
        shown = ast.Expr(ast.Name(target.id, ast.Load()))
        nodes = [*nodes, ast.fix_missing_locations(ast.copy_location(shown, nodes[-1]))]
    return nodes
