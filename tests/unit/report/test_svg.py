"""Pictures: valid SVG that says in shapes what the figures say, small whatever the length of the run."""

from __future__ import annotations

import base64
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from gpu_doctor import svg as drawing
from gpu_doctor.recording import PHASES
from gpu_doctor.report.chart import MOST_POINTS, Drawn, Stroke, chart, line_swatch
from gpu_doctor.report.plot_data import thin
from gpu_doctor.svg import PHASE_COLOURS

LINE = Stroke("#0072B2")
SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def test_every_phase_has_a_colour_of_its_own() -> None:
    assert list(PHASE_COLOURS) == [*PHASES, "other", "ours"]
    assert len(set(PHASE_COLOURS.values())) == len(PHASE_COLOURS)


def test_the_anatomy_bar_gives_each_phase_its_width_and_labels_what_has_room() -> None:
    root = parsed(drawing.anatomy({"data_wait": 0.71, "forward": 0.2, "sync": 0.0, "other": 0.09}, width=1000))
    widths = {
        r.get("fill"): float(r.get("width", "0")) for r in root.iter(f"{SVG}rect") if "#" in r.get("fill", "")[:1]
    }
    assert widths == {PHASE_COLOURS["data_wait"]: 710.0, PHASE_COLOURS["forward"]: 200.0, PHASE_COLOURS["other"]: 90.0}
    assert [t.text for t in root.iter(f"{SVG}text")] == ["data wait 71 %", "forward 20 %", "other 9 %"]
    filled = parsed(drawing.anatomy({"forward": 0.3, "backward": 0.3}, width=100)).iter(f"{SVG}rect")
    assert sum(float(r.get("width", "0")) for r in filled if r.get("fill", "").startswith("#")) == 100.0


def test_colour_never_stands_alone() -> None:
    pictures = {drawing.swatch(phase).replace(colour, "") for phase, colour in PHASE_COLOURS.items()}
    assert len(pictures) == len(PHASE_COLOURS)
    lines = {re.sub("#[0-9A-F]{6}", "", line_swatch(Stroke("#0072B2", dash))) for dash in ("", "6 2", "2 2", "8 2 2 2")}
    assert len(lines) == 4


def test_an_image_holds_its_picture_and_says_it_in_words() -> None:
    image = drawing.as_image(drawing.swatch("sync"), 'a "b" <c>\x00', 340)
    data = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', image)
    assert data is not None
    assert base64.b64decode(data[1]).decode() == drawing.swatch("sync")
    assert 'alt="a &quot;b&quot; &lt;c&gt;"' in image
    assert 'width="340"' in image


def test_a_chart_puts_values_where_its_axis_says() -> None:
    x = np.array([0.0, 5.0, 10.0])
    root = parsed(chart([Drawn(x, np.array([0.0, 50.0, 100.0]), LINE)], top=100.0, width=344, height=126))
    path = next(p for p in root.iter(f"{SVG}path") if p.get("stroke-linejoin"))
    # The plot's area is 300 x 100 pixels from (36, 8); a path counts tenths of a pixel.
    assert path.get("d") == "M360 1080h0l1500 -500l1500 -500"
    assert {"0", "50", "100", "5", "10 s"} <= {t.text for t in root.iter(f"{SVG}text")}


def test_a_gap_lifts_the_pen() -> None:
    svg = chart([Drawn(np.arange(4.0), np.array([1.0, np.nan, 1.0, 2.0]), LINE)])
    assert len(re.findall("M[0-9]+ [0-9]+h0", svg)) == 2


@pytest.mark.parametrize(
    "values",
    [np.empty(0), np.array([np.nan]), np.array([0.0]), np.array([np.inf, 1.0]), np.array([1e-9]), np.array([1e12])],
)
def test_any_values_make_a_valid_chart(values: np.ndarray) -> None:
    root = parsed(chart([Drawn(np.arange(float(len(values))), values, LINE)]))
    assert "nan" not in ElementTree.tostring(root).decode()


def test_values_above_the_top_are_cut_there() -> None:
    root = parsed(chart([Drawn(np.arange(3.0), np.array([1.0, 1e6, 1.0]), LINE)], top=2.0))
    numbers = [float(n) for p in root.iter(f"{SVG}path") for n in re.findall(r"M\d+ (\d+)", p.get("d", ""))]
    assert max(numbers) < 1500


def test_thinning_keeps_the_extremes_the_end_and_the_order() -> None:
    x = np.arange(1_000_000.0)
    y = np.sin(x / 1e5)
    y[[123_456, 700_001]] = 9.0, -9.0
    thin_x, thin_y = thin(x, y, MOST_POINTS)
    assert len(thin_x) <= MOST_POINTS + 2
    assert {9.0, -9.0} <= set(thin_y)
    assert thin_x[-1] == x[-1]
    assert (np.diff(thin_x) >= 0).all()


def test_thinning_leaves_a_gap_where_nothing_was_measured() -> None:
    x = np.arange(10_000.0)
    fewer_x, fewer_y = thin(x, np.where((x >= 3000) & (x < 6000), np.nan, 1.0), 200)
    gone = fewer_x[np.isnan(fewer_y)]
    assert len(gone) and ((gone >= 3000) & (gone < 6000)).all()


@pytest.mark.parametrize("n", [0, 1, 4, 200])
def test_a_short_line_is_left_alone(n: int) -> None:
    x = np.arange(float(n))
    assert thin(x, x, 200)[0] is x


def test_a_long_run_is_a_small_picture() -> None:
    y = np.random.default_rng(0).random(1_000_000)
    assert len(chart([Drawn(np.arange(1_000_000.0), y, LINE)])) < 8_000


def test_marks_outside_are_left_out_and_many_are_thinned() -> None:
    line = [Drawn(np.arange(100.0), np.ones(100), LINE)]
    assert chart(line, marks=[-5.0, 50.0, 500.0]).count("dasharray='1 2'") == 1
    assert chart(line, marks=np.linspace(0, 99, 5000).tolist()).count("dasharray='1 2'") <= 40
