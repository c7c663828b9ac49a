"""The device that a block works on: the card, or what stands for it in a rehearsal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock


@contextlib.contextmanager
def device(rehearse: bool) -> Iterator[str]:
    """Yields the name by which torch knows it. A rehearsal compiles nothing, since that takes long."""
    if not rehearse:
        yield "cuda"
        return
    import torch

    real: Any = torch.compile

    def interpreted(model: Any = None, *, mode: str = "", **how: Any) -> Any:
        return real(model, **{**how, "backend": "eager"})

    with mock.patch.object(torch, "compile", interpreted):
        yield "cpu"
