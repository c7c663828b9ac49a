"""Panels that are open: one a cell, and the oldest goes where they are many."""

from __future__ import annotations

from functools import partial

import pytest

from gpu_doctor.notebook import open_panels
from gpu_doctor.notebook.open_panels import MOST_OPEN, opened


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the panels that were closed, in order; none is open at first."""
    monkeypatch.setattr(open_panels, "_open", {})
    return []


def test_a_cell_that_is_run_again_closes_its_panel_and_no_other(closed: list[str]) -> None:
    for name, cell in (("one", "a"), ("two", "b"), ("three", "a")):
        opened(partial(closed.append, name), {"metadata": {"cellId": cell}})
    assert closed == ["one"]


def test_a_deleted_cell_closes_its_panel_with_the_next(closed: list[str]) -> None:
    opened(partial(closed.append, "one"), {"metadata": {"cellId": "a"}})
    opened(partial(closed.append, "two"), {"metadata": {"cellId": "b", "deletedCells": ["a", "never a panel"]}})
    assert closed == ["one"]


def test_a_cell_without_a_name_is_known_by_its_text(closed: list[str]) -> None:
    for name, code in (("one", "a = 1"), ("two", "b = 2"), ("three", "a = 1")):
        opened(partial(closed.append, name), {"metadata": {}, "content": {"code": code}})
    assert closed == ["one"]


def test_what_no_cell_shows_replaces_none(closed: list[str]) -> None:
    for number in range(3):
        opened(partial(closed.append, str(number)), {})
    assert closed == []


def test_the_oldest_go_where_many_are_open(closed: list[str]) -> None:
    for number in range(MOST_OPEN + 2):
        opened(partial(closed.append, str(number)), {"metadata": {"cellId": str(number)}})
    assert closed == ["0", "1"] and len(open_panels._open) == MOST_OPEN
    opened(partial(closed.append, "2 again"), {"metadata": {"cellId": "2"}})
    assert closed == ["0", "1", "2"], "its own place is free: nobody else has to go"
