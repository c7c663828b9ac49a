"""The page of a rule: found by every spelling, flowing under its headings, its code marked, no markup of others."""

from __future__ import annotations

import pytest

from gpu_doctor.diagnosis.rules.page import explain


def test_explain_knows_spellings() -> None:
    assert "num_workers=0" in str(explain("loader-without-workers"))
    assert str(explain(" Slow_GetItem ")) == str(explain("slow-getitem"))


def test_explain_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="slow-collate"):
        explain("slow-colate")
    with pytest.raises(ValueError, match="The rules are"):
        explain("zzz")
    with pytest.raises(TypeError, match="takes the name of a rule"):
        explain(3)  # type: ignore[arg-type]


def test_a_page_is_escaped() -> None:
    assert "<script" not in explain("slow-getitem")._repr_html_() and "`" in str(explain("slow-getitem"))


def test_a_page_flows_under_its_headings() -> None:
    """A source line's end is no line's end: the browser breaks lines where it is full."""
    html = explain("slow-getitem")._repr_html_()
    before, rest = html.split("<pre")
    code, after = rest.split("</pre>")
    assert ">What it means</div>" in before and "\n" not in before + after
    assert "# sick\n" in code and "# cured\n" in code
    assert "<code>__getitem__</code>" in html and "`" not in html
    assert "Python takes the samples out" in html
