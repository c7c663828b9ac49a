"""How much work keeps this card busy for a known time, so that sick loops are equally sick on every card."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.gpu.cells import BUSY, HEAD
from benchmarks.gpu.timing import emptied, stretch_s
from tests.support.turns import scaled

WORK_S: Final = 0.006
"""The device's part of a step of the net in `cells.BUSY`."""
FEWEST: Final = 64


def rows_for(device: str, wanted_s: float = WORK_S) -> int:
    """Rows that the net of `cells.BUSY` takes so long for, forward, backward and optimizer."""
    if not device.startswith("cuda"):
        return FEWEST
    rows = 4096
    for _ in range(3):
        text = (HEAD + BUSY).replace("DEVICE", device).replace("STEPS", "1").replace("ROWS", str(rows))
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(text, "<above>", "exec"), names)
        torch = names["torch"]
        x = torch.randn(32, 64, device=device)

        def train(steps: int, names: dict[str, Any] = names, x: Any = x) -> None:
            for _ in range(steps):
                names["optimizer"].zero_grad()
                names["net"](x).float().square().mean().backward()
                names["optimizer"].step()

        rows = scaled(rows, stretch_s(train, 5, 20, device), wanted_s, least=FEWEST)
    del names, train
    emptied(device)  # the patients' own processes need the card
    return rows
