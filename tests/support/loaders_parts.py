"""What the tests of loaders share."""

from __future__ import annotations

import torch


class Numbers(torch.utils.data.Dataset[int]):
    def __init__(self, n: int = 10) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> int:
        return i
