"""A debugging aid of torch is on: anomaly detection, the profiler, or CUDA calls that wait for each other.

What it means
    Anomaly detection records the Python stack of every operation and checks every gradient for NaN. The autograd
    profiler records every operation. `CUDA_LAUNCH_BLOCKING=1` makes the host wait for each kernel. They help to find
    errors, and are easily left on.

Why it costs you
    Forward and backward take longer while it is on. A recording cannot show by how much. The cost is a bound: all the
    time of forward and backward in which it was on, or, for `CUDA_LAUNCH_BLOCKING`, the time of the phases that launch.
    The smaller the operations are, the closer the gain comes to it.

What to try
    Turn it off, run again and compare. Turn anomaly detection on again when a NaN appears, for the steps around it.

In code
    # sick
    torch.autograd.set_detect_anomaly(True)
    # cured
    torch.autograd.set_detect_anomaly(False)

When to leave it
    Leave it while you look for an error. `torch.use_deterministic_algorithms` is not counted here: on a CPU it costs
    nothing, on a GPU it may choose slower kernels. This rule has not run on a real GPU yet.
"""

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals import idle
from gpu_doctor.diagnosis.vitals.debugging import debugging_aids_on
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("step_wall_s", "backward_share")

NAMES: Final = {
    "anomaly": "Anomaly detection is on",
    "profiler": "The autograd profiler is on",
    "blocking": "CUDA_LAUNCH_BLOCKING is set",
}
OFF: Final = {
    "anomaly": ("Turn anomaly detection off", "torch.autograd.set_detect_anomaly(False)"),
    "profiler": (
        "Profile a few steps only",
        "torch.profiler.profile(schedule=torch.profiler.schedule(wait=10, warmup=2, active=3, repeat=1))",
    ),
    "blocking": ("Start the kernel without it", 'os.environ.pop("CUDA_LAUNCH_BLOCKING", None)  # before torch starts'),
}
WARNS: Final = ("warn", "error")


def check(vitals: Vitals) -> Finding | None:
    """Reports a debugging aid that was on; the bound is the time of forward and backward meanwhile."""
    flags, taken = vitals.setup.flags, vitals.passes_share
    costs = {name: on * taken for name, on in debugging_aids_on(vitals).items()}
    if vitals.on_gpu and flags.get("launch_blocking") and (launching := idle.launching(vitals)) is not None:
        costs["blocking"] = launching
    if not costs:
        return None
    costliest = max(costs, key=lambda name: costs[name])
    cost = min(costs[costliest], 1.0)
    return Finding(
        rule="debug-mode-on",
        headline=f"{NAMES[costliest]} (at most {formatting.share(cost)} to gain).",
        cost_share=cost,
        kind="at-most",
        evidence=(
            *(NAMES[name] for name in costs if name != costliest),
            f"forward and backward take {formatting.share(taken)} of the time",
            *(("torch.use_deterministic_algorithms(True) is set as well",) if flags.get("deterministic") else ()),
            *(("torch.cuda.set_sync_debug_mode is set as well",) if flags.get("sync_debug") in WARNS else ()),
        ),
        prescriptions=tuple(
            Prescription(text, Safety.BY_HAND, code=code) for name, (text, code) in OFF.items() if name in costs
        ),
    )
