"""Lines that write data to files, read off the text: what is opened for bytes, `np.save` and its like, copied files.

Lines that call `torch.save` or a writer of safetensors are none of them: those calls are heard and timed by the clock.
A file that is opened for text is a log, not a checkpoint.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from gpu_doctor.cell.statements import FUNCTIONS, lines_of, parsed

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
_LONGEST: Final = 200_000
"""Characters of a text that is parsed for this, at most: some 5000 lines."""


@lru_cache(maxsize=64)
def saving_rows(text: str) -> frozenset[int]:
    """Lines of statements that write data to a file.

    Args:
        text: all of a file.
    """
    asked = len(text) <= _LONGEST and any(word in text for word in ("open", "save", "dump", "tofile", "write_", "os."))
    tree = parsed(text) if asked or "shutil" in text else None
    if tree is None:
        return frozenset()
    imported = _imported(tree)
    rows = {row for one in _simple(tree) if _saves(one, imported) for row in lines_of(one)}
    for scope in (tree, *(one for one in ast.walk(tree) if isinstance(one, FUNCTIONS))):
        for opening, within, name in _opened(scope, imported):
            rows.update(opening)
            rows.update(row for one in _simple(within) if _mentions(one, name) for row in lines_of(one))
    heard = {row for one in _simple(tree) if _calls(one, imported) & _HEARD for row in lines_of(one)}
    return frozenset(rows - heard)


def _opened(scope: ast.AST, imported: dict[str, str]) -> Iterator[tuple[Iterable[int], ast.AST, str]]:
    """Files that are opened to write bytes: the lines that do so, where the file is known, and its name there."""
    for one in ast.walk(scope):
        if isinstance(one, (ast.With, ast.AsyncWith)):
            for item in one.items:
                if _opens(item.context_expr, imported) and isinstance(item.optional_vars, ast.Name):
                    yield lines_of(item.context_expr), one, item.optional_vars.id
        elif isinstance(one, ast.Assign) and _opens(one.value, imported):
            for target in one.targets:
                if isinstance(target, ast.Name):
                    yield lines_of(one), scope, target.id


def _opens(node: ast.expr, imported: dict[str, str]) -> bool:
    """`open(path, "wb")`, of any module or path."""
    if not isinstance(node, ast.Call) or _dotted(node.func, imported).rpartition(".")[2] != "open":
        return False
    given = (*node.args[:2], *(one.value for one in node.keywords if one.arg == "mode"))
    modes = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return any("b" in mode and set(mode) & set("wx") and set(mode) <= set("wxb+") for mode in modes)


def _saves(statement: ast.stmt, imported: dict[str, str]) -> bool:
    called = _calls(statement, imported)
    return bool(called & _SAVERS) or any(name.rpartition(".")[2] in _METHODS for name in called)


def _calls(statement: ast.stmt, imported: dict[str, str]) -> set[str]:
    return {_dotted(one.func, imported) for one in ast.walk(statement) if isinstance(one, ast.Call)}


def _mentions(statement: ast.stmt, name: str) -> bool:
    found = list(ast.walk(statement))
    return any(isinstance(one, ast.Name) and one.id == name for one in found) and any(
        isinstance(one, ast.Call) for one in found
    )


def _simple(tree: ast.AST) -> Iterator[ast.stmt]:
    """Statements that hold no others."""
    return (one for one in ast.walk(tree) if isinstance(one, ast.stmt) and not hasattr(one, "body"))


def _dotted(node: ast.expr, imported: dict[str, str]) -> str:
    """`numpy.save` for `np.save`; of a call's or an item's method, `.tofile`."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    head = imported.get(node.id, node.id) if isinstance(node, ast.Name) else ""
    return ".".join((head, *reversed(parts)))


def _imported(tree: ast.AST) -> dict[str, str]:
    """Name -> the module or function that it stands for."""
    names = dict(_USUAL)
    for one in ast.walk(tree):
        if isinstance(one, ast.Import):
            names.update({alias.asname: alias.name for alias in one.names if alias.asname})
        elif isinstance(one, ast.ImportFrom) and not one.level:
            names.update({alias.asname or alias.name: f"{one.module}.{alias.name}" for alias in one.names})
    return names
