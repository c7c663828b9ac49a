"""The loop calls `gc.collect()` again and again, and Python walks through all of its objects each time.

What it means
    `gc.collect()` looks for circles among all objects of the process. torch and its friends alone make some hundred
    thousand. Tensors do not need it: their memory is freed when the last name for them goes.

Why it costs you
    70 to 230 ms a call in a process with torch (measured on a busy machine), in which nothing trains.

What to try
    Take the call out of the loop. If memory grows without it, something keeps references (often `losses.append(loss)`
    without `.item()`): cure that. Where a library makes the call, `gc.freeze()` before the training exempts all that is
    there by then: a collection of PyKEEN's in a process with 480 000 objects took 0.8 s, and 1 ms after it.

When to leave it
    Once between two experiments it is fine. In a loop whose objects do form circles, every few hundred steps.
"""

from dataclasses import replace

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.removed_work import without
from gpu_doctor.diagnosis.rules.evidence import chore_line
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("chores", "run_s", "steps_per_s")

FEWEST_CALLS = 2
"""One call, often before the first step, tells nothing of how often it comes."""

LEAST_EXEMPT = 0.8
"""Of a collection, what `gc.freeze()` saves at least: the loop's own objects are walked through still (99 % were saved
with PyKEEN; only the low end of what is expected rests on this)."""
_EXEMPT = "A library calls it: exempt the objects that exist before the training"


def check(vitals: Vitals) -> Finding | None:
    """Prices explicit collections inside of steps."""
    share = vitals.chore_share("collect-garbage")
    if not share:
        return None
    cost = min(share, 1.0)
    chore = vitals.chores_of("collect-garbage")[0]
    if chore.calls < FEWEST_CALLS:
        return None
    gain = without(vitals, cost, calls_per_step=chore.calls / max(vitals.steps, 1))
    librarys = bool(chore.text) and "collect" not in chore.text
    if librarys:
        gain = replace(gain, low=without(vitals, LEAST_EXEMPT * cost).low)
    return Finding(
        rule="garbage-collected-each-step",
        headline=f"Collecting garbage by hand takes {formatting.share(cost)} of the time.",
        cost_share=cost,
        evidence=(
            f"gc.collect() was called {chore.calls} times in {vitals.steps} steps, "
            f"{formatting.seconds(chore.wall_s / chore.calls)} each",
            *chore_line(chore),
        ),
        prescriptions=(
            Prescription(
                text=_EXEMPT if librarys else "Take gc.collect() out of the loop",
                safety=Safety.BY_HAND,
                code="gc.collect()\ngc.freeze()  # before the training" if librarys else "# gc.collect()",
            ).expecting(gain, at_most=True),
        ),
    )
