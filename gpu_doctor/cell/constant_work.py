"""Lines that make the same in every step, read off the text: anchors, grids, tables, masks of a fixed size.

Followed is what a statement reads: what is written there, plain values that the model or its module's globals hold and
no text changes, and names that are made of such alone. What comes from a function's arguments (their `device` and
`dtype` excepted), from weights or from chance, and what the text does not explain, is taken for new. A function that
forwards call is followed into, and what it is called with too; one that does anything but compute what it returns gives
something new. What is made only once (`if self.grid is None`) stands under a condition that is new, and is left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from gpu_doctor.cell.syntax import (
    COMPREHENSIONS,
    DEFINITIONS,
    FUNCTIONS,
    LOOPS,
    Function,
    blocks,
    dotted,
    is_read,
    key,
    lines_of,
    name_of,
    of_itself,
    parsed,
    targets_of,
)

_ONCE: Final = {"__init__", "__new__", "__post_init__"}
"""They run when an object is made: not in a step."""
_MODULES: Final = {
    *("torch", "torch.nn.functional", "nn.functional", "F", "torch.linalg", "torch.fft", "torch.special"),
    *("np", "numpy", "np.linalg", "numpy.linalg", "math", "itertools", "operator"),
}
"""Modules whose functions compute what they return from their arguments,"""
_ELSEWHERE: Final = re.compile(
    r"(^|_)(rand\w*|normal|uniform|bernoulli|binomial|multinomial|poisson|cauchy|exponential|geometric|dropout\w*"
    r"|seed|empty|load\w*|save\w*|open|from_?file|genfromtxt|memmap|set|get|is|compile|backward|requires|register)(_|$)"
)
"""but for those of such names: they draw numbers, read files or ask for a state."""
_ROOTS: Final = {one.partition(".")[0] for one in _MODULES}
_NAMES: Final = (
    "abs all any bool complex dict divmod enumerate float frozenset int isinstance len list max min pow range reversed "
    "round set slice sorted str sum tuple zip"
)
_BUILTINS: Final = frozenset(_NAMES.split())
"""Python's own of that kind."""
_ASKED: Final = {"index", "get", "items", "keys", "values", "split", "join", "format", "copy"}
"""Methods of plain values that change nothing."""
_CHANGING: Final = {
    *("append", "extend", "add", "insert", "update", "pop", "popleft", "popitem", "remove", "discard", "clear", "sort"),
    *("reverse", "setdefault", "appendleft", "extendleft", "rotate"),
}
_KINDS: Final = {"device", "dtype"}
"""What an argument has that is the same in every step."""
_EXPLAINED: Final = (
    *(ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Subscript, ast.Slice, ast.Starred),
    *(ast.Tuple, ast.List, ast.Set, ast.Dict, ast.JoinedStr, ast.FormattedValue),
)
_LEAVES: Final = (ast.Break, ast.Continue, ast.Return, ast.Raise)
_BLOCKS: Final = (ast.If, ast.For, ast.While, ast.With)
_ASSIGNS: Final = (ast.Assign, ast.AnnAssign, ast.AugAssign)


@lru_cache(maxsize=16)
def constant_rows(texts: tuple[str, ...], plain: frozenset[str]) -> tuple[frozenset[int], ...]:
    """Of each text, the lines of forwards, and of functions that these call, that make the same in every step.

    Args:
        texts: of all files that are known: what changes a value may stand in any of them.
        plain: names of plain values, as code reads them: `SIZE` for a global, `self.size` for what an object holds.
    """
    trees = [parsed(one) for one in texts]
    if not any("def forward" in one for one in texts):
        return tuple(frozenset() for _ in texts)
    known = _Known([one for one in trees if one is not None], plain)
    known.follow()
    return tuple(frozenset[int]() if one is None else known.rows(one) for one in trees)


class _Known:
    """What the texts tell together: their functions, and what nobody changes."""

    def __init__(self, trees: Sequence[ast.Module], plain: frozenset[str]) -> None:
        self.functions: dict[str, list[Function]] = {}
        self.handed_on: set[str] = set()
        """Functions that are mentioned without a call."""
        self.changed: set[str] = set()
        for tree in trees:
            for function in _outermost(tree):
                self.functions.setdefault(function.name, []).append(function)
            called = {id(one.func) for one in ast.walk(tree) if isinstance(one, ast.Call)}
            self.handed_on |= {name_of(one) for one in ast.walk(tree) if is_read(one) and id(one) not in called}
            self.changed |= set(_changed(tree))
        self.plain = plain - self.changed
        self.reached, self.given = {"forward"}, set[str]()
        """Functions that run whenever a forward does, and those of them that are only called with what is the same."""
        self._scopes: dict[tuple[int, bool], _Scope] = {}
        self._closed: dict[str, bool] = {}

    def follow(self) -> None:
        """Finds the functions that forwards call, then those that these call."""
        every = [one for same_name in self.functions.values() for one in same_name if one.name not in _ONCE]
        before = None
        while before != (before := (len(self.reached), len(self.given))):
            always: dict[str, bool] = {}
            same: dict[str, bool] = {}
            for function in every:
                for call in self._scope(function).calls():
                    runs = call.always and function.name in self.reached
                    always[call.name] = always.get(call.name, call.name not in self.handed_on) and runs
                    same[call.name] = same.get(call.name, True) and call.same
            self.reached |= {name for name in always if always[name]}
            self.given |= {name for name in always if always[name] and same[name]} - {"forward"}  # torch calls it, too

    def rows(self, tree: ast.Module) -> frozenset[int]:
        """The lines of a text that make the same in every forward."""
        reached = (one for one in _outermost(tree) if one.name in self.reached)
        return frozenset(row for one in reached for row in self._scope(one).rows())

    def _scope(self, function: Function, given: bool | None = None) -> _Scope:
        given = function.name in self.given if given is None else given
        if (id(function), given) not in self._scopes:
            self._scopes[id(function), given] = _Scope(function, self, given)
        return self._scopes[id(function), given]

    def closed(self, name: str) -> bool:
        """Whether all functions of a name only compute what they return, the same of the same."""
        if name not in self._closed:
            self._closed[name] = False  # for one that calls itself
            self._closed[name] = all(self._scope(one, True).closed() for one in self.functions[name])
        return self._closed[name]


class _Call(NamedTuple):
    """One function of the texts calls another one: whenever it runs, and with what is the same?"""

    name: str
    always: bool
    same: bool


class _Scope:
    """A function's body: which of its names hold the same whenever it runs."""

    def __init__(self, function: Function, known: _Known, given: bool) -> None:
        """Args: given: its arguments are the same, too."""
        self._body, self._known = function.body, known
        self._calls: list[_Call] | None = None
        every = list(ast.walk(function))
        arguments = {one.arg for one in every if isinstance(one, ast.arg)}
        inner = {name for one in every if isinstance(one, ast.comprehension) for name in _named(one.target)}
        bound = {one.id for one in every if isinstance(one, ast.Name) and not is_read(one)}
        outer = {name for one in every if isinstance(one, (ast.Global, ast.Nonlocal)) for name in one.names}
        self._own = bound - arguments - inner - outer
        """Names that it binds itself: to change what they hold changes nothing outside of it."""
        self._names = (known.plain - bound - arguments) | self._own
        if given:
            self._names |= arguments - bound - {"self", "cls"}
        while lost := self._lost() & self._names - known.plain:  # what changes one of those, is known
            self._names -= lost

    def calls(self) -> list[_Call]:
        """Of functions of the texts."""
        if self._calls is None:
            self._calls = list(self._called())
        return self._calls

    def _called(self) -> Iterator[_Call]:
        for statement, new in self._statements(self._body):
            whole = self._is_same(statement)
            for one in of_itself(statement):
                if isinstance(one, ast.Call) and name_of(one) in self._known.functions:
                    yield _Call(name_of(one), not new, whole or self._same(one))

    def rows(self) -> Iterator[int]:
        """Lines of the statements that make the same."""
        for statement, new in self._statements(self._body):
            if not new and self._is_same(statement) and not _is_text(statement):
                for one in _heads(statement) if isinstance(statement, _BLOCKS) else [statement]:
                    yield from lines_of(one)

    def closed(self) -> bool:
        """Whether it does nothing but compute what it returns."""
        return all(not new and self._is_same(one) for one, new in self._statements(self._body))

    def _statements(self, body: Sequence[ast.stmt], new: bool = False) -> Iterator[tuple[ast.stmt, bool]]:
        """All statements, a block before what is in it, and whether it is new which of them run, and how often."""
        for one in body:
            yield one, new
            if not isinstance(one, DEFINITIONS):
                within = new or self._decides_anew(one)
                for block in blocks(one):
                    yield from self._statements(block, within)

    def _decides_anew(self, block: ast.stmt) -> bool:
        if not isinstance(block, _BLOCKS):
            return True  # `try`, `match`, `async for`
        leaves = [
            one.test
            for one in (ast.walk(block) if isinstance(block, LOOPS) else ())
            if isinstance(one, (ast.If, ast.While)) and any(isinstance(each, _LEAVES) for each in ast.walk(one))
        ]
        return not all(self._same(one) for one in (*_heads(block), *leaves))

    def _is_same(self, statement: ast.stmt) -> bool:
        """Whether a statement, or a block's head, reads nothing new and changes only the function's own names."""
        if isinstance(statement, (ast.Pass, ast.Break, ast.Continue)):
            return True
        if isinstance(statement, _BLOCKS):
            return all(self._same(one) for one in _heads(statement)) and all(
                self._takes(one) for one in targets_of(statement)
            )
        if isinstance(statement, _ASSIGNS):
            value = statement.value is None or self._same(statement.value)
            return value and all(self._takes(one) for one in targets_of(statement))
        if isinstance(statement, ast.Expr):
            call = statement.value
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                held = call.func.value
                return isinstance(held, ast.Name) and held.id in self._own and self._same(call)
            return _is_text(statement)
        return isinstance(statement, ast.Return) and statement.value is not None and self._same(statement.value)

    def _takes(self, target: ast.expr) -> bool:
        """Whether what is bound, or changed, is one of its own names."""
        if isinstance(target, (ast.Tuple, ast.List)):
            return all(self._takes(one) for one in target.elts)
        if isinstance(target, ast.Subscript):
            return self._same(target.slice) and self._takes(target.value)
        return isinstance(target, ast.Name) and target.id in self._own & self._names

    def _lost(self) -> set[str]:
        """Names that one of the statements may make new."""
        return {
            name for one, new in self._statements(self._body) if new or not self._is_same(one) for name in _touched(one)
        }

    def _same(self, value: ast.expr, more: frozenset[str] = frozenset()) -> bool:
        """Whether an expression gives the same whenever the function runs, as `more` names do."""
        if isinstance(value, ast.Name):
            return value.id in self._names or value.id in more
        if isinstance(value, ast.Attribute):
            return self._same_attribute(value, more)
        if isinstance(value, ast.Call):
            return self._same_call(value, more)
        if isinstance(value, COMPREHENSIONS):
            return self._same_comprehension(value, more)
        parts = (one for one in ast.iter_child_nodes(value) if isinstance(one, ast.expr))
        return isinstance(value, _EXPLAINED) and all(self._same(one, more) for one in parts)

    def _same_attribute(self, value: ast.Attribute, more: frozenset[str]) -> bool:
        if value.attr in _KINDS or ".".join(dotted(value.value)) in _MODULES:
            return True
        held = f"self.{value.attr}"
        if isinstance(value.value, ast.Name) and value.value.id == "self":
            return held in self._known.plain
        return held not in self._known.changed and self._same(value.value, more)

    def _same_call(self, call: ast.Call, more: frozenset[str]) -> bool:
        function, name = call.func, name_of(call)
        if not all(self._same(one, more) for one in (*call.args, *(word.value for word in call.keywords))):
            return False
        if isinstance(function, ast.Name) or dotted(function) == ["self", name]:
            if name in self._known.functions:
                return self._known.closed(name)
            return isinstance(function, ast.Name) and name in _BUILTINS
        if not isinstance(function, ast.Attribute):
            return False
        if key(function.value) in self._known.plain:
            return name in _ASKED
        of = dotted(function.value)
        if of and of[0] in _ROOTS and ".".join(of) not in _MODULES:
            return False
        return not _ELSEWHERE.search(name) and (bool(of and of[0] in _ROOTS) or self._same(function.value, more))

    def _same_comprehension(self, value: ast.expr, more: frozenset[str]) -> bool:
        for one in getattr(value, "generators", ()):
            if not self._same(one.iter, more):
                return False
            more |= set(_named(one.target))
            if not all(self._same(each, more) for each in one.ifs):
                return False
        parts = [getattr(value, name, None) for name in ("elt", "key", "value")]
        return all(self._same(one, more) for one in parts if one is not None)


def _outermost(tree: ast.AST) -> Iterator[Function]:
    """Functions and methods of a text but those inside of others, which read names of theirs."""
    for one in ast.iter_child_nodes(tree):
        if isinstance(one, FUNCTIONS):
            yield one
        elif not isinstance(one, ast.expr):
            yield from _outermost(one)


def _heads(block: ast.stmt) -> list[ast.expr]:
    """What decides whether, how often and under what a block runs."""
    if isinstance(block, ast.For):
        return [block.iter]
    if isinstance(block, (ast.If, ast.While)):
        return [block.test]
    return [one.context_expr for one in getattr(block, "items", ())]


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _touched(statement: ast.stmt) -> Iterator[str]:
    """Names that it binds, and of what it may change in place."""
    if isinstance(statement, DEFINITIONS):
        yield statement.name
    alone = statement.value if isinstance(statement, ast.Expr) else None
    for one in of_itself(statement):
        if isinstance(one, (ast.Name, ast.Attribute, ast.Subscript)) and not is_read(one):
            yield key(one)
        elif isinstance(one, ast.Call):
            if isinstance(one.func, ast.Attribute) and (one is alone or _changes(one.func.attr)):
                yield key(one.func.value)
            given = [word.value for word in one.keywords if word.arg == "out"] + (one.args if one is alone else [])
            yield from (key(each) for each in given)


def _changed(tree: ast.Module) -> Iterator[str]:
    """Names of what a text changes after it was made: attributes as `self.name`, whoever holds them."""
    once = {id(one) for function in _outermost(tree) if function.name in _ONCE for one in ast.walk(function)}
    inside = {id(one) for function in _outermost(tree) for one in ast.walk(function)}
    for one in ast.walk(tree):
        if isinstance(one, ast.Attribute) and not is_read(one) and id(one) not in once:
            yield f"self.{one.attr}"
        elif isinstance(one, ast.Subscript) and not is_read(one) and id(one) not in once:
            yield _held(one)
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and _changes(one.func.attr):
            if id(one) not in once:
                yield _held(one.func.value)
        elif isinstance(one, ast.Call) and name_of(one) == "setattr" and id(one) not in once:
            names = [each.value for each in one.args[1:2] if isinstance(each, ast.Constant)]
            yield from (f"self.{name}" for name in names if isinstance(name, str))
        elif isinstance(one, (ast.Global, ast.Nonlocal)):
            yield from one.names
        elif isinstance(one, ast.AugAssign):
            yield _held(one.target)
        elif isinstance(one, LOOPS) and id(one) not in inside:
            yield from (each.id for each in ast.walk(one) if isinstance(each, ast.Name) and not is_read(each))


def _held(value: ast.expr) -> str:
    """The name under which the changed object is kept."""
    while isinstance(value, ast.Subscript):
        value = value.value
    return f"self.{value.attr}" if isinstance(value, ast.Attribute) else getattr(value, "id", "")


def _changes(method: str) -> bool:
    return method in _CHANGING or (method.endswith("_") and not method.endswith("__"))


def _named(target: ast.expr) -> Iterator[str]:
    return (one.id for one in ast.walk(target) if isinstance(one, ast.Name))
