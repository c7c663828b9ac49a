"""Calls that are made for one thing after the other though none needs what another gave, read off the text.

`for env in envs: action = act(env.state)` can be one call for all; `for t in range(n): h = cell(x[t], h)` cannot, as
each call needs the one before. What the text does not tell is taken for needed: functions from elsewhere, models that
keep a state, what a call may change. Gradients that are asked for one sample at a time are such calls, too, where the
text tells that one call on the sum gives the same.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from gpu_doctor.cell.statements import (
    MODULES,
    defined_in,
    definitions,
    differentiates,
    is_known,
    reads,
    stored,
    writes,
)
from gpu_doctor.cell.syntax import (
    COMPREHENSIONS,
    DEFINITIONS,
    LOOPS,
    is_read,
    key,
    lines_of,
    name_of,
    parsed,
    parts_of_target,
    targets_of,
)

_CALLS: Final = 512
"""Calls of a loop that are asked about, at most."""
_KEPT: Final = re.compile(r"cache|past|hidden|memory|history|^h$|^hx$|^kv")
"""Names of what a call may read and change: a cache, a hidden state."""
_COLLECTS: Final = {"append", "extend", "add", "insert", "update"}
"""Methods that put what a call gave aside."""
_FORWARDS: Final = {"forward", "__call__"}
_TO_GRADIENTS: Final = re.compile(r"^zero_grad|^clip_grad")
"""Names of calls that need or change the gradients that are there."""
_OVER_A_DIMENSION: Final = {"mean", "sum", "norm", "amax", "amin", "logsumexp"}
"""Methods that, told along which dimension, leave a number for each sample."""
Items: TypeAlias = "ast.For | ast.AsyncFor | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp"
Places: TypeAlias = "ast.stmt | ast.expr"


@lru_cache(maxsize=32)
def one_by_one_rows(text: str) -> dict[int, int]:
    """Rows of such calls: each row of the statement with the first row of it.

    Args:
        text: all of a file. A loop in which gradients are computed, here or in what it calls, trains: its calls are
            none.
    """
    tree = parsed(text)
    if tree is None:
        return {}
    told = _Told(tree)
    found: dict[int, int] = {}
    for one in ast.walk(tree) if not told.keeps_a_state else ():
        if isinstance(one, (ast.For, ast.AsyncFor, *COMPREHENSIONS)) and not differentiates(one):
            loop = _Loop(one, told)
            for place in loop.places():
                calls = [call for call in _calls(place) if name_of(call) not in _COLLECTS]
                if not any(map(loop.refused, calls)) and any(loop.independent(call, place) for call in calls):
                    found |= dict.fromkeys(lines_of(place), place.lineno)
    return found


@lru_cache(maxsize=32)
def gradient_rows(text: str) -> dict[int, int]:
    """Rows of calls that ask for the gradients of one sample after the other, where one call on the sum gives the same.

    `grad(scores[i], x)`, of which only the sample's own place `[i]` is read; `losses[i].backward(retain_graph=True)`,
    where the losses are one for each sample and nothing looks at the gradients before the last. Rows of a Jacobian,
    and losses of several heads, are none.

    Args:
        text: all of a file.

    Returns:
        Each row of the statement with the first row of it.
    """
    tree = parsed(text)
    if tree is None or not ("grad(" in text or "retain_graph" in text):
        return {}
    told = _Told(tree)
    found: dict[int, int] = {}
    for one in ast.walk(tree):
        if isinstance(one, (ast.For, ast.AsyncFor, *COMPREHENSIONS)) and not _steps(one):
            loop = _Asking(one, told)
            for place in loop.places():
                if any(loop.own_gradient(call, place) or loop.added_up(call, tree) for call in _calls(place)):
                    found |= dict.fromkeys(lines_of(place), place.lineno)
    return found


@lru_cache(maxsize=32)
def barred_rows(text: str) -> frozenset[int]:
    """Rows of loops, but those of a model's forward, and of functions that train.

    Who came through one of them was called as often as that says, and may have needed what came before.

    Args:
        text: all of a file.
    """
    tree = parsed(text)
    if tree is None:
        return frozenset()
    told = _Told(tree)
    forwards = {row for name in _FORWARDS for one in told.defined.get(name, ()) for row in lines_of(one)}
    loops = [one for one in ast.walk(tree) if isinstance(one, (*LOOPS, *COMPREHENSIONS))]
    looped = {row for one in loops for row in lines_of(one)} - forwards
    trains = [one for name, found in told.defined.items() for one in found if told.trains(name)]
    return frozenset(looped.union(*(lines_of(one) for one in trains)))


class _Told:
    """What a text defines, and what it has from elsewhere."""

    def __init__(self, tree: ast.Module) -> None:
        self.defined = defined_in(tree)
        aliases = [name for one in ast.walk(tree) if isinstance(one, ast.ImportFrom) for name in one.names]
        self.imported = {name.asname or name.name for name in aliases}
        self.keeps_a_state = any(_keeps(one) for name in _FORWARDS for one in self.defined.get(name, ()))
        self._trains: dict[str, bool] = {}

    def trains(self, name: str) -> bool:
        """Whether a function of the text computes gradients, or steps something, itself or in what it calls."""
        if name not in self._trains:
            within = [*self.defined.get(name, ()), *definitions(self.defined.get(name, ()), self.defined)]
            self._trains[name] = any(differentiates(one) or _steps(one) for one in within)
        return self._trains[name]


class _Loop:
    """A loop over things, and what its body leaves behind."""

    def __init__(self, node: Items, told: _Told) -> None:
        self._node, self._told = node, told
        heads = [one.target for one in node.generators] if isinstance(node, COMPREHENSIONS) else [node.target]
        self._own = {name for head in heads for name in stored(head)}
        body: Sequence[ast.stmt] = [] if isinstance(node, COMPREHENSIONS) else node.body
        inside = [one for top in body for one in ast.walk(top) if isinstance(one, ast.stmt)]
        always = {id(one) for one in _straight(body)}
        elsewhere = _read_elsewhere(inside)
        self._before = [
            (one.lineno, id(one) in always, _left(one, self._own, elsewhere), {n for r in _read(one) for n in reads(r)})
            for one in sorted(inside, key=lambda node: -node.lineno)
        ]
        self._left = {name for _, _, left, _ in self._before for name in left} | _moved(inside)
        self._left -= self._own
        self._asked = 0

    def places(self) -> Iterator[Places]:
        """Simple statements of it, without those of loops in it: they are asked there."""
        if isinstance(self._node, COMPREHENSIONS):
            yield from (self._node.key, self._node.value) if isinstance(self._node, ast.DictComp) else (self._node.elt,)
            return
        yield from _simple(self._node.body)

    def refused(self, call: ast.Call) -> bool:
        """Whether a call may leave more behind than what it returns, or is of a function from elsewhere."""
        given = [*call.args, *(one.value for one in call.keywords)]
        kept = any(_KEPT.search(one.rpartition(".")[2]) for arg in given for one in reads(arg))
        name = name_of(call)
        return kept or self._told.trains(name) or (isinstance(call.func, ast.Name) and name in self._told.imported)

    def independent(self, call: ast.Call, place: Places) -> bool:
        """Whether a call takes something of the loop's own thing, and nothing that an earlier turn may have left."""
        self._asked += 1
        given = [*call.args, *(one.value for one in call.keywords)]
        needed = {name for one in given for name in reads(one)}
        if self._asked > _CALLS or {key(one) for one in ast.walk(call.func) if isinstance(one, ast.Name)} & self._own:
            return False  # of each thing a model of its own
        for line, always, left, read in self._before:
            if line < place.lineno and left & needed:
                needed = (needed - left if always else needed) | read
        return bool(needed & self._own) and not needed & self._left


class _Asking(_Loop):
    """A loop that may ask for the gradients of one sample in each turn."""

    def __init__(self, node: Items, told: _Told) -> None:
        super().__init__(node, told)
        self._left = {name for _, _, left, _ in self._before for name in left} - self._own
        """A method of the outputs (`scores[i].sum()`) changes none of them."""

    def own_gradient(self, call: ast.Call, place: Places) -> bool:
        """Whether it is `grad(scores[i], x)`, and of what it gives, only the sample's own place is read."""
        given = {word.arg: word.value for word in call.keywords}
        output = call.args[0] if call.args else given.get("outputs")
        if name_of(call) != "grad" or output is None or len(call.args) + len(call.keywords) < 2:
            return False
        output = self._part(output)
        at = {self._index(output)} if isinstance(output, ast.Subscript) else self._own
        if self._of_one(output) is None or not self.independent(call, place):
            return False
        return self._reads_own(call, place, [one for one in self._subscripts() if self._index(one) in at])

    def added_up(self, call: ast.Call, tree: ast.Module) -> bool:
        """Whether it is `losses[i].backward(retain_graph=True)`, and nothing looks at the gradients in between."""
        kept = [one.value for one in call.keywords if one.arg == "retain_graph"]
        if name_of(call) != "backward" or not kept or not isinstance(call.func, ast.Attribute):
            return False
        if isinstance(kept[0], ast.Constant) and not kept[0].value:
            return False
        every = list(ast.walk(self._node))
        calls = [one for one in every if isinstance(one, ast.Call)]
        looks = any(isinstance(one, ast.Attribute) and one.attr == "grad" for one in every)
        if looks or not all(is_known(one) and not _TO_GRADIENTS.search(name_of(one)) for one in calls):
            return False
        whole = self._of_one(self._part(call.func.value))
        return whole is not None and whole not in self._left and _one_for_each(whole, tree)

    def _of_one(self, output: ast.expr) -> str | None:
        """What an output is one sample's part of, by its name: `scores` of `scores[i]`.

        "" where that has no name, None where it is no such part.
        """
        if isinstance(output, ast.Subscript):
            first = self._index(output) in self._own and not reads(output.value) & self._own
            return key(output.value) if first else None
        return self._iterated(output.id) if isinstance(output, ast.Name) and output.id in self._own else None

    def _part(self, output: ast.expr) -> ast.expr:
        """`scores[i]` of `scores[i].sum()`, of `scores[i] / n`, and of `s` if the turn begins with `s = scores[i]`."""
        output = self._bare(output)
        if not isinstance(output, ast.Name) or output.id in self._own:
            return output
        assigned = [one for one in ast.walk(self._node) if isinstance(one, ast.Assign)]
        made = [one.value for one in assigned if [key(part) for part in one.targets] == [output.id]]
        return self._bare(made[0]) if len(made) == 1 else output

    def _bare(self, output: ast.expr) -> ast.expr:
        """Without `.sum()`, and what it is divided by or multiplied with."""
        while True:
            if isinstance(output, ast.Call) and isinstance(output.func, ast.Attribute) and not output.args:
                output = output.func.value
            elif isinstance(output, ast.BinOp) and isinstance(output.op, (ast.Div, ast.Mult)):
                if reads(output.right) & self._own:
                    return output
                output = output.left
            else:
                return output

    def _iterated(self, name: str) -> str:
        """What the loop takes its own thing from: `losses` for `loss in losses`, `i, loss in enumerate(losses)`."""
        heads = self._node.generators if isinstance(self._node, COMPREHENSIONS) else [self._node]
        for head in heads:
            call = head.iter if isinstance(head.iter, ast.Call) else None
            given = [head.iter] if call is None else call.args if name_of(call) in ("zip", "enumerate") else []
            targets = parts_of_target(head.target)
            at = next((place for place, one in enumerate(targets) if key(one) == name), -1)
            at -= call is not None and name_of(call) == "enumerate"
            if 0 <= at < len(given):
                return key(given[at]) if isinstance(given[at], (ast.Name, ast.Attribute)) else ""
        return ""

    def _subscripts(self) -> list[ast.Subscript]:
        return [one for one in ast.walk(self._node) if isinstance(one, ast.Subscript)]

    def _index(self, one: ast.Subscript) -> str:
        """The name at which the first dimension is read; "" where it is none."""
        place = one.slice.elts[0] if isinstance(one.slice, ast.Tuple) and one.slice.elts else one.slice
        return place.id if isinstance(place, ast.Name) else ""

    def _reads_own(self, call: ast.Call, place: Places, own: Sequence[ast.Subscript]) -> bool:
        """Whether of the gradients that a call gives only the sample's own place is read, as `own` does."""
        read = [one.value for one in own]
        first = [one for one in self._subscripts() if isinstance(one.slice, ast.Constant)]
        opened = next((one for one in first if one.value is call), None)
        if opened is not None and opened in read:
            return True
        if not isinstance(place, ast.Assign) or len(place.targets) != 1 or place.value not in (call, opened):
            return False
        target, whole = place.targets[0], place.value is call
        if isinstance(target, (ast.Tuple, ast.List)) and len(target.elts) == 1 and whole:
            target, whole = target.elts[0], False
        names = [one for one in ast.walk(self._node) if isinstance(one, ast.Name) and is_read(one)]
        loaded = [one for one in names if isinstance(target, ast.Name) and one.id == target.id]
        if whole:  # a tuple: its first is read
            read = [one.value for one in first if one in read]
        return bool(loaded) and all(one in read for one in loaded)


def _one_for_each(name: str, tree: ast.Module) -> bool:
    """Whether a text tells that a name holds a number for each sample: `reduction="none"`, `.mean(dim=1)`."""
    made = [one for one in ast.walk(tree) if isinstance(one, ast.Assign)]
    unreduced = {name_of(part) or key(part) for one in made if _unreduced(one.value) for part in one.targets}
    values = [one.value for one in made if name and name in {key(part) for part in one.targets}]
    return bool(values) and all(
        _unreduced(one) or (isinstance(one, ast.Call) and (_over_a_dimension(one) or name_of(one) in unreduced))
        for one in values
    )


def _unreduced(value: ast.expr) -> bool:
    words = value.keywords if isinstance(value, ast.Call) else []
    return any(w.arg == "reduction" and isinstance(w.value, ast.Constant) and w.value.value == "none" for w in words)


def _over_a_dimension(call: ast.Call) -> bool:
    return (
        name_of(call) in _OVER_A_DIMENSION and isinstance(call.func, ast.Attribute) and bool(call.args or call.keywords)
    )


def _simple(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for one in body:
        if isinstance(one, (ast.If, ast.With, ast.AsyncWith, ast.Try)):
            yield from _simple([*one.body, *getattr(one, "orelse", ()), *getattr(one, "finalbody", ())])
        elif not isinstance(one, (*LOOPS, *DEFINITIONS)):
            yield one


def _straight(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that every turn comes through."""
    for one in body:
        if isinstance(one, (ast.With, ast.AsyncWith)):
            yield from _straight(one.body)
        yield one


def _calls(place: ast.AST) -> Iterator[ast.Call]:
    """Calls with arguments, without those of comprehensions in it."""
    waiting = [place]
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.Call) and (one.args or one.keywords):
            yield one
        waiting += [child for child in ast.iter_child_nodes(one) if not isinstance(child, COMPREHENSIONS)]


def _read(one: ast.stmt) -> Iterable[ast.AST]:
    """What a statement reads to make what it leaves."""
    if isinstance(one, (ast.Assign, ast.AnnAssign)):
        return [] if one.value is None else [one.value]
    return [one.iter] if isinstance(one, (ast.For, ast.AsyncFor)) else [one]


def _left(one: ast.stmt, own: set[str], elsewhere: Mapping[str, set[str]]) -> set[str]:
    """Names that hold something else after a statement.

    Not those in which it fills the place of the loop's own thing, `actions[i] = ...`, if no other place of them is
    read.
    """
    if isinstance(one, (ast.For, ast.AsyncFor, ast.With, ast.AsyncWith)):
        return {name for target in targets_of(one) for name in stored(target)}
    targets = one.targets if isinstance(one, ast.Assign) else []
    flat = [part for target in targets for part in parts_of_target(target)]
    filled = {
        key(part)
        for part in flat
        if isinstance(part, ast.Subscript)
        and _own_place(part.slice, own)
        and elsewhere.get(key(part), set()) <= {ast.dump(part.slice)}
    }
    return writes(one) - (filled - {key(part) for part in flat if not isinstance(part, ast.Subscript)})


def _read_elsewhere(inside: Sequence[ast.stmt]) -> dict[str, set[str]]:
    """By name, which places of it are read; "" = all of it."""
    nodes = [node for one in inside for node in ast.walk(one)]
    at = {id(one.value): one for one in nodes if isinstance(one, ast.Subscript)}
    found: dict[str, set[str]] = {}
    for one in nodes:
        if isinstance(one, ast.Name):
            place = at.get(id(one))
            if place is None or isinstance(place.ctx, ast.Load):
                found.setdefault(one.id, set()).add("" if place is None else ast.dump(place.slice))
    return found


def _own_place(place: ast.expr, own: set[str]) -> bool:
    parts = place.elts if isinstance(place, ast.Tuple) else [place]
    return any(isinstance(one, ast.Name) and one.id in own for one in parts)


def _moved(inside: Sequence[ast.stmt]) -> set[str]:
    """Names of objects whose methods are called, `env.step(action)`, and of what an inner loop takes them from."""
    calls = [one.func for top in inside for one in ast.walk(top) if isinstance(one, ast.Call)]
    moved = {key(one.value) for one in calls if isinstance(one, ast.Attribute)} - {"", *MODULES}
    loops = [one for one in inside if isinstance(one, (ast.For, ast.AsyncFor)) and stored(one.target) & moved]
    return moved | {name for one in loops for name in reads(one.iter)}


def _keeps(function: ast.AST) -> bool:
    """Whether a forward writes to its own object."""
    return any(
        one.startswith("self.") for node in ast.walk(function) if isinstance(node, ast.stmt) for one in writes(node)
    )


def _steps(function: ast.AST) -> bool:
    return any(isinstance(one, ast.Call) and name_of(one) == "step" for one in ast.walk(function))
