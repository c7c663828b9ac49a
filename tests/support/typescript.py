"""Writes the page's type declarations from the classes of the panel's contract: `python -m tests.support.typescript`.

One interface a class, in the order in which they are met from the roots; what stands under a field in Python is the
comment before it.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from gpu_doctor.report.panel import contract
from tests.support.repository import ROOT

FILE: Final = ROOT / "gpu_doctor" / "notebook" / "frontend" / "src" / "contract.d.ts"
ROOTS: Final = (contract.PanelState,)
HEAD: Final = """\
// What the kernel tells the page. Generated from gpu_doctor/report/panel/contract.py: do not edit it, run
// python -m tests.support.typescript
"""
_PLAIN: Final = {str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"}


def declarations() -> str:
    """The text of the file."""
    return HEAD + "".join(f"\n{_interface(one)}" for one in classes())


def classes() -> list[type]:
    """Every class that is sent, each after the one that first names it."""
    found: list[type] = []
    for root in ROOTS:
        _meet(root, found)
    return found


def _meet(one: Any, found: list[type]) -> None:
    if is_dataclass(one) and isinstance(one, type):
        if one in found:
            return
        found.append(one)
        for hint in get_type_hints(one).values():
            _meet(hint, found)
    for inner in get_args(one):
        _meet(inner, found)


def _interface(one: type) -> str:
    hints, said = get_type_hints(one), dict(_docs(one))
    lines = [_comment(inspect.getdoc(one) or "", ""), f"export interface {one.__name__} {{\n"]
    for field in fields(one):
        lines.append(_comment(said.get(field.name, ""), "  "))
        lines.append(f"  {contract.camel(field.name)}: {written(hints[field.name])};\n")
    return "".join([*lines, "}\n"])


def written(hint: Any) -> str:
    """A type as TypeScript writes it."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " | ".join(f'"{one}"' for one in inner)
    if origin in (Union, types.UnionType):
        return " | ".join(dict.fromkeys(written(one) for one in inner))
    if origin is tuple and inner[-1] is Ellipsis:
        each = written(inner[0])
        return f"({each})[]" if " " in each else f"{each}[]"
    if origin is tuple:
        return f"[{', '.join(written(one) for one in inner)}]"
    if origin is not None and issubclass(origin, Mapping):
        return f"Record<string, {written(inner[1])}>"
    return _PLAIN[hint] if hint in _PLAIN else str(hint.__name__)


def _docs(one: type) -> Iterator[tuple[str, str]]:
    """Fields with what stands under them, a base's first."""
    for base in reversed(one.__mro__[:-1]):
        [found] = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(found, ast.ClassDef)
        for field, below in zip(found.body, found.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                yield ast.unparse(field.target), inspect.cleandoc(ast.literal_eval(below.value))


def _comment(text: str, indent: str) -> str:
    said = re.sub(r"\bNone\b", "null", text)
    wrapped = textwrap.wrap(said, 112 - len(indent), break_long_words=False, break_on_hyphens=False)
    if len(wrapped) < 2:
        return "".join(f"{indent}/** {line} */\n" for line in wrapped)
    return f"{indent}/**\n" + "".join(f"{indent} * {line}\n" for line in wrapped) + f"{indent} */\n"


def main() -> None:
    """Writes the file."""
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(declarations(), encoding="utf-8")


if __name__ == "__main__":
    main()
