"""What the statements of a training step do, read off their text: which train, which change an object, which only look.

What the text does not tell is taken for training.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from gpu_doctor.cell.syntax import (
    DEFINITIONS,
    FUNCTIONS,
    LOOPS,
    Loop,
    blocks,
    key,
    lines_of,
    name_of,
    parts_of_target,
    targets_of,
)

_UPDATES: Final = {"zero_grad", "unscale_", "scale", "train", "eval", "synchronize"}
_UPDATING: Final = ("backward", "step")
"""Parts of the names of calls that train: `manual_backward`, `first_step`, `optimizer_step`, `env.step`."""
_CLIPS: Final = ("clip_grad",)
_TELLS: Final = re.compile(
    r"log|print|plot|draw|show|display|save|dump|write|record|report|track|watch|eval|valid|test|metric|append|extend"
    r"|add_(scalar|histogram|image|figure|text|graph)|set_(postfix|description)|info|debug"
)
"""Names of calls that tell of their arguments and change none of them."""
_SHELVES: Final = {"np", "numpy", "random", "torch", "heapq", "dist", "functional", "F", "nn", "gc", "os"}
"""Modules whose functions may change an argument: `random.shuffle(order)`."""
_BLOCKS: Final = (ast.If, ast.With, ast.AsyncWith, ast.Try, *LOOPS)
_LEAVES: Final = (
    *(ast.Return, ast.Break, ast.Continue, ast.Raise, ast.Global, ast.Nonlocal),
    *DEFINITIONS,
)
_MUTATORS: Final = {"append", "extend", "add", "insert", "update", "copy_", "appendleft"}
"""Methods by which a statement changes the object whose method it calls."""
_KNOWN: Final = _MUTATORS | {"step", "zero_grad", "backward", "item", "detach", "cpu", "numpy", "tolist", "mean", "sum"}
MODULES: Final = {"torch", "nn", "np", "numpy", "math", "time"}


def differentiates(node: ast.AST) -> bool:
    """Whether anything in it asks for gradients: `loss.backward()`, `self.manual_backward(loss)`."""
    return any("backward" in name for name in called((node,)))


def tells(name: str) -> bool:
    """Whether a call of that name only tells of its arguments, as far as names go."""
    return _TELLS.search(name) is not None


def parts_of(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body; a block that holds no training at all counts as one of them.

    Of a block that does, what decides whether and on what it runs comes first, as a statement of its own.
    """
    for one in body:
        if isinstance(one, _BLOCKS) and any(trains(part) for part in ast.walk(one) if isinstance(part, ast.stmt)):
            yield from _heads(one)
            for block in blocks(one):
                yield from parts_of(block)
        else:
            yield one


def condition(test: ast.expr) -> ast.stmt:
    """A statement that is needed, and reads what a condition reads."""
    return ast.copy_location(ast.Raise(exc=test, cause=None), test)


def _heads(block: ast.stmt) -> Iterator[ast.stmt]:
    if isinstance(block, (ast.If, ast.While)):
        yield condition(block.test)
    if isinstance(block, (ast.For, ast.AsyncFor)):
        yield ast.copy_location(ast.Assign([block.target], block.iter), block.target)
    for item in getattr(block, "items", []):
        if item.optional_vars is not None:
            yield ast.copy_location(ast.Assign([item.optional_vars], item.context_expr), item.context_expr)


def bound(block: ast.stmt, harmless: Iterable[str] = ()) -> set[str]:
    """Names that a block makes or may change, also inside of itself.

    Args:
        block: a statement.
        harmless: names of functions that are known to change nothing.
    """
    return {
        name
        for one in ast.walk(block)
        if isinstance(one, ast.stmt)
        for name in (*writes(one), *_handled(one, harmless))
    }


def _handled(statement: ast.stmt, harmless: Iterable[str]) -> set[str]:
    """The object of `memory.push(state)` and the arguments of `soft_update(target, net)`: what they change is not told.

    Of names that only tell (`log`, `plot`, `append`), and of functions known to be harmless, the object alone. A method
    changes its own object; of its arguments (`ema.update(model)`) at most those that are called themselves.
    """
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return set()
    found = {key(call.func.value)} if isinstance(call.func, ast.Attribute) else set()
    name = name_of(call)
    if not tells(name) and name not in harmless:
        given = (*call.args, *(one.value for one in call.keywords))
        names = {key(one) for one in given if isinstance(one, (ast.Name, ast.Attribute))}
        found |= {f"{one}()" for one in names} | (set() if _is_method(call) else names)
    return found - {"", "self"}


def _is_method(call: ast.Call) -> bool:
    """Of an object, not a function of a module."""
    return isinstance(call.func, ast.Attribute) and key(call.func.value) not in _SHELVES


def changes_unknown(statement: ast.stmt, harmless: Iterable[str]) -> bool:
    """Whether it is a bare call of which nobody knows what it changes: of a function, or of a part of `self`."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or tells(name_of(call)) or name_of(call) in harmless:
        return False
    held = key(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    keeps = held != "self" and name_of(call) == "update" and bool(call.args)  # `self.seen.update(words)`
    return not _is_method(call) or (held.startswith("self") and not keeps)


def trains(statement: ast.stmt) -> bool:
    """An update, or anything that changes tensors in place: gradients, weights; and what leaves the step."""
    return isinstance(statement, _LEAVES) or _changes(statement)


def _changes(statement: ast.stmt) -> bool:
    own = statement.value if isinstance(statement, ast.Expr) else None
    for one in ast.walk(statement):
        if isinstance(one, ast.Call):
            name = name_of(one)
            updates = name in _UPDATES or any(part in name for part in _UPDATING) or (name == "update" and not one.args)
            if updates or name.startswith(_CLIPS) or (name.endswith("_") and not name.endswith("__")):
                return True
            if any(word.arg == "out" for word in one.keywords):
                return True
            if one is own and (_of_self(one) or any(_is_weight(arg) for arg in one.args)):
                return True
        if isinstance(one, (ast.Attribute, ast.Subscript)) and isinstance(one.ctx, ast.Store):
            held = one.value if isinstance(one, ast.Subscript) else one
            if isinstance(held, ast.Attribute) and held.attr in ("grad", "data", "lr", "param_groups"):
                return True
        if isinstance(one, ast.AugAssign) and not isinstance(one.op, ast.Add):
            return True
    return False


def _of_self(call: ast.Call) -> bool:
    """`self.momentum_update()`, by itself: nobody knows what it changes, but that `self.log(...)` tells."""
    held = call.func.value if isinstance(call.func, ast.Attribute) else None
    return isinstance(held, ast.Name) and held.id == "self" and not tells(name_of(call))


def _is_weight(arg: ast.expr) -> bool:
    return isinstance(arg, ast.Attribute) and arg.attr in ("grad", "data", "weight", "bias")


def harmless_functions(trees: Sequence[ast.AST]) -> frozenset[str]:
    """Names of the functions that some texts define, none of whose definitions changes tensors in place or updates."""
    defined = [(name, one) for tree in trees for name, every in defined_in(tree).items() for one in every]
    inside = ((name, part) for name, one in defined for part in ast.walk(one) if isinstance(part, ast.stmt))
    changing = {name for name, part in inside if not isinstance(part, _LEAVES) and _changes(part)}
    return frozenset(name for name, _ in defined) - changing


def unneeded(parts: Sequence[ast.stmt], sinks: Sequence[ast.stmt], harmless: Iterable[str] = ()) -> list[ast.stmt]:
    """Those of a body's statements on which none of the sinks depends.

    Args:
        parts: the statements, as `parts_of` gives them.
        sinks: those of them that are needed for what they do.
        harmless: names of functions that are known to change nothing.
    """
    needed = {name for one in sinks for name in _asked(one) | bound(one, harmless)}
    rest = [one for one in parts if one not in sinks]
    made = makers_of(needed, rest, lambda one: bound(one, harmless), _asked)
    return [one for one in rest if one not in made]


def makers_of(
    needed: set[str],
    parts: Sequence[ast.stmt],
    made: Callable[[ast.stmt], set[str]] | None = None,
    asked: Callable[[ast.stmt], set[str]] | None = None,
) -> list[ast.stmt]:
    """Those of some statements that make what is needed, or what these need in turn; `needed` grows by that.

    Args:
        needed: names.
        parts: the statements.
        made: names that a statement makes; None = those that it writes.
        asked: names that it takes for that; None = those that it reads.
    """
    found: list[ast.stmt] = []
    while more := [one for one in parts if one not in found and (made or writes)(one) & needed]:
        found += more
        needed |= {name for one in more for name in (asked or reads)(one)}
    return found


def _asked(statement: ast.stmt) -> set[str]:
    """Names that a statement reads, and those of what it calls: a module may be changed by its methods."""
    calls = {one.func.id for one in ast.walk(statement) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)}
    return reads(statement) | calls | {f"{one}()" for one in calls}


def rows_of(statements: Sequence[ast.stmt]) -> set[int]:
    """The lines on which statements stand."""
    return {row for one in statements for row in lines_of(one)}


def is_lazy(place: ast.AST) -> bool:
    """A class, or a function that yields: its work is done when it is pulled from."""
    return isinstance(place, ast.ClassDef) or any(
        isinstance(one, (ast.Yield, ast.YieldFrom)) for one in ast.walk(place)
    )


def is_known(call: ast.Call) -> bool:
    """A call of Python's own or one that every training loop makes: no code of the user's runs in it."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in _KNOWN or key(call.func) in MODULES
    return isinstance(call.func, ast.Name) and hasattr(builtins, call.func.id)


def paths_of_loops(tree: ast.AST, above: tuple[Loop, ...] = ()) -> Iterator[tuple[Loop, ...]]:
    """Every loop with the loops around it, outermost first; a function's body begins anew."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, (*FUNCTIONS, ast.Lambda)):
            yield from paths_of_loops(child)
        elif isinstance(child, LOOPS):
            yield (*above, child)
            yield from paths_of_loops(child, (*above, child))
        else:
            yield from paths_of_loops(child, above)


def reads(statement: ast.AST) -> set[str]:
    """Values that a statement reads; the names of functions that it calls are none."""
    functions = {id(one.func) for one in ast.walk(statement) if isinstance(one, ast.Call)}
    return {
        key(one)
        for one in ast.walk(statement)
        if isinstance(one, (ast.Name, ast.Attribute)) and not (isinstance(one, ast.Name) and id(one) in functions)
        if not isinstance(one.ctx, ast.Store)
    } - {"", "self"}


def stored(target: ast.expr) -> set[str]:
    """The names under which a target keeps what it is given."""
    return {key(part) for part in parts_of_target(target)} - {""}


def writes(statement: ast.AST) -> set[str]:
    """Values that a statement makes or changes."""
    if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        return {name for target in targets_of(statement) for name in stored(target)}
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        if isinstance(function, ast.Attribute) and function.attr in _MUTATORS:
            return {key(function.value)} - {""}
    return set()


def names(nodes: Iterable[ast.AST]) -> set[str]:
    """All names in some nodes, those of functions and methods too."""
    found = {key(one) for node in nodes for one in ast.walk(node) if isinstance(one, (ast.Name, ast.Attribute))}
    return (found | called(nodes)) - {""}


def mentioned(nodes: Iterable[ast.AST]) -> set[str]:
    """Names and methods that may be functions of the cell, called or handed on (`map(f, ...)`)."""
    return {name_of(one) for node in nodes for one in ast.walk(node) if isinstance(one, (ast.Name, ast.Attribute))}


def called(nodes: Iterable[ast.AST]) -> set[str]:
    """Last names of what is called in some nodes."""
    return {name_of(one) for node in nodes for one in ast.walk(node) if isinstance(one, ast.Call)} - {""}


def defined_in(tree: ast.AST, kinds: tuple[type[ast.AST], ...] = FUNCTIONS) -> dict[str, list[ast.AST]]:
    """The functions that a text defines, by name; or what of another kind it does."""
    found: dict[str, list[ast.AST]] = {}
    for one in ast.walk(tree):
        if isinstance(one, kinds):
            found.setdefault(one.name, []).append(one)  # type: ignore[attr-defined]
    return found


def definitions(
    nodes: Iterable[ast.AST], defined: Mapping[str, Sequence[ast.AST]], others: Iterable[str] = ()
) -> list[ast.AST]:
    """The functions and classes that some nodes call or hand on, and those that these do.

    Args:
        nodes: of a text.
        defined: its functions and classes.
        others: names that are left out.
    """
    found: list[ast.AST] = []
    waiting, seen = list(mentioned(nodes)), set(others)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            for place in defined.get(name, ()):
                found.append(place)
                waiting += mentioned((place,))
    return found
