"""The loop's own Python (logging, metrics, plotting, tokenising) takes time in which nothing trains.

What it means
    Between fetch, forward, backward and optimizer the loop runs code of its own. This rule adds up what is left of
    every step after all measured phases and names the lines where it goes.

Why it costs you
    The device has nothing to do meanwhile, unless the GPU still has work queued.

What to try
    Do it every n steps, move it out of the loop, vectorise it, hand it to another thread or process.

When to leave it
    When the line is the training itself (a custom update written in Python), or the figure is what you want to see. In
    a loop without an optimizer, lines that read or clear gradients (`p -= lr * p.grad`) or change a parameter's data in
    place (`p.data.add_(...)`) are that update: they are left out of the figure.
"""

import re

from gpu_doctor.beside import beside_lines
from gpu_doctor.feeding import batch_lines
from gpu_doctor.recording import LineCost
from gpu_doctor.removal import without
from gpu_doctor.rules.evidence import dearest_lines, millis, percent
from gpu_doctor.rules.host.slow_generator import making_lines, making_share
from gpu_doctor.rules.rule import Finding, Prescription, Safety
from gpu_doctor.vitals import Vitals

NEEDS = ("other_share", "forward_share", "backward_share", "step_wall_s")

OTHER_SHARE = 0.10
"""TraceML 0.5 warns of the residual from 10 % on."""
LEAST_S = 6e-5
"""Of a step: what the interpreter takes between the calls of the plainest loop, and our own taps beside it (10 and some
25 us), is nobody's to take out."""
LEFT_OF_FEEDING = 0.1
LEFT_AT_MOST = 0.5
"""What a line prepares for the model has to be prepared: vectorised it takes a tenth of the time, or half where that
goes badly (an estimate: array operations do in 1/10 to 1/100 what a Python loop over their elements does)."""
FEW_LOOKS = 3.0
"""A short run is looked at some ten times. Where fewer than three looks fell outside of all phases, what they happened
to find counts for half, and the clock for the rest: one look at torch does not make Python of 50 % nothing."""
UPDATE = re.compile(r"\.grad\b|\.data\.\w+_\(|\.data(\[.*\])?\s*[-+*/]=")
"""Text of a line that reads or clears a gradient, or changes a parameter's data in place."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where Python outside of every phase takes at least 10 %, beside what other rules of this family name."""
    other, step_s = vitals.other_share, vitals.step_wall_s
    if other is None or step_s is None or (not vitals.forward_share and vitals.backward_share):
        return None  # a loop that computes without modules: its forward cannot be told from its Python
    billed = _chores_share(vitals) + making_share(vitals)
    share = max(other - (vitals.loss_share or 0.0) - billed, 0.0)
    updates = _update_lines(vitals)
    lines = [one for one in _own_lines(vitals) if one not in updates]
    most = share
    if vitals.lines:
        share *= _part_in_python(vitals, lines, updates)
        most *= 1.0 - _part_of(updates, vitals)
    if vitals.on_gpu:
        if vitals.gpu_gap_share is None:
            return None
        taken = (vitals.exposed_wait_share or 0.0) + (vitals.exposed_transfer_share or 0.0)
        share, most = (min(one, max(vitals.gpu_gap_share - taken, 0.0)) for one in (share, most))
    if share < OTHER_SHARE or share * step_s < LEAST_S:
        return None
    feeding = _feeding_part(vitals, lines)
    gain = without(vitals, share * (1.0 - LEFT_OF_FEEDING * feeding), most)
    slowly = without(vitals, share * (1.0 - LEFT_AT_MOST * feeding))
    return Finding(
        rule="slow-python",
        headline=f"Python in the loop: {percent(share)} of the time is outside of fetch, forward, backward, optimizer.",
        cost_share=share,
        evidence=(
            f"{millis(share * step_s)} of every {millis(step_s)} step",
            *dearest_lines(lines, vitals.source),
        ),
        prescriptions=(
            Prescription(
                text="Do it every n steps, or move it out of the loop (gains about this if all of it goes)",
                safety=Safety.BY_HAND,
                code="if step % 100 == 0:\n    ...",
                predicted_speedup=gain.speedup,
                predicted_low=min(gain.low, slowly.speedup),
                predicted_high=gain.high,
            ),
        ),
    )


def _part_in_python(vitals: Vitals, own: list[LineCost], updates: list[LineCost]) -> float:
    """Of what lies outside of every phase, the part that is no computing inside torch, or trains nothing.

    The ledger's clock says how long it is, the looks only how it is divided: a call that keeps Python's lock for long
    (`.tolist()` of a large tensor) is seen by few of them, or by none.
    """
    python = sum(one.share for one in own)
    training = sum(one.share for one in _between(vitals) if one not in own and (one.in_torch or one in updates))
    if python + training <= 0:
        return 1.0
    few = vitals.looks is not None and (python + training) * vitals.looks < FEW_LOOKS
    doubt = (python + training) if few else 0.0
    return (python + doubt) / (python + training + doubt)


def _feeding_part(vitals: Vitals, own: list[LineCost]) -> float:
    """Of the loop's own lines, the part that prepares what the model is fed with: augmenting, padding, encoding."""
    whole = sum(one.share for one in own)
    fed = set(batch_lines(vitals.source, vitals.lines, vitals.setup.flags.get("model_names", ())))
    return sum(one.share for one in own if one in fed) / whole if whole > 0 else 0.0


def _between(vitals: Vitals) -> list[LineCost]:
    """Line costs of the training thread outside of every phase."""
    return [one for one in vitals.lines if one.phase == "other" and not one.in_worker]


def _part_of(lines: list[LineCost], vitals: Vitals) -> float:
    """Of what lies outside of every phase, the part of some of its lines."""
    whole = sum(one.share for one in _between(vitals))
    return sum(one.share for one in lines) / whole if whole > 0 else 0.0


def _update_lines(vitals: Vitals) -> list[LineCost]:
    """In a loop that trains without an optimizer: the lines that change the parameters, told by their text."""
    if vitals.setup.optimizer_facts or vitals.setup.optimizers or not vitals.backward_share:
        return []
    beside = set(beside_lines(vitals.source, vitals.lines))
    return [one for one in _between(vitals) if UPDATE.search(one.text) and one not in beside]


def _chores_share(vitals: Vitals) -> float:
    """Checkpoints, collections and the like outside of every phase: they have rules of their own."""
    if vitals.chores is None or not vitals.run_s:
        return 0.0
    # NaN: it was not noted in which phase they fell, so all of their seconds may lie in `other`.
    return sum(one.other_s if one.other_s == one.other_s else one.wall_s for one in vitals.chores) / vitals.run_s


def _own_lines(vitals: Vitals) -> list[LineCost]:
    """Lines outside of every phase that run Python: none that makes batches (slow-generator), none of a chore.

    Of what computes inside torch, those statements of the loop that train nothing.
    """
    made = {(one.file, one.line) for one in making_lines(vitals)}
    chores = {(one.file, one.line) for one in vitals.chores or ()}
    beside = set(beside_lines(vitals.source, vitals.lines))
    return [
        one
        for one in _between(vitals)
        if (not one.in_torch or one in beside)
        and (one.file, one.line) not in made
        and (one.file, one.line) not in chores
    ]
