"""Figures as people read them: units, grouping, and nothing measured said as such."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpu_doctor import formatting

NAN = float("nan")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (formatting.number(1840.4), "1\u202f840"),
        (formatting.number(64.23), "64.2"),
        (formatting.number(6.418), "6.42"),
        (formatting.number(0.6423), "0.642"),
        (formatting.number(9.999), "10.0"),
        (formatting.number(99.97), "100"),
        (formatting.number(0.0), "0"),
        (formatting.rate(1840.0), "1\u202f840 samples/s"),
        (formatting.rate(3.5, "steps/s"), "3.50 steps/s"),
        (formatting.count(1, "step"), "1 step"),
        (formatting.count(1204, "step"), "1\u202f204 steps"),
        (formatting.share(0.712), "71 %"),
        (formatting.share(0.0042), "0.4 %"),
        (formatting.share(0.0001), "under 0.1 %"),
        (formatting.share(0.0), "0 %"),
        (formatting.percent(100.0), "100 %"),
        (formatting.seconds(0.0413), "41.3 ms"),
        (formatting.seconds(0.00082), "820 µs"),
        (formatting.seconds(1.2449), "1.24 s"),
        (formatting.seconds(0.99999), "1.00 s"),
        (formatting.seconds(59.99), "1 min"),
        (formatting.seconds(125.0), "2 min 5 s"),
        (formatting.seconds(3780.0), "1 h 3 min"),
        (formatting.clock(12.9), "00:12"),
        (formatting.clock(3723.0), "1:02:03"),
        (formatting.size(3.1 * 2**30), "3.1 GiB"),
        (formatting.size(412 * 2**20), "412 MiB"),
        (formatting.size(1023.9 * 2**20), "1.0 GiB"),
        (formatting.size(12), "12 B"),
        (formatting.factor(2.868), "2.87x"),
        (formatting.factor(12.41), "12.4x"),
        (formatting.forecast(2.868), "2.9x"),
        (formatting.forecast(1.149), "1.15x"),
        (formatting.speedup(2.868, 2.72, 3.04), "2.87x (2.7-3.0)"),
        (formatting.speedup(1.151, 1.112, 1.189), "1.15x (1.11-1.19)"),
        (formatting.speedup(2.79, 2.761, 2.812), "2.79x (2.76-2.81)"),
        (formatting.speedup(2.0), "2.00x"),
        (formatting.speedup(1.96, 1.27, 3.04), "at least 1.27x (1.27-3.0)"),
        (formatting.speedup(14.2, 12.41, 17.9), "at least 12.4x (12.4-17.9)"),
        (formatting.speedup(0.55, 0.41, 0.804), "at most 0.80x (0.41-0.80)"),
        (formatting.speedup(1.5, 0.96, 3.04), "1.50x (0.96-3.0)"),
        (formatting.loss(2.30149), "2.301"),
        (formatting.loss(0.031249), "0.03125"),
        (formatting.loss(NAN), "NaN"),
    ],
)
def test_a_figure_is_said_as_people_read_it(said: str, expected: str) -> None:
    assert said == expected


@pytest.mark.parametrize("value", [None, NAN])
@pytest.mark.parametrize(
    "say",
    [
        formatting.number,
        formatting.rate,
        formatting.percent,
        formatting.seconds,
        formatting.clock,
        formatting.size,
        formatting.factor,
    ],
)
def test_what_was_not_measured_is_said_and_never_zero(say: Callable[[float | None], str], value: float | None) -> None:
    assert say(value) == "not measured"


def test_a_table_cell_may_say_it_shorter() -> None:
    assert formatting.number(None, formatting.DASH) == "-"
    assert formatting.share(None, formatting.DASH) == "-"
    assert formatting.speedup(None) == "-"
    assert formatting.loss(None) == "-"


def test_hostile_text_loses_what_a_terminal_or_an_image_cannot_bear() -> None:
    assert formatting.clean("a\x1b[31mb\x00c\u202ed\ud800e\r\nf") == "a[31mbcde\nf"


def test_endless_text_is_cut() -> None:
    cut = formatting.clean("x" * 10_000_000, 50)
    assert len(cut) == 50
    assert cut.endswith("…")


def test_an_object_that_cannot_be_shown_is_named() -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError

    assert formatting.clean(Broken()) == "<Broken>"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *(("NVIDIA H200", "an NVIDIA H200"), ("RTX 4090", "an RTX 4090"), ("H100", "an H100"), ("A100", "an A100")),
        *(("Tesla T4", "a Tesla T4"), ("GeForce GTX 1080", "a GeForce GTX 1080"), ("T4", "a T4")),
    ],
)
def test_cards_have_the_article_that_is_spoken(name: str, said: str) -> None:
    assert formatting.article(name) == said


def test_a_lower_end_close_to_one_is_printed_finely() -> None:
    ends = [formatting.interval(*one) for one in ((1.07, 4.12), (0.99, 2.46), (1.74, 4.8), (2.71, 3.02), (1.11, 1.19))]
    assert ends == ["1.07-4.1", "0.99-2.5", "1.7-4.8", "2.7-3.0", "1.11-1.19"]
