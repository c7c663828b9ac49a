"""Each GPU rule's patient: what the diagnosis says of the sick loop, and what its cure gains by the bare clock.

The sick and the cured loop are timed in a process that knows nothing of gpu_doctor, from synchronised start to
synchronised end, in turns. The diagnosis is made in another process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from benchmarks.gpu.kept import Row, Stage, row
from benchmarks.gpu.lines import answers
from benchmarks.gpu.patient import Patient
from benchmarks.gpu.patients import HEALTHY, LEFT_OUT, PATIENTS
from benchmarks.gpu.rows_for import rows_for

WITHIN: Final = 0.20
"""So near to the truth a forecast has to be (CATALOGUE's aim)."""
HEALTHY_BAR: Final = 0.10
"""So dear no finding may be on the healthy loop."""
WATCHED_STEPS: Final = 300
"""NVML tells its utilisation a few times a second: the run must last."""
BARE_STEPS: Final = 80
TURNS: Final = 4
FEW: Final = 14
"""Steps in the rehearsal,"""
REHEARSED_OF: Final = 3
"""which has one of so many diagnosed, and all timed: that runs every cell."""


def run(stage: Stage) -> None:
    """First all diagnoses, since they say what is to be timed, then all cures; then the simulated patients."""
    sizes = dict(stage.rows.get("size of the net", {}).get("figures", {}))
    if not sizes:
        sizes = {"rows": rows_for(stage.device)}
        stage.keep("size of the net", row(f"{sizes['rows']} rows a step", None, **sizes))
    diagnosed(stage, sizes["rows"])
    cured(stage, sizes["rows"])
    for rules, why in LEFT_OUT.items():
        stage.row(f"left out: {rules}", partial(row, why))
    if stage.rehearse:
        simulated(stage)


def simulated(stage: Stage) -> None:
    """The clinic's patients on the simulated device, in virtual time: the truth is known there."""
    from tests.support.clinic import card_cells, copy_cells, device_cells, kernel_cells

    for cells in (device_cells, copy_cells, card_cells, kernel_cells):
        for one in cells.CELLS:
            stage.row(f"simulated: {one.name}", partial(played, one))


def played(patient: Any) -> Row:
    """The diagnosis of a simulated patient, and its forecast beside the cured loop's time."""
    from tests.support.clinic.physician import examine

    visit = examine(patient, "gpu")
    if visit.error:
        raise RuntimeError(visit.error)
    listed = ", ".join(f"{rule} {100 * cost:.0f} %" for rule, cost in visit.findings[:3]) or "nothing found"
    off = visit.error_share
    told = "" if off is None else f"; {visit.real:.2f}x, foretold {visit.predicted:.2f}x, {100 * off:+.0f} %"
    good = visit.rule_right and visit.class_right and (off is None or abs(off) <= WITHIN)
    return row(f"{visit.told_class}: {listed}{told}", good, predicted=visit.predicted, real=visit.real)


def diagnosed(stage: Stage, rows: int) -> None:
    """A row a patient: whether its trouble is named."""
    steps = stage.size(WATCHED_STEPS, FEW)
    asked = PATIENTS[:: REHEARSED_OF if stage.rehearse else 1]
    waiting = [one for one in asked if diagnosis_of(one) not in stage.rows]
    texts = [
        {"key": one.key, "before": one.above(stage.device, steps, rows), "sick": one.sick, "wanted": one.wanted}
        for one in waiting
    ]
    _kept(stage, "watched", waiting, texts, diagnosis_of, lambda one, found: judged(one, found, stage.rehearse))


def cured(stage: Stage, rows: int) -> None:
    """A row a patient that can be cured: what that gains, and how near the forecast came."""
    untold: dict[str, Any] = {"settings": {}, "predicted": None} if stage.rehearse else {}
    told = {one.key: stage.rows.get(diagnosis_of(one), {}).get("figures", untold) for one in PATIENTS}
    waiting = [one for one in PATIENTS if one.cured and cure_of(one) not in stage.rows and told[one.key]]
    texts = []
    steps = stage.size(BARE_STEPS, FEW)
    for one in waiting:
        above = one.above(stage.device, steps, rows)
        better, samples, _ = one.cure(above, told[one.key]["settings"])
        cells = {"before": above, "better": better, "sick": one.sick, "cured": one.cured}
        turns = {"steps": steps, "cured_steps": steps, "turns": stage.size(TURNS, 1), "samples": samples}
        texts.append({"key": one.key, **cells, **turns})
    _kept(stage, "bare", waiting, texts, cure_of, lambda one, found: priced(one, found, told[one.key], stage.rehearse))


def _kept(stage: Stage, module: str, patients: Sequence[Patient], texts: Sequence[Any], name: Any, judge: Any) -> None:
    """Keeps a row a patient out of what a process says of it."""
    by_key = {one.key: one for one in patients}
    folder = stage.out / "patients"
    for found in answers(f"benchmarks.gpu.{module}", texts, stage.device, folder, stage.seconds):
        one = by_key.pop(found["key"])
        if found.get("error"):
            stage.keep(name(one), {"said": found["error"], "good": False, "error": found["error"]})
        else:
            stage.keep(name(one), judge(one, found))
    stage.left += [name(one) for one in by_key.values()]


def diagnosis_of(one: Patient) -> str:
    """The row of its diagnosis."""
    return f"{one.key}: diagnosis"


def cure_of(one: Patient) -> str:
    """The row of its cure."""
    return f"{one.key}: cure"


def judged(one: Patient, found: Mapping[str, Any], rehearse: bool) -> Row:
    """Whether the diagnosis names the trouble first; of the healthy loop, whether nothing is dear."""
    findings: list[list[Any]] = found["findings"]
    if one.rule == HEALTHY:
        good = all(cost < HEALTHY_BAR for _, cost in findings)
    else:
        good = bool(findings) and findings[0][0] in one.wanted
    listed = ", ".join(f"{rule} {100 * cost:.0f} %" for rule, cost in findings[:4]) or "nothing found"
    named = (
        "" if good or one.rule == HEALTHY else f"; {one.rule} is {'' if one.rule in found['named'] else 'not '}named"
    )
    silent = "".join(f" ({rule} silent: {why})" for rule, why in found["silent"].items())
    klass = f"{found['bottleneck']}" + ("" if found["bottleneck"] == one.klass else f", not {one.klass}")
    return row(
        f"{klass}: {listed}{named}{silent}", None if rehearse else good, wanted=one.wanted, **_without_key(found)
    )


def priced(one: Patient, found: Mapping[str, Any], told: Mapping[str, Any], rehearse: bool) -> Row:
    """What the cure gains, beside the forecast; where none was made of this cure, that is said."""
    _, _, same = one.cure("", told["settings"])
    predicted, real = (told["predicted"] if same else None), found["real"]
    low, high = min(found["real_all"]), max(found["real_all"])
    said = f"{found['sick_ms']:.2f} to {found['cured_ms']:.2f} ms a step: {real:.2f}x ({low:.2f} to {high:.2f})"
    if not predicted:
        return row(f"{said}; no forecast of this cure", None, **_without_key(found))
    error = predicted / real - 1.0
    most = "at most " if told["at_most"] else ""
    good = abs(error) <= WITHIN or (bool(most) and error > 0.0 and (told["predicted_low"] or 1.0) <= real)
    said += f"; foretold {most}{predicted:.2f}x, {100 * error:+.0f} %"
    return row(said, None if rehearse else good, predicted=predicted, error_share=error, **_without_key(found))


def _without_key(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "key"}
