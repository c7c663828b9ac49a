"""The static result tells the whole story where a saved notebook is shown by somebody who trusts nobody."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from html import unescape
from typing import Any, Final

import numpy as np
import pytest
from bleach.css_sanitizer import CSSSanitizer
from bleach.sanitizer import Cleaner

from gpu_doctor import report
from gpu_doctor.report.panel import PanelInput, state
from gpu_doctor.report.sections import Reported
from gpu_doctor.report.trials import MOST_DRAWN
from gpu_doctor.trials import knobs
from tests.support.html_page import Page
from tests.support.trial_parts import fix, plan, searched, swept, treated

# JupyterLab's lists are those of its `packages/apputils/src/sanitizer.ts` as it was for most of 4.x, as far as a report
# could use them; 4.6.6 keeps flex and grid as well. GitHub does not publish the lists of its notebook viewer: taken are
# those of its `html-pipeline`, which keep no style, no class and no `data:`. What is right under them is right under
# wider ones.
_TEXT: Final = ("b", "br", "code", "div", "em", "i", "p", "pre", "s", "small", "span", "strong", "sub", "sup")
_LISTS: Final = ("details", "summary", "li", "ol", "ul")
_TABLES: Final = ("table", "tbody", "td", "tfoot", "th", "thead", "tr")
TAGS: Final = frozenset((*_TEXT, *_LISTS, *_TABLES, "img"))
"""Kept by both."""
LAB_PROPERTIES: Final = frozenset(
    f"{side}{rest}"
    for side, rests in {
        "background": ("", "-color"),
        "border": ("", "-bottom", "-collapse", "-color", "-left", "-radius", "-right", "-spacing", "-style", "-top"),
        "font": ("", "-family", "-size", "-style", "-weight"),
        "margin": ("", "-bottom", "-left", "-right", "-top"),
        "max": ("-height", "-width"),
        "min": ("-height", "-width"),
        "overflow": ("", "-wrap", "-x", "-y"),
        "padding": ("", "-bottom", "-left", "-right", "-top"),
        "text": ("-align", "-decoration", "-indent", "-overflow", "-transform"),
        **dict.fromkeys(("color", "display", "float", "height", "line-height", "opacity", "table-layout"), ("",)),
        **dict.fromkeys(("vertical-align", "visibility", "white-space", "width", "word-break"), ("",)),
    }.items()
    for rest in rests
)
"""What it keeps of a style; `font-variant-numeric` is not among it in 4.6.6 either."""
GITHUB_ATTRIBUTES: Final = frozenset(
    ["align", "alt", "border", "colspan", "height", "open", "rowspan", "scope", "src", "title", "valign", "width"]
)


def by_jupyterlab(html: str) -> str:
    """As an untrusted notebook is shown."""
    attributes = {"*": ["class", "style", "title"], "img": ["alt", "height", "src", "width"], "details": ["open"]}
    css = CSSSanitizer(allowed_css_properties=LAB_PROPERTIES)
    return _cleaned(html, attributes, ("http", "https", "data"), css)


def by_github(html: str, images: bool = False) -> str:
    """Without any style.

    Args:
        images: keep those that lie in their address, as its notebook viewer may.
    """
    return _cleaned(html, {"*": sorted(GITHUB_ATTRIBUTES)}, ("http", "https", *(["data"] if images else [])))


def _cleaned(html: str, attributes: dict[str, list[str]], protocols: Iterable[str], css: Any = None) -> str:
    kept = frozenset(protocols)
    cleaner = Cleaner(tags=TAGS, attributes=attributes, protocols=kept, css_sanitizer=css, strip=True)
    return str(cleaner.clean(html))


LOST_IN_LAB = {"flex", "flex-wrap", "justify-content", "font-variant-numeric"}
"""Of our styles, the first three by older ones: figures are not as straight, what stands side by side is narrower."""


@pytest.fixture(scope="module")
def told() -> PanelInput:
    """After a run, three trials, a treatment, a sweep and a search for the largest batch."""
    return replace(treated(), sweep=swept(), largest=searched())


@pytest.fixture(scope="module")
def static(told: PanelInput) -> str:
    return of(told)


def of(told: PanelInput, **other: Any) -> str:
    assert told.diagnosis is not None
    given: dict[str, Any] = {"trials": told.trials, "plan": told.plan, "sweep": told.sweep, "largest": told.largest}
    return report.html(Reported(told.diagnosis, told.recordings, told.effects, **{**given, **other}))


def words(html: str) -> str:
    return " ".join(Page(html).text.split())


def properties(html: str) -> set[str]:
    styles = re.findall(r'style="([^"]*)"', html) + re.findall(r"style='([^']*)'", html)
    return {one.partition(":")[0].strip() for style in styles for one in style.split(";") if one.strip()}


def test_jupyterlab_keeps_every_word_every_picture_and_nearly_every_style(static: str) -> None:
    left = by_jupyterlab(static)
    assert words(left) == words(static)
    assert Page(left).alts == Page(static).alts
    assert left.count("data:image/svg+xml;base64,") == static.count("data:image/svg+xml;base64,")
    assert properties(static) - properties(left) == LOST_IN_LAB
    assert 'class="gpu-doctor-static"' in left, "its script finds it by that"


@pytest.mark.parametrize("images", [True, False])
def test_github_keeps_every_word_without_any_style(static: str, images: bool) -> None:
    left = by_github(static, images)
    assert words(left) == words(static)
    assert "style=" not in left and "class=" not in left
    assert all(f'alt="{alt}"' in left for alt in set(Page(static).alts))
    assert left.count("<details") == left.count("<summary") > 0 and left.count("<table") == static.count("<table")
    wide = re.findall(r'<img[^>]* width="[^>]*>', left)
    assert wide and all(' height="' in one for one in wide), "a frame without a picture stays small"
    assert ("data:" in left) is images


@pytest.mark.parametrize("sanitised", [by_jupyterlab, by_github])
def test_what_is_left_reads_in_the_order_of_the_panel_and_says_what_it_says(
    told: PanelInput, static: str, sanitised: Any
) -> None:
    left, live = words(sanitised(static)), state(told, knobs.KNOBS)
    rows = [[cell["text"] for cell in row] for row in live["table"]["rows"]]
    in_order = [
        live["header"]["machine"],
        live["verdict"]["text"],
        live["verdict"]["advice"]["text"],
        "Anatomy of a step",
        *(f"{one['label']} {one['time']}" for one in live["anatomy"]["segments"]),
        live["plan"]["sentence"],
        live["sweep"]["sentence"],
        live["largest"]["sentence"],
        *(row[1] for row in rows),
        live["findings"][0]["rule"],
    ]
    at = 0
    for one in (" ".join(one.split()) for one in in_order):
        found = left.find(one, at)
        assert found >= 0, (one, left[at : at + 300])
        at = found
    for row in rows:
        for cell in row:
            assert " ".join(cell.split()) in left, cell


def test_bold_survives_where_styles_do_not(told: PanelInput, static: str) -> None:
    verdict = state(told, knobs.KNOBS)["verdict"]["text"]
    assert verdict in [unescape(one) for one in re.findall("<b>([^<]*)</b>", by_github(static))]


def test_it_is_small(static: str) -> None:
    assert len(static.encode()) < 100_000


def test_it_never_takes_more_than_150_kb_and_says_what_it_goes_without(told: PanelInput) -> None:
    """Thirty trials, eight GPUs of noise for ten minutes, and a cell of 400 lines that is changed in each."""
    base, times = told.recordings[0], np.arange(0, 600, 0.5)
    noise = np.random.default_rng(0).random(len(times))
    series = tuple(
        replace(one, metric=replace(one.metric, device=i), times_s=times, values=noise * 100)
        for one in base.series
        for i in range(8)
    )
    many: dict[str, Any] = {
        "effects": tuple(told.effects[i % 2] for i in range(30)),
        "trials": tuple(told.trials[i % 2] for i in range(30)),
    }
    text = "".join(f"    value_{i} = compute_something(i, {i})\n" for i in range(400))
    treated = plan(many["effects"], fix=fix(text, text.replace("compute", "do")))
    large = of(replace(told, recordings=(replace(base, series=series),), plan=treated, **many))
    assert len(large.encode()) < 150_000
    said = re.search(r"Left out here.*?: ([\w, ]+)\.", words(large))
    assert said is not None and "trials" in said[1]
    assert "trial 30" in words(large) and "waits for data" in words(large)


def test_only_the_newest_trials_are_drawn(told: PanelInput) -> None:
    many: dict[str, Any] = {"effects": (told.effects[0],) * 12, "trials": (told.trials[0],) * 12}
    html = of(replace(told, plan=None, sweep=None, largest=None, **many))
    assert len([alt for alt in Page(html).alts if alt.startswith("Losses of trial")]) == MOST_DRAWN
    assert all(f"trial {number}, num_workers=4" in words(html) for number in range(1, 13))
