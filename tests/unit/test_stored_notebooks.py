"""A notebook is committed with what its cells gave, and with nothing that only their kernel or machine could use."""

from __future__ import annotations

import json
from typing import Any

import nbformat
import pytest

from tests.support.stored_notebooks import RESULT, VIEW, complaints
from tools import course

STATIC = {"output_type": "display_data", "data": {"text/html": [f'<div class="{RESULT}">\n', "</div>"]}, "metadata": {}}
LIVE = {"output_type": "display_data", "data": {VIEW: {"model_id": "a"}, "text/plain": "Panel()"}, "metadata": {}}
SVG = {"text/html": '<img src="data:image/svg+xml;base64,AA/tmp/BB">', "image/png": "/usr/AA"}


def cell(source: str = "1", *outputs: dict[str, Any], count: int | None = 1) -> dict[str, Any]:
    found = {"cell_type": "code", "id": "a", "metadata": {}, "source": source}
    return {**found, "outputs": list(outputs), "execution_count": count}


def stream(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def said(*cells: dict[str, Any], **metadata: Any) -> list[str]:
    return complaints(json.dumps({"cells": cells, "metadata": metadata}))


def test_one_that_was_run_is_as_it_should_be() -> None:
    doctored = cell("%%gpudoctor\nfor _ in loader: ...", STATIC, count=2)
    pictures = cell("plot()", {"output_type": "display_data", "data": SVG, "metadata": {}})
    words = {"cell_type": "markdown", "source": "Look into /home/you.", "metadata": {}}
    assert said(words, doctored, pictures, cell("1", stream("loss 0.3, images/a.png, </usr>"))) == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (cell(count=None), "was not run"),
        (
            cell("1 / 0", {"output_type": "error", "ename": "ZeroDivisionError", "evalue": "by zero"}),
            "ZeroDivisionError",
        ),
        (cell("1", stream("UserWarning: old", "stderr")), "stderr: UserWarning: old"),
        (cell("%%gpudoctor", STATIC, LIVE), "live widget"),
        (cell("%%gpudoctor", stream("loss")), "no result"),
        (cell("gpu_doctor.replay(path)"), "no result"),
        (cell("1", stream("wrote /tmp/ab12/x.npz")), "/tmp/ab12/x.npz"),
        (cell("1", {"output_type": "execute_result", "data": {"text/plain": ["'/home/me/x'"]}}), "/home/me/x"),
    ],
)
def test_what_is_wrong_with_a_cell_is_said(wrong: dict[str, Any], words: str) -> None:
    (one,) = said(cell(), wrong)
    assert one.startswith("Code cell 2 ") and words in one


def test_what_is_stored_has_no_widget_and_no_version_of_the_python_that_ran_it() -> None:
    language = {"name": "python", "version": "3.11.9"}
    metadata = {"widgets": {"state": {}}, "language_info": language}
    ran = {"cells": [cell("%%gpudoctor", LIVE, STATIC)], "metadata": metadata}
    text = course.stored(nbformat.from_dict({**ran, "nbformat": 4, "nbformat_minor": 5}))
    assert complaints(text) == [] and "3.11.9" not in text
    assert text.endswith("}\n") and not text.endswith("\n\n")
