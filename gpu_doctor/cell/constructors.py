"""Which call of the user's cells made the loader that a run trained from, and which calls made its optimizers."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gpu_doctor.cell.arguments import UNKNOWN, given, slot, value_of
from gpu_doctor.cell.calls import Cells, Made, Site, function_around, is_of, parameters_of
from gpu_doctor.cell.source import CellSource
from gpu_doctor.cell.syntax import DEFINITIONS, LOOPS, Loop, dotted
from gpu_doctor.recording import LoaderSetup

__all__ = [
    "FUSABLE",
    "LOADER",
    "batch_sampler_of",
    "is_loader",
    "loader_makers",
    "newest_of",
    "optimizer_makers",
    "training_loops",
]

LOADER: Final = (
    *("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory"),
    *("drop_last", "timeout", "worker_init_fn", "multiprocessing_context", "generator"),
)
"""The positional parameters of torch's DataLoader (torch 2.13)."""
DEFAULTS: Final[Mapping[str, Any]] = {
    "batch_size": 1,
    "num_workers": 0,
    "pin_memory": False,
    "drop_last": False,
    "persistent_workers": False,
}
EVALUATING: Final = ("val_dataloader", "test_dataloader", "eval_dataloader", "predict_dataloader")
"""Methods (also with `get_` before) that frameworks call for data that is held out."""
FUSABLE: Final = ("Adam", "AdamW", "SGD", "Adagrad")
"""torch.optim's classes that take `fused=True` on some device (torch 2.13)."""


def is_loader(meant: Any) -> bool:
    """Whether a class, or the qualified name of one, is torch's DataLoader or a subclass of it."""
    return is_of(meant, ("DataLoader",), "torch")


def is_optimizer(meant: Any) -> bool:
    """Whether a class, or the qualified name of one, is an optimizer of torch that can be fused, or a subclass."""
    return is_of(meant, FUSABLE, "torch.optim")


def is_batch_sampler(meant: Any) -> bool:
    """Whether a class, or the qualified name of one, is torch's BatchSampler."""
    if inspect.isclass(meant):
        return meant.__name__ == "BatchSampler" and meant.__module__.startswith("torch.")
    return isinstance(meant, str) and meant.rpartition(".")[2] == "BatchSampler"


def loader_makers(cells: Cells, setup: LoaderSetup | None) -> list[Made]:
    """The calls that may have made the training loader: one if it is sure, several if the text cannot tell."""
    found = list(cells.made_by(is_loader, LOADER))
    found = [one for one in found if not _evaluates(one)] or found
    if len(found) < 2:
        return found
    looped = _iterated(cells)
    ranks = {
        one: (_bound_as(cells, one, setup), -_contradictions(cells, one, setup), _named(one, looped)) for one in found
    }
    best = max(ranks.values())
    return newest_of(one for one in found if ranks[one] == best)


def _evaluates(made: Made) -> bool:
    """Whether the call stands in a method that frameworks call for data that is held out (`val_dataloader`)."""
    function = made.site.function
    return function is not None and function.name.removeprefix("get_") in EVALUATING


def optimizer_makers(cells: Cells, names: Iterable[str]) -> list[Made]:
    """The newest call for each optimizer of those classes, all of them where no class is known."""
    known, found = set(names), list(cells.made_by(is_optimizer, ()))
    fitting = [one for one in found if _class_name(cells, one) in known] or found
    return newest_of(fitting)


def _class_name(cells: Cells, made: Made) -> str:
    meant = cells.meant(made.site.call.func)
    return meant.__name__ if inspect.isclass(meant) else str(meant).rpartition(".")[2]


def newest_of(found: Iterable[Made]) -> list[Made]:
    """Of calls that assign to the same name, the last one; of those that assign to none, those of the newest cell."""
    last: dict[tuple[object, ...], Made] = {}
    for one in found:
        outer, targets = one.outermost, one.targets
        around = [up.name for up in outer.cell.ancestors(outer.call) if isinstance(up, DEFINITIONS)]
        key = (*around, ast.unparse(targets[0]) if targets else one.site.call)
        last.pop(key, None)
        last[key] = one
    newest = max((one.outermost.cell.index for one in last.values()), default=0)
    return [one for one in last.values() if one.targets or one.outermost.cell.index == newest]


def _bound_as(cells: Cells, made: Made, setup: LoaderSetup | None) -> int:
    """1 if the name it is assigned to holds such a loader now, -1 if it holds another one, 0 if that cannot be seen."""
    for target in made.targets:
        held = _held(cells, target)
        if held is not None and is_loader(type(held)) and setup is not None:
            values = vars(held)
            same = all(
                values.get(name) == getattr(setup, name)
                for name in ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor")
            )
            size = values.get("batch_size")
            same = same and (size is None or size == setup.batch_size)
            dataset = values.get("dataset")
            same = same and (not setup.dataset or type(dataset).__name__ == setup.dataset)
            return 1 if same and _length_fits(dataset, setup) else -1
    return 0


def _held(cells: Cells, target: ast.expr) -> Any:
    """The object behind a name, `self.x` and the like aside."""
    parts = dotted(target)
    if parts:
        return cells.value(parts)
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        holder = _held(cells, target.value)
        if type(holder) is dict:
            return holder.get(target.slice.value)
    return None


def _length_fits(dataset: Any, setup: LoaderSetup) -> bool:
    try:
        return setup.dataset_len is None or len(dataset) == setup.dataset_len
    except Exception:  # a user's own __len__
        return True


def _contradictions(cells: Cells, made: Made, setup: LoaderSetup | None) -> int:
    """How many of its arguments say otherwise than the loader that was seen."""
    if setup is None:
        return 0
    wrong = 0
    for name, default in DEFAULTS.items():
        value, seen = value_of(cells, made, name, default), getattr(setup, name)
        own_batches = name in ("batch_size", "drop_last") and given(cells, made, "batch_sampler") is not None
        wrong += value is not UNKNOWN and not own_batches and value != seen
    shuffle = value_of(cells, made, "shuffle", False)
    if setup.sampler in ("RandomSampler", "SequentialSampler") and isinstance(shuffle, bool):
        wrong += shuffle is not (setup.sampler == "RandomSampler") and given(cells, made, "sampler") is None
    dataset = slot(cells, made, "dataset").node
    if dataset is not None and setup.dataset:
        wrong += 2 * _other_dataset(cells, dataset, setup)
    return wrong


def _other_dataset(cells: Cells, node: ast.expr, setup: LoaderSetup) -> bool:
    if isinstance(node, ast.Call):
        meant = cells.meant(node.func)
        return inspect.isclass(meant) and meant.__name__ != setup.dataset
    held = _held(cells, node)
    return held is not None and (type(held).__name__ != setup.dataset or not _length_fits(held, setup))


def _iterated(cells: Cells) -> tuple[set[str], set[str]]:
    """Names in the heads of the newest loops with a backward, and all names of the newest cell."""
    newest = cells.cells[-1]
    loops = list(training_loops([newest])) or list(training_loops(cells.cells))
    heads: set[str] = set()
    for cell, loop in loops:
        own = _names_in(loop.iter) if isinstance(loop, (ast.For, ast.AsyncFor)) else set()
        heads |= own
        function = function_around(cell, loop)
        for parameter in own if function is not None else ():  # what its callers hand to the function of the loop
            names = parameters_of(cell, function) if function is not None else ()
            for where, call in cells.calls(function.name if function is not None else ""):
                handed = Site(where, call, names).argument(parameter) if parameter in names else None
                heads |= _names_in(handed) if handed is not None else set()
    return heads, {name.id for name in newest.walk(ast.Name) if isinstance(name.ctx, ast.Load)}


def _names_in(node: ast.AST) -> set[str]:
    """Names as they are written, and of attributes the last part with its dot."""
    found = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    attributes = [one for one in ast.walk(node) if isinstance(one, (ast.Attribute, ast.Subscript))]
    return found | {ast.unparse(one) for one in attributes} | {f".{getattr(one, 'attr', '')}" for one in attributes}


def _named(made: Made, looped: tuple[set[str], set[str]]) -> int:
    """How much speaks for it.

    3 if a training loop names it, or it is made in the head of one; 2 if only the last part of an attribute fits; 1 if
    the newest cell names it.
    """
    outer, (heads, mentioned) = made.outermost, looped
    loops = [one for one in outer.cell.ancestors(outer.call) if isinstance(one, (ast.For, ast.AsyncFor))]
    if any(node is outer.call for one in loops for node in ast.walk(one.iter)):
        return 3
    names = {ast.unparse(one) for one in made.targets}
    if names & heads:
        return 3
    parts = {f".{one.attr}" for one in made.targets if isinstance(one, ast.Attribute)}
    return 2 if parts & heads else 1 if names & mentioned else 0


def training_loops(cells: Iterable[CellSource]) -> Iterator[tuple[CellSource, Loop]]:
    """The loops that call `backward`, innermost ones, oldest cell first."""
    for cell in cells:
        for call in cell.walk(ast.Call):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "backward":
                loops = [one for one in cell.ancestors(call) if isinstance(one, LOOPS)]
                if loops:
                    yield cell, loops[0]


def batch_sampler_of(cells: Cells, made: Made) -> Made | None:
    """The call of torch's BatchSampler that gives a loader its batches; None if there is none to be found."""
    node = given(cells, made, "batch_sampler")
    for one in cells.made_by(is_batch_sampler, ("sampler", "batch_size", "drop_last")):
        if one.site.call is node or (
            isinstance(node, ast.Name)
            and any(isinstance(target, ast.Name) and target.id == node.id for target in one.targets)
        ):
            return one
    return None
