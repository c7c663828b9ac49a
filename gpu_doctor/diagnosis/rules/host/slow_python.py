"""The loop's own Python (logging, metrics, plotting, tokenising) takes time in which nothing trains.

What it means
    Between fetch, forward, backward and optimizer the loop runs code of its own. This rule adds up what remains of
    every step after all measured phases, and names the lines that take it.

Why it costs you
    The device has nothing to do meanwhile, unless the GPU still has work queued.

What to try
    Do it every n steps, move it out of the loop, vectorise it, hand it to another thread or process. What the loss or
    the update needs (augmenting, encoding, averaging weights) cannot be left out: one call for the whole batch or for
    all parameters instead of one for each, or all of the data prepared before the loop.

When to leave it
    When the line is the training itself (a custom update written in Python), or the figure is what you want to see. In
    a loop without an optimizer, lines that read or clear gradients (`p -= lr * p.grad`) or change a parameter's data in
    place (`p.data.add_(...)`) are that update: they are left out of the figure. So is, on a CPU, what the step needs of
    a few operations on whole tensors: torch computes there, not Python.
"""

import re
from dataclasses import replace

from gpu_doctor import formatting
from gpu_doctor.cell import batch_lines, beside_lines, elsewhere_lines, needed_lines, target_lines
from gpu_doctor.diagnosis.forecast.removed_work import without
from gpu_doctor.diagnosis.rules.compute import per_sample_forward
from gpu_doctor.diagnosis.rules.evidence import dearest_lines, joined, library_calls, phases
from gpu_doctor.diagnosis.rules.host.slow_generator import making_lines, making_share
from gpu_doctor.diagnosis.rules.python_pace import pace
from gpu_doctor.diagnosis.rules.rule import RESIDUAL_SHARE, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals import idle
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.lines import part, total
from gpu_doctor.recording import LineCost

NEEDS = ("other_share", "forward_share", "backward_share", "step_wall_s")

LEAST_S = 6e-5
"""Of a step: what the interpreter takes between the calls of the plainest loop, and our own taps beside it (10 and some
25 us on one machine, on others as much longer as Python takes there), is nobody's to take out."""
LEFT_OF_FEEDING = 0.1
LEFT_AT_MOST = 0.5
"""What a line prepares for the model has to be prepared: vectorised it takes a tenth of the time, or half where that
goes badly (an estimate: array operations do in 1/10 to 1/100 what a Python loop over their elements does)."""
SELDOM = ("Do it every n steps, or move it out of the loop", "if step % 100 == 0:\n    ...")
FED = (
    "It prepares the model's input: do it for the whole batch in one call, or once for all data before the loop",
    "x = prepared[indices]  # prepared for all of the data: one indexing a batch",
)
NEEDED = (
    "Training needs it: do it in one call instead of one for each sample or parameter",
    "x = stored[indices]  # kept in one tensor, not in a list of them\n"
    "torch._foreach_mul_(tensors, factor)  # all tensors in one call",
)
COMPARED = (
    "The loss needs it: compute it for all elements in one call, not one by one in Python",
    "distances = torch.cdist(points, centres)  # of all pairs",
)
THERE = ("It runs inside of that call: let it log and call back less often, if it has options for that", "")
KEPT = (
    "It is what the loop is for: do it for a whole batch in one call, or for all batches afterwards",
    "kept.append(outputs)  # after the loop: torch.cat(kept)",
)
UNSEEN = 0.5
"""Of what lies outside of every phase, this part is taken for Python where nothing was seen of it: nobody knows."""
BESIDE_IT = 0.25
"""From this part of the loop's own lines on, what is to be done about them is said as well."""
UPDATE = re.compile(r"\.grad\b|\.data\.\w+_\(|\.data(\[.*\])?\s*[-+*/]=")
"""Text of a line that reads or clears a gradient, or changes a parameter's data in place."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where Python outside of every phase takes at least 10 %, beside what other rules of this family name."""
    step_s = vitals.host_step_s
    if step_s is None or (not vitals.forward_share and vitals.backward_share):
        return None  # a loop that computes without modules: its forward cannot be told from its Python
    billed = vitals.chores_between_share + making_share(vitals)
    billed += total({*idle.hidden_syncs_outside(vitals), *_in_turn(vitals)})
    billed += vitals.once_share  # a step that stood still is no habit of the loop
    share = max(vitals.outside_share - billed, 0.0)
    updates = _update_lines(vitals)
    lines = [one for one in _own_lines(vitals) if one not in updates]
    most = share
    if vitals.lines:
        share *= _part_in_python(vitals, lines, updates)
        most *= 1.0 - part((*updates, *vitals.saving_lines), vitals.outside_lines)
    if vitals.on_gpu:
        if vitals.gpu_gap_share is None:
            return None
        # Behind a full queue such work is hidden: what the GPU idles because a wait has emptied it is not Python's.
        taken = (
            vitals.exposed_share
            + idle.sync_share(vitals)
            + idle.recompiling_share(vitals)
            + idle.behind_copies_share(vitals)
        )
        share, most = (min(one, max(vitals.gpu_idle_at_most - taken, 0.0)) for one in (share, most))
    if share < RESIDUAL_SHARE or share * step_s < _least_s(vitals):
        return None
    feeding = _feeding_part(vitals, lines)
    own = max(share - _least_s(vitals) / step_s, 0.0)
    gain = without(vitals, own * (1.0 - LEFT_OF_FEEDING * feeding), most)
    slowly = without(vitals, own * (1.0 - LEFT_AT_MOST * feeding))
    (text, code), *more = [THERE] if _in_a_library(vitals, lines) else _ways_out(vitals, lines)
    return Finding(
        rule="slow-python",
        headline=f"Python in the loop: {formatting.share(share)} of the time is outside of "
        f"{joined(('fetch', *phases(vitals)))}.",
        cost_share=share,
        evidence=(
            f"{formatting.seconds(share * step_s)} of every step of {formatting.seconds(step_s)}",
            *dearest_lines(lines, vitals.source),
        ),
        prescriptions=(
            Prescription(
                text=text,
                safety=Safety.BY_HAND,
                code=code,
            ).expecting(replace(gain, low=min(gain.low, slowly.speedup)), at_most=True),
            *(Prescription(f"{text} (where this applies)", Safety.BY_HAND, code=code) for text, code in more),
        ),
    )


def _least_s(vitals: Vitals) -> float:
    return LEAST_S * pace(vitals)


def _part_in_python(vitals: Vitals, own: list[LineCost], updates: list[LineCost]) -> float:
    """Of what lies outside of every phase, the part that is no computing inside torch, or trains nothing.

    What writes a file is left out.

    The step clock says how long it is, the looks only how it is divided: a call that keeps Python's lock for long
    (`.tolist()` of a large tensor) is seen by few of them, or by none.
    """
    python = total(own)
    named = {*own, *updates}
    in_torch = total(one for one in vitals.outside_lines if one.in_torch and one not in named and not one.saves)
    in_torch += total(one for one in _python(vitals) if _operates(vitals, one) and one not in named)
    if not any(one.before_backward for one in vitals.lines):
        # The loss was measured and taken off: looks that fell into it say nothing about what is left.
        in_torch = max(in_torch - (vitals.loss_share or 0.0), 0.0)
    if python > in_torch:
        in_torch -= _edges_beyond(vitals, own)
    training = in_torch + total((*updates, *vitals.saving_lines))
    if python + training <= 0:
        # What is never seen keeps Python's lock; but of few looks none need have fallen there.
        return 1.0 if vitals.looked_at(vitals.other_share or 0.0) else UNSEEN
    doubt = 0.0 if vitals.looked_at(python + training) else python + training
    return (python + doubt) / (python + training + doubt)


def _edges_beyond(vitals: Vitals, own: list[LineCost]) -> float:
    """What was seen at the edges of phases, in torch on lines that call a module or an optimizer, beyond LEAST_S.

    Of twenty looks one or two fall there, by the clock it is next to nothing.
    """
    trains = {(one.file, one.line) for one in vitals.lines if one.phase in ("forward", "backward", "optimizer")}
    edges = (one for one in vitals.outside_lines if one.in_torch and one not in own and (one.file, one.line) in trains)
    return max(total(edges) - _least_s(vitals) / (vitals.host_step_s or 1.0), 0.0)


def _in_a_library(vitals: Vitals, own: list[LineCost]) -> bool:
    """Whether most of it runs inside of a library's own loop, which the user's cells only call."""
    calls = library_calls(vitals)
    return part((one for one in own if (one.file, one.line) in calls), own) > 0.5


def _feeding_part(vitals: Vitals, own: list[LineCost]) -> float:
    """Of the loop's own lines, the part that prepares what the model is fed with, or computes its targets."""
    fed = {
        *batch_lines(vitals.source, vitals.lines, vitals.model_names),
        *target_lines(vitals.source, vitals.lines, vitals.model_names),
    }
    return part((one for one in own if one in fed), own)


def _ways_out(vitals: Vitals, own: list[LineCost]) -> list[tuple[str, str]]:
    """What to do about most of the loop's own lines, and about a good part of them: text and code.

    What the loss or the update needs cannot be left out; what no text tells can be both.
    """
    if vitals.predicts:
        return [KEPT]  # predictions, an export: no text tells what of it is wanted
    trains = {(one.file, one.line) for one in vitals.lines if one.phase in ("forward", "backward", "optimizer")}
    own = [one for one in own if (one.file, one.line) not in trains]  # what the calls that train take beside themselves
    whole = total(own)
    fed = {
        *batch_lines(vitals.source, vitals.lines, vitals.model_names),
        *elsewhere_lines(vitals.source, vitals.lines, vitals.model_names),
    }
    compared = set(target_lines(vitals.source, vitals.lines, vitals.model_names)) - fed
    needed = set(needed_lines(vitals.source, own)) - fed - compared
    wanted = {FED: fed, COMPARED: compared, NEEDED: needed}
    parts = {way: total(one for one in own if one in found) for way, found in wanted.items()}
    parts[SELDOM] = whole - sum(parts.values())
    ways = sorted((one for one in parts if parts[one] >= BESIDE_IT * whole), key=lambda one: -parts[one])
    return ways if whole > 0 else [SELDOM]


def _in_turn(vitals: Vitals) -> list[LineCost]:
    """Line costs outside of every phase that per-sample-forward prices."""
    if per_sample_forward.check(vitals) is None:
        return []
    outside = vitals.outside_lines
    return [one for one in per_sample_forward.calls_in_turn(vitals) if one in outside]


def _update_lines(vitals: Vitals) -> list[LineCost]:
    """In a loop that trains without an optimizer: the lines that change the parameters, told by their text."""
    if vitals.setup.optimizer_facts or vitals.setup.optimizers or not vitals.backward_share:
        return []
    beside = set(beside_lines(vitals.source, vitals.lines))
    return [one for one in vitals.outside_lines if UPDATE.search(one.text) and one not in beside]


def _own_lines(vitals: Vitals) -> list[LineCost]:
    """Lines of the loop's own Python, and of what computes in torch, those statements that train nothing."""
    beside = set(beside_lines(vitals.source, vitals.lines))
    return [
        one for one in _python(vitals) if one.beside or one in beside or not (one.in_torch or _operates(vitals, one))
    ]


def _python(vitals: Vitals) -> list[LineCost]:
    """Lines outside of every phase that make no batches, leave no loop, and are no chore or a file's."""
    made = {(one.file, one.line) for one in making_lines(vitals)}
    chores = {(one.file, one.line) for one in vitals.chores or ()}
    chores |= {(one.file, one.line) for one in (*idle.hidden_syncs_outside(vitals), *_in_turn(vitals))}
    return [
        one
        for one in vitals.outside_lines
        if not one.saves and (one.file, one.line) not in made and (one.file, one.line) not in chores
    ]


def _operates(vitals: Vitals, one: LineCost) -> bool:
    """Whether the CPU computes there, in torch's own code: on a GPU the host launches, which takes it no longer."""
    return one.computes and not one.in_torch and not vitals.on_gpu
