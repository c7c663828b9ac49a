"""Which statements of a step compute what the loss alone needs from data that is there already.

Anchors are assigned to boxes, rewards are discounted: the batch is pulled by then, and what takes the time is Python of
the step. What reads, loads or decodes is a batch in the making, whoever needs it, and so is what the model is fed with.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Final

from gpu_doctor.cell.statements import called, definitions, makers_of, reads, stored, writes
from gpu_doctor.cell.syntax import Loop, key

_PULLS: Final = re.compile(
    r"(^|_)(im)?(open|read|load|fetch|download|decode|recv|receive|request|query|next)|parse|(^|_)(sleep|wait)"
)
"""In the name of what is called: it gets data."""
_COUNTS: Final = {"range", "count", "trange"}


def computed_targets(
    makers: Sequence[ast.stmt],
    inputs: Sequence[ast.AST],
    loops: Sequence[Loop],
    defined: Mapping[str, Sequence[ast.AST]],
) -> list[ast.stmt]:
    """Those of the makers that only compute, from data at hand, what the model is not fed with.

    Args:
        makers: statements that a loss depends on and that do not depend on the model's output.
        inputs: what the model is called with.
        loops: around them.
        defined: functions and classes of the text.
    """
    needed = {name for one in inputs for name in reads(one)}
    feeding = makers_of(needed, makers)
    there = {name for loop in loops for name in _pulled(loop)}
    found = [one for one in makers if one not in feeding]
    while more_there := {name for one in found if _is_at_hand(one, there) for name in writes(one)} - there:
        there |= more_there
    return [one for one in found if _is_at_hand(one, there) and not _gets_data(one, defined)]


def _pulled(loop: Loop) -> set[str]:
    """What a loop over data binds."""
    if isinstance(loop, ast.While) or called((loop.iter,)) & _COUNTS:
        return set()
    return stored(loop.target)


def _is_at_hand(statement: ast.stmt, there: set[str]) -> bool:
    """Whether it takes something out of what is kept, or goes on with what is there."""
    taken = (one for one in ast.walk(statement) if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Load))
    return any(key(one) for one in taken) or bool(reads(statement) & there)


def _gets_data(statement: ast.stmt, defined: Mapping[str, Sequence[ast.AST]]) -> bool:
    """Whether it, or a function of the text that it calls, reads, loads or waits, as far as names go."""
    return any(_PULLS.search(name) for name in called((statement, *definitions((statement,), defined))))
