"""Writes the page's type declarations from the classes of the panel's contract: `python -m tools.typescript`.

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
from dataclasses import is_dataclass
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from gpu_doctor.recording import SettingValue
from gpu_doctor.report import contract
from tests.support.repository import ROOT

FILE: Final = ROOT / "gpu_doctor" / "notebook" / "frontend" / "src" / "contract.d.ts"
ROOTS: Final = (contract.Whole, contract.News, contract.Request)
HEAD: Final = """\
// What kernel and page say to each other. Generated from gpu_doctor/report/contract.py: do not edit it, run
// python -m tools.typescript

/** A value of a knob; null where it is not known. */
export type Value = string | number | boolean | null;
/** Knob -> value. */
export type Settings = Record<string, string | number | boolean>;
"""
_NAMED: Final = {
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
    contract.Changed: "Partial<PanelState>",
    SettingValue | None: "Value",
    Mapping[str, SettingValue]: "Settings",
}


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
    if (is_dataclass(one) and isinstance(one, type)) or is_typeddict(one):
        if one in found:
            return
        found.append(one)
        for hint in get_type_hints(one).values():
            _meet(hint, found)
    for inner in get_args(one):
        _meet(inner, found)


def _interface(one: type) -> str:
    hints, said = get_type_hints(one), dict(_docs(one))
    lines = [_comment(inspect.getdoc(one) or "", ""), f"export interface {_name(one)} {{\n"]
    for name, hint in hints.items():
        lines.append(_comment(said.get(name, ""), "  "))
        named = name if is_typeddict(one) else contract.camel(name)
        optional = "?" if name in getattr(one, "__optional_keys__", ()) else ""
        lines.append(f"  {named}{optional}: {written(hint)};\n")
    return "".join([*lines, "}\n"])


def written(hint: Any) -> str:
    """A type as TypeScript writes it."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in _NAMED:
        return _NAMED[hint]
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
    return _name(hint)


def _name(one: type) -> str:
    """`Fix` for `FixShown`."""
    return one.__name__.removesuffix("Shown")


def _docs(one: type) -> Iterator[tuple[str, str]]:
    """Fields with what stands under them, a base's first."""
    for base in [*reversed(one.__mro__[:-1]), one]:
        if base is dict:
            continue
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
