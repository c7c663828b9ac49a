"""Shows a deep look in the panel and the static result: the costly operators, each with its bar, module and line."""

from __future__ import annotations

from gpu_doctor import formatting
from gpu_doctor.formatting import clean
from gpu_doctor.labels import LABELS, PHASE_LABELS
from gpu_doctor.report.contract import LookShown, Size
from gpu_doctor.report.searches import size_bars, titled
from gpu_doctor.trials import Look, Operator


def look_shown(look: Look) -> LookShown:
    """Converts a deep look to plain data for the panel."""
    clock = "of the GPU" if look.on_gpu else "of the CPU"
    steps = formatting.count(look.steps, "step")
    sentence = f"time {clock} by operator, in {steps} under torch.profiler, {formatting.seconds(look.step_s)} each"
    if look.tensor_cores is not None:
        sentence += f"; {formatting.share(look.tensor_cores)} of the kernels' time on tensor cores"
    return LookShown(sentence, tuple(_row(operator) for operator in look.operators), _notes(look))


def look_html(look: Look) -> str:
    """Renders a deep look as a section of the static result, in HTML that survives notebook sanitizers."""
    shown = look_shown(look)
    return titled(LABELS.look, shown.sentence, size_bars(shown.operators), shown.notes)


def _row(operator: Operator) -> Size:
    where = ", ".join(part for part in (operator.module, operator.place) if part)
    line = f"{where}: {operator.text}" if operator.text else where
    more = "; ".join(part for part in (formatting.count(round(operator.calls), "call"), line, operator.kernel) if part)
    figures = f"{formatting.share(operator.share)} {formatting.seconds(operator.seconds)}"
    return Size(clean(operator.name, 60), figures, clean(more, 300), round(min(operator.share, 1.0), 4), True)


def _notes(look: Look) -> tuple[str, ...]:
    differing = [
        f"{PHASE_LABELS[phase.phase]}: {formatting.share(phase.ours)} here, {formatting.share(phase.profiler)} by the "
        f"profiler: {phase.why}."
        for phase in look.phases
        if phase.why
    ]
    return (*differing, *(clean(note, 600) for note in look.notes))
