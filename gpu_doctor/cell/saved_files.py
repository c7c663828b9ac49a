"""Lines that write data to files, read off the text: what is opened for bytes, `np.save` and its like, copied files.

Lines that call `torch.save` or a writer of safetensors are none of them: those calls are heard and timed by the clock.
A file that is opened for text is a log, not a checkpoint.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from gpu_doctor.cell.syntax import FUNCTIONS, full_name, imported, lines_of, name_of, parsed, simple

_HEARD: Final = {
    *("torch.save", "safetensors.torch.save_file", "safetensors.torch.save_model", "safetensors.torch.serialize_file")
}
"""The seams of `capture.taps.costly_calls`."""
_SAVERS: Final = {
    *("numpy.save", "numpy.savez", "numpy.savez_compressed", "pickle.dump", "joblib.dump", "dill.dump"),
    *("cloudpickle.dump", "os.replace", "os.rename", "shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.move"),
}
_METHODS: Final = {"tofile", "write_bytes"}
_USUAL: Final = {"np": "numpy"}
"""What a module is called in a cell whose imports stand in another one."""


@lru_cache(maxsize=64)
def saving_rows(text: str) -> frozenset[int]:
    """Lines of statements that write data to a file.

    Args:
        text: all of a file.
    """
    asked = any(word in text for word in ("open", "save", "dump", "tofile", "write_", "os.", "shutil"))
    tree = parsed(text) if asked else None
    if tree is None:
        return frozenset()
    imports = _USUAL | imported(tree)
    rows = {row for one in simple(tree) if _saves(one, imports) for row in lines_of(one)}
    for scope in (tree, *(one for one in ast.walk(tree) if isinstance(one, FUNCTIONS))):
        for opening, within, name in _opened(scope, imports):
            rows.update(opening)
            rows.update(row for one in simple(within) if _mentions(one, name) for row in lines_of(one))
    heard = {row for one in simple(tree) if _calls(one, imports) & _HEARD for row in lines_of(one)}
    return frozenset(rows - heard)


def _opened(scope: ast.AST, imports: dict[str, str]) -> Iterator[tuple[Iterable[int], ast.AST, str]]:
    """Files that are opened to write bytes: the lines that do so, where the file is known, and its name there."""
    for one in ast.walk(scope):
        if isinstance(one, (ast.With, ast.AsyncWith)):
            for item in one.items:
                if _opens(item.context_expr, imports) and isinstance(item.optional_vars, ast.Name):
                    yield lines_of(item.context_expr), one, item.optional_vars.id
        elif isinstance(one, ast.Assign) and _opens(one.value, imports):
            for target in one.targets:
                if isinstance(target, ast.Name):
                    yield lines_of(one), scope, target.id


def _opens(node: ast.expr, imports: dict[str, str]) -> bool:
    """`open(path, "wb")`, of any module or path."""
    if not isinstance(node, ast.Call) or full_name(node.func, imports).rpartition(".")[2] != "open":
        return False
    given = (*node.args[:2], *(one.value for one in node.keywords if one.arg == "mode"))
    modes = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return any("b" in mode and set(mode) & set("wx") and set(mode) <= set("wxb+") for mode in modes)


def _saves(statement: ast.stmt, imports: dict[str, str]) -> bool:
    called = _calls(statement, imports)
    methods = {name_of(one) for one in ast.walk(statement) if isinstance(one, ast.Call)}
    return bool(called & _SAVERS or methods & _METHODS)


def _calls(statement: ast.stmt, imports: dict[str, str]) -> set[str]:
    return {full_name(one.func, imports) for one in ast.walk(statement) if isinstance(one, ast.Call)}


def _mentions(statement: ast.stmt, name: str) -> bool:
    found = list(ast.walk(statement))
    return any(isinstance(one, ast.Name) and one.id == name for one in found) and any(
        isinstance(one, ast.Call) for one in found
    )
