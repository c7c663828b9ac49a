"""The loop goes from one small operation to the next: launching them takes about as long as what they compute.

What it means
    The step consists of many small operations. On a GPU, launching one costs the host microseconds and running it costs
    the GPU less: it has finished before the next one comes. On a CPU, Python and torch take about as long to reach an
    operation as its numbers take, or longer.

Why it costs you
    A GPU idles between kernels. NVML's utilisation does not show it: it counts the time in which any kernel ran, and
    may read 100 % where tiny ones follow one another. A CPU is busy, but computes little: a batch four times as large
    takes far less than four times as long. On a GPU the price is the most that it can be: the time of the phases in
    which the GPU kept up with its host, as if kernels took none of it.

What to try
    A larger batch gives each launch more to do; `torch.compile` or CUDA graphs launch fewer, larger pieces.

When to leave it
    When the model is small on purpose: then a low utilisation is fine, and a CPU may be as fast. When the batch size
    was tuned for the result.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.stages import fetched_s
from gpu_doctor.diagnosis.rules import gpu_idle
from gpu_doctor.diagnosis.rules.prescriptions import TIMES, larger_batch
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("launching_share", "caught_up_share", "exposed_wait_share", "sync_share")
CPU_NEEDS = ("backward_share", "data_wait_share", "dispatch_share")
EXCLUDES = ("full-precision", "small-batch")

WAIT_SHARE = 0.20
"""From here on a loop is bound by its input: a larger batch waits longer, and a wait empties the queue by itself."""
LARGER = "Give each operation more to do: a larger batch"

DISPATCH_SHARE = 0.3
"""A CPU is bound by going from operation to operation from this part of the wall-clock on."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where the queue runs dry, or a CPU's operations hardly compute, without a wait for data or for values."""
    return _on_gpu(vitals) if vitals.on_gpu else _on_cpu(vitals)


def _on_gpu(vitals: Vitals) -> Finding | None:
    empty, wait, cost = vitals.caught_up_share, vitals.exposed_wait_share, gpu_idle.launching(vitals)
    if empty is None or wait is None or cost is None or not vitals.gpu_outruns_host or wait >= WAIT_SHARE:
        return None
    larger = larger_batch(vitals)
    cost *= 1.0 - 1.0 / TIMES if larger is not None else 1.0  # a larger batch's samples still need the launches of one
    return Finding(
        rule="launch-bound",
        headline=f"The GPU outruns the host: up to {formatting.share(cost)} of the time could be saved on launches.",
        cost_share=cost,
        evidence=(gpu_idle.emptied(vitals), gpu_idle.launched(vitals)),
        prescriptions=(larger or _compiled(vitals),),
    )


def _on_cpu(vitals: Vitals) -> Finding | None:
    share, wait, step_s = vitals.dispatch_share, vitals.data_wait_share, vitals.step_wall_s
    operations, least_s = vitals.setup.graph_operations, vitals.setup.operation_s
    if share is None or wait is None or step_s is None or not operations or not least_s:
        return None
    larger = larger_batch(vitals, text=LARGER)
    if share < DISPATCH_SHARE or wait >= WAIT_SHARE or larger is None:
        return None  # without a loader all data may lie in one batch: then there is no larger one
    # Workers that fetch nearly as slowly as the loop runs leave a larger batch no more to gain than they are faster.
    cost = min(share * (1.0 - 1.0 / TIMES), 1.0 - fetched_s(vitals) / step_s)
    backward_s = (vitals.backward_share or 0.0) * step_s
    return Finding(
        rule="launch-bound",
        headline=f"The operations are small: about {formatting.share(share)} of the time goes into getting from one "
        "to the next.",
        cost_share=max(cost, 0.0),
        evidence=(
            f"the backward of a step takes {formatting.seconds(backward_s)} for {operations} operations, "
            f"{formatting.seconds(backward_s / operations)} each; one that computes next to nothing takes "
            f"{formatting.seconds(least_s)} here",
            *([f"{formatting.count(vitals.samples_per_step, 'sample')} a step"] if vitals.samples_per_step else []),
        ),
        prescriptions=(larger,),
    )


def _compiled(vitals: Vitals) -> Prescription:
    """Where no larger batch can be advised: fewer, larger launches."""
    if vitals.compiled:
        code = 'model = torch.compile(model, mode="reduce-overhead")'
        return Prescription(text="Launch the compiled model as CUDA graphs", safety=Safety.BY_HAND, code=code)
    return Prescription(text="Compile the model", safety=Safety.BY_HAND, code="model = torch.compile(model)")
