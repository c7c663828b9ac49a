"""Which expressions make an iterator out of what they name and do nothing else, and whether one made a given iterator.

Names are looked up, never called: `iter(loader)`, `cycle(DataLoader(data, 4))`, `islice(numbers, 10)`, a generator
expression, a generator function of the user's own, whose body runs only when it is drawn from. What draws from another
iterator is none of them: making it anew would go on with the one that is there.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import itertools
import types
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

_ITERATORS: Final = frozenset(
    (enumerate, zip, map, filter, reversed, *(one for one in vars(itertools).values() if isinstance(one, type)))
)
_PLAIN: Final = frozenset((iter, range, len, list, tuple, int, slice))
_UNKNOWN: Final = object()
_WRITTEN_OUT: Final = (
    ast.List,
    ast.Tuple,
    ast.Dict,
    ast.Set,
    ast.BinOp,
    ast.UnaryOp,
    ast.Starred,
    ast.keyword,
    ast.Slice,
)


def makes(value: ast.expr, made: object, space: Mapping[str, Any]) -> bool:
    """Whether an expression is a pure one, and as far as can be told the one that made `made`.

    Args:
        value: the expression.
        made: an iterator.
        space: the names of the notebook.
    """
    if isinstance(value, ast.GeneratorExp):
        return _is_generator_of(made, _code_of(value)) and _is_pure(value.generators[0].iter, space)
    if not isinstance(value, ast.Call) or not _is_pure(value, space):
        return False
    function = _looked_up(value.func, space)
    if function is iter:
        return len(value.args) == 1 and _goes_through(made, _looked_up(value.args[0], space))
    if isinstance(function, type):
        return type(made) is function
    return _is_generator_of(made, getattr(function, "__code__", None))


def _code_of(value: ast.GeneratorExp) -> types.CodeType | None:
    inside = compile(ast.Expression(value), "<line>", "eval").co_consts
    return next((one for one in inside if isinstance(one, types.CodeType)), None)


def _is_generator_of(made: object, code: types.CodeType | None) -> bool:
    """Whether it runs that code, or the same text of it where that was compiled anew."""
    if not isinstance(made, types.GeneratorType) or code is None:
        return False
    own = made.gi_code
    return own is code or (own.co_name == code.co_name == "<genexpr>" and own.co_names == code.co_names)


def _goes_through(made: object, through: object) -> bool:
    """Whether an iterator may be one of `through`; of a loader's, whether it reads its data in its order."""
    if through is _UNKNOWN:
        return True
    own = getattr(type(through), "__iter__", None)
    if inspect.isgeneratorfunction(own):
        return _is_generator_of(made, own.__code__)
    if isinstance(made, _BaseDataLoaderIter):
        return isinstance(through, DataLoader) and is_of(made, through)
    return not isinstance(through, DataLoader)


def is_of(made: _BaseDataLoaderIter, loader: DataLoader[Any]) -> bool:
    """Whether a loader's iterator reads that loader's data in its order."""
    inside, order = vars(made), loader._index_sampler
    return inside.get("_dataset") is loader.dataset and inside.get("_index_sampler") is order


def _is_pure(node: ast.AST, space: Mapping[str, Any]) -> bool:
    if isinstance(node, (ast.Constant, ast.Lambda)):
        return True
    if isinstance(node, ast.Call):
        parts = [*node.args, *node.keywords]
        return _is_pure_function(_looked_up(node.func, space)) and all(_is_pure(one, space) for one in parts)
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        found = _looked_up(node, space)
        return found is not _UNKNOWN and not hasattr(type(found), "__next__")
    if isinstance(node, _WRITTEN_OUT):
        return all(
            _is_pure(one, space) for one in ast.iter_child_nodes(node) if isinstance(one, (ast.expr, ast.keyword))
        )
    return False


def _is_pure_function(function: Any) -> bool:
    if isinstance(function, type):
        own = (torch.utils.data.Dataset, torch.utils.data.Sampler, DataLoader)
        loads = issubclass(function, own) and function.__module__.startswith("torch.utils.data")
        return loads or function in _ITERATORS or function in _PLAIN
    if inspect.isgeneratorfunction(function):
        return True
    return any(function is one for one in _PLAIN)


def _looked_up(node: ast.AST, space: Mapping[str, Any]) -> Any:
    """The object that a name, an attribute or an element is, without running code of anybody's."""
    if isinstance(node, ast.Name):
        return space.get(node.id, getattr(builtins, node.id, _UNKNOWN))
    if isinstance(node, ast.Attribute):
        owner = _looked_up(node.value, space)
        found = _UNKNOWN if owner is _UNKNOWN else inspect.getattr_static(owner, node.attr, _UNKNOWN)
        if isinstance(found, types.FunctionType) and not isinstance(owner, (type, types.ModuleType)):
            return types.MethodType(found, owner)
        return found.__func__ if isinstance(found, staticmethod) else _UNKNOWN if _computes(found) else found
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        owner = _looked_up(node.value, space)
        try:
            return owner[node.slice.value] if type(owner) in (dict, list, tuple) else _UNKNOWN
        except (LookupError, TypeError):
            return _UNKNOWN
    return _UNKNOWN


def _computes(found: object) -> bool:
    """A property or the like: what it gives is not known before it is asked."""
    return found is not _UNKNOWN and hasattr(type(found), "__get__") and not callable(found)
