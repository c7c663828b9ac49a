"""What `--price` adds to the headline: what a measured loss costs an hour, and what a verified cure saves."""

from __future__ import annotations

from dataclasses import replace

import pytest

import gpu_doctor
from gpu_doctor.diagnosis import Diagnosis, diagnose
from gpu_doctor.diagnosis.rules.rule import Kind
from gpu_doctor.diagnosis.words import hourly_loss
from gpu_doctor.formatting import dollars, share
from gpu_doctor.report import html, text
from gpu_doctor.report.panel import state
from gpu_doctor.report.proved import proved
from gpu_doctor.report.sections import Reported
from gpu_doctor.trials import knobs
from gpu_doctor.trials.compare.effect import Effect
from tests.support.panel_parts import shown
from tests.support.recordings import starved
from tests.support.trial_parts import WORKERS

FOUR = Effect(WORKERS, {}, 2.87, 2.71, 3.02, "faster", loss_verdict="same", loss_drift=0.0)


def diagnosed(cost: float | None, kind: Kind = "lost") -> Diagnosis:
    found = diagnose(starved())
    first = replace(found.findings[0], cost_share=cost, kind=kind)
    return replace(found, findings=(first, *found.findings[1:]))


def test_a_measured_loss_is_priced_in_dollars_an_hour() -> None:
    assert hourly_loss(diagnosed(0.71), 2.5) == "71 % of $2.50 an hour: $1.77 an hour lost."
    assert "at most $1.77" in hourly_loss(diagnosed(0.71, "at-most"), 2.5)


@pytest.mark.parametrize(
    ("found", "price"), [(diagnosed(0.71), None), (diagnosed(None), 2.5), (replace(diagnosed(0.7), findings=()), 2.5)]
)
def test_nothing_is_said_without_a_price_or_a_measured_share(found: Diagnosis, price: float | None) -> None:
    assert hourly_loss(found, price) == ""


def test_text_page_and_panel_say_the_same() -> None:
    one = starved()
    found = diagnose(one)
    said = hourly_loss(found, 2.5)
    assert said.startswith(share(found.findings[0].cost_share))
    told = Reported(found, (one,), price=2.5)
    panel = state(shown(one, price=2.5), knobs.KNOBS)
    assert said in " ".join(text(told).split()) and said in html(told) and panel["verdict"]["text"].endswith(said)
    without = Reported(found, (one,))
    assert "$" not in text(without) + html(without) + state(shown(one), knobs.KNOBS)["verdict"]["text"]


def test_only_what_is_verified_here_saves_money() -> None:
    result = proved((FOUR,), price=2.5)
    assert result is not None and result.text.endswith(": saves $1.58 to $1.67 of every $2.50")
    unsure = proved((FOUR,), picking=True, price=2.5)
    elsewhere = proved((replace(FOUR, elsewhere=True),), price=2.5)
    assert unsure is not None and elsewhere is not None and "$" not in unsure.text + elsewhere.text


def test_small_amounts_keep_their_figures() -> None:
    assert [dollars(one) for one in (0.0425, 0.5, 1234.5)] == ["$0.043", "$0.50", "$1,234.50"]


@pytest.mark.parametrize("price", [0, -1.0, float("nan"), float("inf"), "2.5", True])
def test_what_is_no_price_is_refused(price: float) -> None:
    with pytest.raises(ValueError, match=r"price=2\.5"):
        gpu_doctor.case("x = 1", price=price)
