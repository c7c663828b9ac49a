"""A deep look in the panel and the static result: the operators that matter, each with its bar, module and line."""

from __future__ import annotations

from gpu_doctor import formatting
from gpu_doctor.formatting import clean
from gpu_doctor.labels import LABELS, PHASE_LABELS
from gpu_doctor.report.contract import LookShown, Size
from gpu_doctor.report.searches import size_bars, titled
from gpu_doctor.trials import Look, Operator


def look_shown(look: Look) -> LookShown:
    """The look as the panel draws it."""
    clock = "of the GPU" if look.on_gpu else "of the CPU"
    steps = formatting.count(look.steps, "step")
    sentence = f"time {clock} by operator, in {steps} under torch.profiler, {formatting.seconds(look.step_s)} each"
    if look.tensor_cores is not None:
        sentence += f"; {formatting.share(look.tensor_cores)} of the kernels' time on tensor cores"
    return LookShown(sentence, tuple(_row(one) for one in look.operators), _notes(look))


def look_html(look: Look) -> str:
    """The look as a section of the static result; survives notebook sanitizers."""
    said = look_shown(look)
    return titled(LABELS.look, said.sentence, size_bars(said.operators), said.notes)


def _row(one: Operator) -> Size:
    where = ", ".join(part for part in (one.module, one.place) if part)
    line = f"{where}: {one.text}" if one.text else where
    said = "; ".join(part for part in (formatting.count(round(one.calls), "call"), line, one.kernel) if part)
    figures = f"{formatting.share(one.share)} {formatting.seconds(one.seconds)}"
    return Size(clean(one.name, 60), figures, clean(said, 300), round(min(one.share, 1.0), 4), True)


def _notes(look: Look) -> tuple[str, ...]:
    apart = [
        f"{PHASE_LABELS[one.phase]}: {formatting.share(one.ours)} here, {formatting.share(one.profiler)} by the "
        f"profiler: {one.why}."
        for one in look.phases
        if one.why
    ]
    return (*apart, *(clean(one, 600) for one in look.notes))
