"""The contract between kernel and page: what is sent has the declared form, and the page's declarations are its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.report.contract import PanelState, as_json
from gpu_doctor.report.panel import Notice, PanelInput, Progress, fix_shown, state
from gpu_doctor.trials import knobs
from tests.support.declared import differences
from tests.support.panel_parts import shown
from tests.support.recordings import starved
from tests.support.simulated_programs import SIMULATED
from tests.support.trial_parts import BOTH, fix, searched, swept, treated
from tools import typescript
from tools.evaluate.program import Recorded


def in_order(given: PanelInput) -> dict[str, Any]:
    """The state, if it has the declared form."""
    found = state(given, knobs.KNOBS)
    assert list(differences(found, PanelState)) == []
    return found


def test_the_pages_declarations_are_those_of_the_contract() -> None:
    told = "run python -m tools.typescript"
    assert typescript.FILE.read_text(encoding="utf-8") == typescript.declarations(), told


def test_a_state_is_sent_as_declared_before_during_and_after_a_run() -> None:
    in_order(PanelInput())
    in_order(shown(starved(), status="recording"))
    in_order(shown(starved(gpu=True)))
    in_order(shown(starved(steps=2), diagnosis=None))
    progress = Progress(12, 50, 8.4, "round 1, until it is clear: candidate")
    in_order(shown(starved(), status="trial", progress=progress, settings={"num_workers": 2}))
    in_order(shown(starved(settings={"num_workers": 4}), turned={"num_workers": 4}))


@pytest.mark.parametrize("gpu", [True, False])
def test_a_state_with_all_that_trials_find_is_sent_as_declared(gpu: bool) -> None:
    found = in_order(
        treated(
            gpu,
            sweep=swept(),
            largest=searched(),
            fixes={"num_workers=4, amp=bf16": fix_shown(fix(), BOTH)},
            before=(
                Notice("It is put back.", ""),
                Notice("`it` is not.", "bad"),
                Notice("No.", "bad", "network", "Allow"),
            ),
        )
    )
    assert found["plan"]["fix"]["cells"] and found["table"]["details"][-1] and found["largest"]["sizes"]


@pytest.mark.parametrize("program", SIMULATED, ids=lambda program: program.name)
def test_a_state_of_any_trouble_is_sent_as_declared(program: Recorded) -> None:
    recording = program.play()
    in_order(shown(recording, diagnosis=diagnose(recording)))


@dataclass(frozen=True)
class Odd:
    """All kinds."""

    a_share: float
    names: tuple[str, ...]
    pair: tuple[str, int]
    kind: Literal["x", "y"]
    values: Mapping[str, str | int] | None


GOOD = Odd(0.5, ("a",), ("b", 1), "x", {"num_workers": 2})


def test_names_are_written_as_the_page_writes_them_and_values_of_knobs_are_not() -> None:
    sent = as_json(GOOD)
    assert sent == {"aShare": 0.5, "names": ["a"], "pair": ["b", 1], "kind": "x", "values": {"num_workers": 2}}
    assert list(differences(sent, Odd)) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("aShare", one) for one in (float("nan"), float("inf"), np.float64(1), "1", None, True)],
        *[("names", one) for one in ("a", [1], None, ("a",))],
        *[("pair", one) for one in (["b"], [1, "b"], ["b", np.int64(1)])],
        ("kind", "z"),
        *[("values", one) for one in ({1: "a"}, {"a": None}, ["a"])],
    ],
)
def test_what_is_not_as_declared_is_found(name: str, value: Any) -> None:
    assert list(differences({**as_json(GOOD), name: value}, Odd))
