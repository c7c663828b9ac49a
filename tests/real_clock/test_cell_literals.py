"""Literals of a cell are tried, saved and written back, by a trial, a sweep and the magic, in loops that really run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.testing.globalipapp import start_ipython
from IPython.utils.capture import capture_output

import gpu_doctor
from gpu_doctor.recording import describe
from gpu_doctor.report import as_text
from gpu_doctor.report.sections import Reported

LOOP = """
import torch
x, model = torch.randn(320, 8), torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(0, len(x), size):
    optimizer.zero_grad()
    model(x[i:i + size]).sum().backward()
    optimizer.step()
"""


FORMS = [
    ("a = (16, 2)", "a", (64, 2), "a[0]", "a = (64, 2)"),
    ("a = 16,  2", "a", (64, 2), "a[0]", "a = 64,  2"),
    ("a = 16,  2", "a", (64,), "a[0]", "a = (64,)"),
    ("a = [\n  16,  # é\n  2]", "a", [64, 2], "a[0]", "a = [\n  64,  # é\n  2]"),
    ("'é'; a = {'é': 16, 'b': (1,None)} # c", "a", {"é": 64, "b": (1, None)}, "a['é']", None),
    ("a = {16}  # one", "a", {64}, "max(a)", "a = {64}  # one"),
    ("a = None", "a", 64, "a or 16", "a = 64"),
    ("a = None", "a", "(64,)", "(a or [16])[0]", "a = (64,)"),
    ("a = None", "a", "x" * 64, "len(a or '0123456789abcdef')", f"a = '{'x' * 64}'"),
    ("lr, a = 1e-3, 16  # both", "a", 64, "a", "lr, a = 1e-3, 64  # both"),
    ("lr, a = [1e-3, (16, 1)]", "a", (64, 1), "a[0]", "lr, a = [1e-3, (64, 1)]"),
    ("(lr, [b, a]), c = (1e-3, (2, 16)), int('3')", "a", 64, "a", "(lr, [b, a]), c = (1e-3, (2, 64)), int('3')"),
    ("a = b = 16", "a", 64, "min(a, b)", "a = b = 64"),
    ("a = b = 16", "b", 64, "min(a, b)", "a = b = 64"),
    ("a: 'tuple[int, ...]' = (16,)", "a", (64,), "a[0]", "a: 'tuple[int, ...]' = (64,)"),
    ("a = -16", "a", -64, "-a", "a = -64"),
    ("a = b'0123456789abcdef'", "a", b"x" * 64, "len(a)", f"a = b'{'x' * 64}'"),
    ("a = 16+1j", "a", 64 + 1j, "int(a.real)", "a = 64 + 1j"),
]


def sizes_of(recording: gpu_doctor.Recording) -> set[float]:
    return set(recording.steps.samples.tolist())


@pytest.mark.parametrize(("header", "name", "value", "size", "after"), FORMS)
def test_a_literal_of_any_form_is_tried_saved_and_written_into_the_cell(
    header: str, name: str, value: Any, size: str, after: str | None, tmp_path: Path
) -> None:
    cell = f"{header}\nsize = {size}" + LOOP
    case = gpu_doctor.case(cell)
    assert sizes_of(case.run(steps=3)) == {16}
    effect = case.trial({f"vary.{name}": value}, steps=3, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    before, tried = case.trials[-1]
    assert (sizes_of(before), sizes_of(tried)) == ({16}, {64})
    again = gpu_doctor.load(tried.save(tmp_path / "run.npz"))
    assert dict(again.settings) == dict(tried.settings) and describe(again.settings) == describe(tried.settings)
    assert json.loads(json.dumps(effect.to_dict()))["settings"] == dict(effect.settings)
    expected = (header.replace("16", "64") if after is None else after) + cell[len(header) :]
    # What was loaded, where a source is but a text, is placed as what was tried.
    for settings in (effect.settings, again.settings):
        fix = case.fix(settings, [])
        assert fix.complete and fix.cells[0].after == expected
    assert sizes_of(gpu_doctor.case(fix.cells[0].after).run(steps=3)) == {64}
    assert sizes_of(case.run(again.settings, steps=3)) == {64}
    line: dict[str, Any] = {}
    exec(case.code(again.settings), line)
    written: dict[str, Any] = {}
    exec(after or header.replace("16", "64"), written)
    assert line[name] == written[name] and line.get("b", written.get("b")) == written.get("b")


@pytest.mark.slow
def test_a_sweep_takes_collections_and_its_words_are_escaped() -> None:
    case = gpu_doctor.case("a = (16, '<b>')\nsize = a[0]" + LOOP)
    recording = case.run({"vary.a": (32, "<i>")}, steps=3)  # type: ignore[dict-item]
    html = as_text.html(Reported(gpu_doctor.diagnose(recording), (recording,)))
    assert "vary.a=(32, &#x27;&lt;i&gt;&#x27;)" in html and "<i>" not in html
    found = case.sweep({"vary.a": [(16, "<b>"), (64, "<b>")]}, steps=3, seconds=2)  # type: ignore[list-item]
    assert [one.settings for one in found.effects] == [{"vary.a": "(16, '<b>')"}, {"vary.a": "(64, '<b>')"}]
    assert sizes_of(case.trials[-1][1]) == {64}


@pytest.fixture
def shell() -> InteractiveShell:
    start_ipython()
    shell: InteractiveShell = InteractiveShell.instance()
    shell.run_line_magic("reload_ext", "gpu_doctor")
    return shell


def test_the_magic_takes_them_in_quotation_marks(shell: InteractiveShell) -> None:
    options = "--vary \"opts={'size': 16},{'size': 64}\" --set \"vary.pair=(64, 'x y')\" --vary clip=None,3"
    cell = "opts, clip, pair = {'size': 16}, None, (16, '')\nsize = max(opts['size'], pair[0])" + LOOP
    with capture_output() as said:
        shell.run_cell(f"%%gpudoctor --no-view {options}\n{cell}")
    case = gpu_doctor.last_case()
    assert not said.stderr and case is not None, said.stderr
    assert shell.user_ns["pair"] == (64, "x y") and sizes_of(case.recordings[-1]) == {64}
    assert "vary.opts            as written {'size': 16}" in repr(shell.run_line_magic("gpudoctor", "knobs"))
    case.trial({"vary.opts": {"size": 32}}, steps=3, pairs=1)  # type: ignore[dict-item]
    assert sizes_of(case.trials[-1][1]) == {32}
