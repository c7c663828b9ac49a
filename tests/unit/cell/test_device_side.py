"""Which lines come after the batch was copied to its device, read off the text."""

from __future__ import annotations

from gpu_doctor.cell import moved_lines
from gpu_doctor.recording import LineCost

SOURCE = """def before(x): return x + 1
for x, y in loader:
    x = before(x)
    x, y = x.to(device), y.to(device)
    x = after(x)
    if flip:
        x = x.flip(-1)
    loss = net(x)
    loss.backward()
"""


def costs(*rows: int) -> list[LineCost]:
    return [LineCost("<cell>", row, "<module>", SOURCE.splitlines()[row - 1].strip(), "other", 0.1) for row in rows]


def test_what_follows_the_copy_is_on_the_device() -> None:
    assert [one.line for one in moved_lines(SOURCE, costs(3, 4, 5, 7))] == [5, 7]


def test_functions_of_other_cells_go_by_where_they_are_called() -> None:
    lines = [LineCost("<above>", 9, name, "return x * 2", "other", 0.1) for name in ("before", "after")]
    assert [one.function for one in moved_lines(SOURCE, lines)] == ["after"]


def test_without_a_copy_nothing_is_told() -> None:
    source = SOURCE.replace(".to(device)", "")
    lines = [LineCost("<cell>", 5, "<module>", "x = after(x)", "other", 0.1)]
    assert moved_lines(source, lines) == () and moved_lines("x = (", lines) == ()
