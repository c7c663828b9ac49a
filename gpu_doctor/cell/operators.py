"""Statements that do nothing but operations on whole tensors, read off the text.

Python only names what torch's compiled code then computes: a look at the stack that falls on such a line finds no
frame of torch's, and no Python either. What takes tensors apart (`.item()`, `.tolist()`) or makes them of Python's
numbers and lists (`torch.tensor`, `torch.stack(rows)`) is none of them, nor is a call that the text does not explain.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from gpu_doctor.cell.syntax import COMPREHENSIONS, FUNCTIONS, lines_of, parsed, simple

_MODULES: Final = {"torch", "torch.fft", "torch.linalg", "torch.special", "torch.nn.functional", "nn.functional", "F"}
"""Modules of such operations, as people name them."""
_FROM_PYTHON: Final = {"tensor", "as_tensor", "asarray", "from_file", "load", "save", "set_printoptions", "compile"}
_FROM_PARTS: Final = {"stack", "cat", "concat", "concatenate", "hstack", "vstack", "dstack"}
"""Of parts that are written there (`torch.cat((x, y))`), operations; of a list of any length, its taking apart."""
_NAMES: Final = (
    "abs add_ addcmul all amax amin aminmax any argmax argmin argsort bernoulli bfloat16 bitwise_and bitwise_or bmm "
    "bool ceil chunk clamp clip clone contiguous copy_ cos cross cummax cumprod cumsum detach diagonal diff div dot "
    "double eq erf exp expand expand_as expm1 exponential fill flatten flip float floor fmod gather ge gt half "
    "index_add index_copy index_fill index_put index_select int isfinite isinf isnan le lerp log log10 log1p log2 "
    "log_softmax logical_and logical_not logical_or logsumexp long lt masked_fill masked_select matmul max mean "
    "median min mm mul narrow ne neg new_empty new_full new_ones new_zeros norm normal one_hot outer permute pow prod "
    "quantile reciprocal relu remainder repeat repeat_interleave reshape roll rot90 round rsqrt scatter scatter_add "
    "select sigmoid sign sin size softmax sqrt square squeeze std sub sum swapaxes t tan tanh to topk transpose tril "
    "triu type_as unbind unflatten unfold uniform unsqueeze var view view_as where zero"
)
"""What people call of a tensor that gives tensors, without the underscore of what is done in place; names that lists,
texts and sets have too (`split`, `sort`, `add`) are left out."""
_METHODS: Final = frozenset(_NAMES.split())
_BARS: Final = (*(*COMPREHENSIONS, ast.Lambda, ast.JoinedStr, ast.Dict, ast.Set, ast.Await, ast.Yield, ast.YieldFrom),)


@lru_cache(maxsize=64)
def operator_rows(text: str) -> frozenset[int]:
    """Lines of simple statements that only make operations on whole tensors.

    A function that the text defines may be called in one: what it costs lies on its own lines.

    Args:
        text: all of a file.
    """
    tree = parsed(text)
    if tree is None:
        return frozenset()
    defined = {one.name for one in ast.walk(tree) if isinstance(one, FUNCTIONS)}
    every = simple(tree)
    operations = [one for one in every if _operates(one, defined)]
    # Of two statements on a line, a look cannot tell which ran.
    others = {row for one in every if one not in operations for row in lines_of(one)}
    return frozenset(row for one in operations for row in lines_of(one)) - others


def _operates(statement: ast.stmt, defined: set[str]) -> bool:
    if not isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)):
        return False
    inside = list(ast.walk(statement))
    if any(isinstance(one, _BARS) for one in inside) or any(isinstance(one, ast.List) for one in _added(inside)):
        return False
    calls = [one for one in inside if isinstance(one, ast.Call)]
    return all(_of_tensors(one, defined) for one in calls) and any(
        isinstance(one, (ast.Call, ast.BinOp, ast.AugAssign, ast.Compare, ast.UnaryOp, ast.Subscript)) for one in inside
    )


def _added(nodes: list[ast.AST]) -> Iterator[ast.AST]:
    """What is added or multiplied by signs: of lists that is Python's."""
    for one in nodes:
        if isinstance(one, ast.BinOp):
            yield from (one.left, one.right)
        elif isinstance(one, ast.AugAssign):
            yield one.value


def _of_tensors(call: ast.Call, defined: set[str]) -> bool:
    """A function of torch's over tensors, a method of a tensor, or a function that the text defines."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id in defined or function.id == "len"
    if not isinstance(function, ast.Attribute):
        return False
    if ast.unparse(function.value) not in _MODULES:
        return bool({function.attr, function.attr.rstrip("_")} & _METHODS)
    if function.attr in _FROM_PARTS:
        return bool(call.args) and isinstance(call.args[0], (ast.List, ast.Tuple))
    return function.attr not in _FROM_PYTHON
