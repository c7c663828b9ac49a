"""The summary as a picture: the words of the report, the bar in its colours and lengths, with whatever font."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from PIL import Image, ImageFont

from gpu_doctor import report
from gpu_doctor.report import picture
from gpu_doctor.report.sections import Reported
from gpu_doctor.report.svg import PHASE_COLOURS
from gpu_doctor.report.words import anatomy_rows
from tests.support.html_page import Page, pictures
from tests.support.trial_parts import treated

TOLD = treated()
assert TOLD.diagnosis is not None
DIAGNOSIS = TOLD.diagnosis


def png(**other: Any) -> bytes:
    given = {"effects": TOLD.effects, "trials": TOLD.trials, "plan": TOLD.plan, **other}
    return report.png(Reported(DIAGNOSIS, TOLD.recordings, given.pop("effects"), **given))


def opened(drawn: bytes) -> Any:
    return Image.open(io.BytesIO(drawn)).convert("RGB")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every piece of text that is drawn."""
    found: list[str] = []
    put = picture._Sheet.put

    def noted(sheet: Any, x: float, y: float, text: str, *style: Any, **more: Any) -> None:
        found.append(text)
        assert x >= 0 and x + sheet.length(text, *style[:2]) <= picture.WIDTH, text
        put(sheet, x, y, text, *style, **more)

    monkeypatch.setattr(picture._Sheet, "put", noted)
    return found


def test_it_says_what_the_static_result_says(written: list[str]) -> None:
    png()
    html = report.html(Reported(DIAGNOSIS, TOLD.recordings, TOLD.effects, trials=TOLD.trials, plan=TOLD.plan))
    text = report.text(Reported(DIAGNOSIS, (TOLD.recordings[-1],), TOLD.effects, trials=TOLD.trials, plan=TOLD.plan))
    labels = " ".join(re.findall(">([^<>]+)</text>", "".join(pictures(html))))
    there = set(f"{Page(html).text} {text} {labels}".split())
    assert {word for one in written for word in one.split()} <= there
    said = " ".join(" ".join(written).split())
    assert DIAGNOSIS.verdict in said
    for words in ("NVIDIA H200", "Try: Load with 3 workers", "data wait 30.0 ms 75 %", "3.33x (2.9-3.6)", "trial 3"):
        assert words in said


def test_the_bar_has_the_colours_and_lengths_of_its_phases() -> None:
    image = opened(png())
    wide = image.width - 2 * 16 * picture.FINE
    assert image.width == picture.WIDTH * picture.FINE
    wait = tuple(bytes.fromhex(PHASE_COLOURS["data_wait"][1:]))
    row = next(
        y for y in range(image.height) if sum(near(image.getpixel((x, y)), wait) for x in range(40, 400, 40)) == 9
    )
    row += 4  # above its letters
    for phase, share, _ in anatomy_rows(DIAGNOSIS.vitals):
        colour = tuple(bytes.fromhex(PHASE_COLOURS[phase][1:]))
        length = sum(near(image.getpixel((x, row)), colour) for x in range(image.width))
        assert length == pytest.approx(share * wide, abs=6), phase


def near(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(abs(a - b) <= 6 for a, b in zip(one, other, strict=True))


def test_it_is_small_and_one_run_needs_no_table(written: list[str]) -> None:
    assert len(png()) < 100_000
    written.clear()
    assert len(png(effects=(), trials=(), plan=None)) < 100_000
    assert "settings" not in written


def test_with_many_trials_the_newest_are_shown(written: list[str]) -> None:
    png(effects=TOLD.effects * 10, trials=(), plan=None)
    assert "trial 30" in written and "trial 1" not in written and "baseline" in written
    assert f"and {30 + 1 - picture.MOST_ROWS} earlier trials" in written


def test_a_machine_without_fonts_draws_it_as_well(monkeypatch: pytest.MonkeyPatch, written: list[str]) -> None:
    usual = ImageFont.truetype

    def none_by_name(font: Any, *size: Any, **more: Any) -> Any:
        if isinstance(font, str):
            raise OSError("cannot open resource")
        return usual(font, *size, **more)

    monkeypatch.setattr(ImageFont, "truetype", none_by_name)
    for cache in (picture._font, picture._has_few_letters):
        cache.cache_clear()
    try:
        assert opened(png()).width == picture.WIDTH * picture.FINE
        assert picture._plain("0.7 → 0.8 ▲\u00a0faster") == "0.7 -> 0.8 + faster"
    finally:
        for cache in (picture._font, picture._has_few_letters):
            cache.cache_clear()


def test_a_word_without_an_end_is_cut(written: list[str]) -> None:
    told: dict[str, Any] = {
        "result": "",
        "todo": (),
        "accent": "#999999",
        "step": "",
        "phases": (),
        "compared": None,
        "table": (),
    }
    picture.drawn(picture.Summary(head=["x" * 500], verdict="y " * 400, foot="\u4e2d" * 300, **told))
    assert any(one.startswith("xxx") and one.endswith("...") for one in written)
