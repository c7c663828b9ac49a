"""The loop calls `torch.cuda.empty_cache()` in most steps and so throws away the memory that the next step needs.

What it means
    torch keeps freed GPU memory for the next tensor. `empty_cache` waits for the GPU and hands that memory back to the
    driver; the next step has to ask for it again. It makes no more memory available to torch.

Why it costs you
    The call itself waits until the GPU has finished, then `cudaFree` and, in the next step, `cudaMalloc` run once for
    every block. Only the call's own seconds are billed here; the step after it is slower too.

What to try
    Take it out of the loop. If the run is out of memory without it, the memory is fragmented: try
    `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.

When to leave it
    Between two phases of different shapes (training, then a large evaluation) one call can prevent fragmentation.
    On a CPU it does nothing and costs nothing. GPU: not yet run on one.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import chore_line
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("chores", "run_s", "steps_per_s", "gpu")

MOST_STEPS = 0.5
"""Called in at least half of the steps: rarer calls may stand between two phases on purpose."""


def check(vitals: Vitals) -> Finding | None:
    """Fires on a GPU where the call comes in half of the steps."""
    share = vitals.chore_share("empty-cache")
    if not share or not vitals.on_gpu:
        return None
    chore = vitals.chores_of("empty-cache")[0]
    if chore.calls < MOST_STEPS * vitals.steps:
        return None
    cost = min(share, 1.0)
    return Finding(
        rule="cache-emptied-each-step",
        headline=f"Emptying the GPU's memory cache takes {formatting.share(cost)} of the time, and slows the next "
        "step too.",
        cost_share=cost,
        evidence=(
            f"empty_cache() was called {chore.calls} times in {vitals.steps} steps, "
            f"{formatting.seconds(chore.wall_s / chore.calls)} each",
            *chore_line(chore),
        ),
        prescriptions=(
            Prescription(
                text="Take empty_cache() out of the loop", safety=Safety.BY_HAND, code="# torch.cuda.empty_cache()"
            ),
        ),
    )
