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
_SEEN: Final = ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor")
_BATCHING: Final = ("batch_size", "drop_last")
"""Arguments that a batch sampler takes in the loader's place."""
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
    return is_of(meant, ("BatchSampler",), "torch") and not (
        inspect.isclass(meant) and meant.__name__ != "BatchSampler"
    )


def loader_makers(cells: Cells, setup: LoaderSetup | None) -> list[Made]:
    """The calls that may have made the training loader: one if it is sure, several if the text cannot tell."""
    found = list(cells.made_by(is_loader, LOADER))
    found = [one for one in found if not _evaluates(one)] or found
    if len(found) < 2:
        return found
    heads = _drawn_from(cells)
    ranks = {
        one: (_bound_as(cells, one, setup), -_contradictions(cells, one, setup), _named(one, heads)) for one in found
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
    held = next((one for target in made.targets if is_loader(type(one := _held(cells, target)))), None)
    if held is None or setup is None:
        return 0
    values = vars(held)
    same = all(values.get(name) == getattr(setup, name) for name in _SEEN)
    same = same and values.get("batch_size") in (None, setup.batch_size)
    return 1 if same and _is_dataset(values.get("dataset"), setup) else -1


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


def _is_dataset(held: Any, setup: LoaderSetup) -> bool:
    """Whether an object may be the dataset of the loader that was seen."""
    if setup.dataset and type(held).__name__ != setup.dataset:
        return False
    try:
        return setup.dataset_len is None or len(held) == setup.dataset_len
    except Exception:  # a user's own __len__
        return True


def _contradictions(cells: Cells, made: Made, setup: LoaderSetup | None) -> int:
    """How many of its arguments say otherwise than the loader that was seen."""
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
    """What the heads of the newest training loops name, and what is handed to the functions of these loops."""
    heads: set[str] = set()
    for cell, loop in list(training_loops(cells.cells[-1:])) or list(training_loops(cells.cells)):
        own = _names_in(loop.iter) if isinstance(loop, (ast.For, ast.AsyncFor)) else set()
        heads |= own
        function = function_around(cell, loop)
        names = parameters_of(cell, function) if function is not None else ()
        for where, call in cells.calls(function.name) if function is not None else ():
            handed = (Site(where, call, names).argument(name) for name in own.intersection(names))
            heads = heads.union(*(_names_in(one) for one in handed if one is not None))
    return heads


def _names_in(node: ast.AST) -> set[str]:
    """Names as they are written, and of attributes the last part with its dot."""
    found = [one for one in ast.walk(node) if isinstance(one, (ast.Name, ast.Attribute, ast.Subscript))]
    return {ast.unparse(one) for one in found} | {f".{one.attr}" for one in found if isinstance(one, ast.Attribute)}


def _named(made: Made, heads: set[str]) -> int:
    """2 if a training loop names it, or it is made in the head of one; 1 if only the last part of an attribute fits."""
    outer = made.outermost
    loops = (one for one in outer.cell.ancestors(outer.call) if isinstance(one, (ast.For, ast.AsyncFor)))
    if heads & {ast.unparse(one) for one in made.targets} or any(
        node is outer.call for one in loops for node in ast.walk(one.iter)
    ):
        return 2
    return int(bool(heads & {f".{one.attr}" for one in made.targets if isinstance(one, ast.Attribute)}))


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
    node = given(made, "batch_sampler")
    for one in cells.made_by(is_batch_sampler, ("sampler", "batch_size", "drop_last")):
        if one.site.call is node or (
            isinstance(node, ast.Name)
            and any(isinstance(target, ast.Name) and target.id == node.id for target in one.targets)
        ):
            return one
    return None
