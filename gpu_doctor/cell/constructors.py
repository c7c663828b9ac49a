"""Finds the calls in the user's cells that made the loader a run trained from, and its optimizers."""

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
"""Positional parameters of torch's DataLoader (torch 2.13)."""
DEFAULTS: Final[Mapping[str, Any]] = {
    "batch_size": 1,
    "num_workers": 0,
    "pin_memory": False,
    "drop_last": False,
    "persistent_workers": False,
}
_SEEN: Final = ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor")
_BATCHING: Final = ("batch_size", "drop_last")
"""Arguments that belong to the batch sampler if the loader has one."""
EVALUATING: Final = ("val_dataloader", "test_dataloader", "eval_dataloader", "predict_dataloader")
"""Methods, with or without a leading `get_`, that frameworks call for held-out data."""
FUSABLE: Final = ("Adam", "AdamW", "SGD", "Adagrad")
"""Classes of torch.optim that accept `fused=True` on some device (torch 2.13)."""


def is_loader(meant: Any) -> bool:
    """Returns True if a class or its qualified name is torch's DataLoader or a subclass."""
    return is_of(meant, ("DataLoader",), "torch")


def is_optimizer(meant: Any) -> bool:
    """Returns True if a class or its qualified name is an optimizer of torch that can be fused, or a subclass."""
    return is_of(meant, FUSABLE, "torch.optim")


def is_batch_sampler(meant: Any) -> bool:
    """Returns True if a class or its qualified name is torch's BatchSampler itself."""
    return is_of(meant, ("BatchSampler",), "torch") and not (
        inspect.isclass(meant) and meant.__name__ != "BatchSampler"
    )


def loader_makers(cells: Cells, setup: LoaderSetup | None) -> list[Made]:
    """Returns the calls that may have made the training loader: one if it is certain, else several."""
    found = list(cells.made_by(is_loader, LOADER))
    found = [made for made in found if not _evaluates(made)] or found
    if len(found) < 2:
        return found
    heads = _drawn_from(cells)
    ranks = {
        made: (_bound_as(cells, made, setup), -_contradictions(cells, made, setup), _named(made, heads))
        for made in found
    }
    best = max(ranks.values())
    return newest_of(made for made in found if ranks[made] == best)


def _evaluates(made: Made) -> bool:
    """Returns True if the call is in a method that frameworks call for held-out data, such as `val_dataloader`."""
    function = made.site.function
    return function is not None and function.name.removeprefix("get_") in EVALUATING


def optimizer_makers(cells: Cells, names: Iterable[str]) -> list[Made]:
    """Returns the newest call for each optimizer of the classes in `names`, or of all classes if none is found."""
    known, found = set(names), list(cells.made_by(is_optimizer, ()))
    fitting = [made for made in found if _class_name(cells, made) in known] or found
    return newest_of(fitting)


def _class_name(cells: Cells, made: Made) -> str:
    meant = cells.meant(made.site.call.func)
    return meant.__name__ if inspect.isclass(meant) else str(meant).rpartition(".")[2]


def newest_of(found: Iterable[Made]) -> list[Made]:
    """Returns the last of the calls that assign to the same name, and the newest cell's calls that assign to none."""
    last: dict[tuple[object, ...], Made] = {}
    for made in found:
        outer, targets = made.outermost, made.targets
        around = [parent.name for parent in outer.cell.ancestors(outer.call) if isinstance(parent, DEFINITIONS)]
        key = (*around, ast.unparse(targets[0]) if targets else made.site.call)
        last.pop(key, None)
        last[key] = made
    newest = max((made.outermost.cell.index for made in last.values()), default=0)
    return [made for made in last.values() if made.targets or made.outermost.cell.index == newest]


def _bound_as(cells: Cells, made: Made, setup: LoaderSetup | None) -> int:
    """Compares the loader that the call's name holds now with the recorded one.

    Returns:
        1 if they agree, -1 if they differ, 0 if the name holds no loader or none was recorded.
    """
    held = next((value for target in made.targets if is_loader(type(value := _held(cells, target)))), None)
    if held is None or setup is None:
        return 0
    values = vars(held)
    same = all(values.get(name) == getattr(setup, name) for name in _SEEN)
    same = same and values.get("batch_size") in (None, setup.batch_size)
    return 1 if same and _is_dataset(values.get("dataset"), setup) else -1


def _held(cells: Cells, target: ast.expr) -> Any:
    """Returns the object that a dotted name or an item of a dictionary holds; None if it is not known."""
    parts = dotted(target)
    if parts:
        return cells.value(parts)
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        holder = _held(cells, target.value)
        if type(holder) is dict:
            return holder.get(target.slice.value)
    return None


def _is_dataset(held: Any, setup: LoaderSetup) -> bool:
    """Returns True if an object may be the data set of the recorded loader."""
    if setup.dataset and type(held).__name__ != setup.dataset:
        return False
    try:
        return setup.dataset_len is None or len(held) == setup.dataset_len
    except Exception:  # a `__len__` of the user's may raise
        return True


def _contradictions(cells: Cells, made: Made, setup: LoaderSetup | None) -> int:
    """Counts the arguments of a call that contradict the recorded loader; a wrong data set counts twice."""
    if setup is None:
        return 0
    own_batches = given(made, "batch_sampler") is not None
    wrong = 0
    for name, default in DEFAULTS.items():
        value = value_of(cells, made, name, default)
        wrong += value is not UNKNOWN and not (own_batches and name in _BATCHING) and value != getattr(setup, name)
    shuffle = value_of(cells, made, "shuffle", False)
    if setup.sampler in ("RandomSampler", "SequentialSampler") and isinstance(shuffle, bool) and not own_batches:
        wrong += shuffle is not (setup.sampler == "RandomSampler") and given(made, "sampler") is None
    dataset = slot(made, "dataset").node
    held = _held(cells, dataset) if dataset is not None and setup.dataset else None
    return wrong + 2 * (held is not None and not _is_dataset(held, setup))


def _drawn_from(cells: Cells) -> set[str]:
    """Returns the names in the heads of the newest training loops, and in arguments passed for these names."""
    heads: set[str] = set()
    for cell, loop in list(training_loops(cells.cells[-1:])) or list(training_loops(cells.cells)):
        own = _names_in(loop.iter) if isinstance(loop, (ast.For, ast.AsyncFor)) else set()
        heads |= own
        function = function_around(cell, loop)
        names = parameters_of(cell, function) if function is not None else ()
        for where, call in cells.calls(function.name) if function is not None else ():
            passed = (Site(where, call, names).argument(name) for name in own.intersection(names))
            heads = heads.union(*(_names_in(argument) for argument in passed if argument is not None))
    return heads


def _names_in(node: ast.AST) -> set[str]:
    """Returns the names, attributes and items in an expression as written, and `.x` for every attribute `x`."""
    found = [part for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute, ast.Subscript))]
    return {ast.unparse(part) for part in found} | {
        f".{part.attr}" for part in found if isinstance(part, ast.Attribute)
    }


def _named(made: Made, heads: set[str]) -> int:
    """Rates how well a call fits the heads of training loops.

    Returns:
        2 if a head contains the call or its target, 1 if only the last part of an attribute fits, else 0.
    """
    outer = made.outermost
    loops = (parent for parent in outer.cell.ancestors(outer.call) if isinstance(parent, (ast.For, ast.AsyncFor)))
    if heads & {ast.unparse(target) for target in made.targets} or any(
        node is outer.call for loop in loops for node in ast.walk(loop.iter)
    ):
        return 2
    return int(bool(heads & {f".{target.attr}" for target in made.targets if isinstance(target, ast.Attribute)}))


def training_loops(cells: Iterable[CellSource]) -> Iterator[tuple[CellSource, Loop]]:
    """Yields the innermost loop around each call of `backward`, those of the oldest cell first."""
    for cell in cells:
        for call in cell.walk(ast.Call):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "backward":
                loops = [parent for parent in cell.ancestors(call) if isinstance(parent, LOOPS)]
                if loops:
                    yield cell, loops[0]


def batch_sampler_of(cells: Cells, made: Made) -> Made | None:
    """Returns the call of torch's BatchSampler that gives a loader its batches; None if there is none."""
    node = given(made, "batch_sampler")
    for sampler in cells.made_by(is_batch_sampler, ("sampler", "batch_size", "drop_last")):
        if sampler.site.call is node or (
            isinstance(node, ast.Name)
            and any(isinstance(target, ast.Name) and target.id == node.id for target in sampler.targets)
        ):
            return sampler
    return None
