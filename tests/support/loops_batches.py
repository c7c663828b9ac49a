"""Training loops whose batches come in other forms: boxed, streamed, from new loaders, or one ahead of their use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.utils.data import DataLoader

from tests.support.loop_parts import BATCH, Items, Stream, Truth, learn, learn_all, loader, net, sgd
from tests.support.loops import Loop


def new_loader_each_epoch(t: Truth) -> None:
    """The loader is built anew in every epoch: one loader in the setup."""
    model = net(t)
    optimizer = sgd(model)
    data = t.loads("training", Items(18))
    t.start()
    for _ in t.epochs(3):
        learn_all(t, model, optimizer, DataLoader(data, batch_size=BATCH), epochs=1)


class Bag:
    """A batch as an object that some library made."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.name, self.x, self.y = "bag", x, y


@dataclass
class Pair:
    """A batch as a dataclass."""

    x: torch.Tensor
    y: torch.Tensor


def held_in(box: Callable[[torch.Tensor, torch.Tensor], Any], stream: bool) -> Loop:
    """Batches in dicts, tuples, dataclasses and objects, with and without a sampler that could count them."""

    def collate(items: list[Any]) -> Any:
        return box(torch.stack([x for x, _ in items]), torch.stack([y for _, y in items]))

    def loop(t: Truth) -> None:
        model = net(t)
        data = t.loads("training", Stream(20) if stream else Items(20))
        optimizer, batches = sgd(model), DataLoader(data, batch_size=BATCH, collate_fn=collate)
        t.start()
        for _ in t.epochs(2):
            for batch in batches:
                values = batch if isinstance(batch, (dict, tuple)) else vars(batch)
                x, y = (values["x"], values["y"]) if isinstance(values, dict) else values
                t.got()
                learn(t, model, optimizer, x, y)

    loop.__doc__ = held_in.__doc__
    return loop


def one_ahead(t: Truth) -> None:
    """A prefetcher that pulls a batch ahead of the one that it hands out: each is still counted once."""
    model = net(t)
    optimizer, batches = sgd(model), loader(t, 32)

    def ahead() -> Iterator[Any]:
        it = iter(batches)
        now = next(it)
        for later in it:
            yield now
            now = later
        yield now

    t.start()
    for _ in t.epochs(2):
        learn_all(t, model, optimizer, ahead(), epochs=1)


BOXES: Final[dict[str, Callable[[torch.Tensor, torch.Tensor], Any]]] = {
    "dict": lambda x, y: {"x": x, "y": y},
    "tuple": lambda x, y: (x, y),
    "dataclass": Pair,
    "object": Bag,
}
