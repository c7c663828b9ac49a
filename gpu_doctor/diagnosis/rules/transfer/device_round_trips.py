"""Inside a step tensors leave the GPU for the host and come back, and the GPU idles in between.

What it means
    Something in the middle of the step runs on the CPU (`.cpu()`, NumPy, SciPy, a Python loop over values) and its
    result goes back to the GPU.

Why it costs you
    To copy a tensor to the host, everything queued on the GPU must be done first. From then until the copy back and the
    next launches arrive, the GPU has nothing to do.

What to try
    Do it on the device: most of NumPy has a namesake in torch. Batch what must be on the CPU into one trip a step, do
    it a step late, or move it into the loader.

When to leave it
    When there is no such operation on the GPU and its result is needed immediately.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import hot_lines
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("gpu_gap_share", "traffic", "run_s", "steps_per_s")

OFTEN = 0.05
"""At least one round trip in twenty steps: a rarer one belongs to logging or evaluation."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where the way to the host and back, in which nothing is queued on the GPU, takes its share of the run."""
    traffic, cost = vitals.traffic, tripping_share(vitals)
    if traffic is None or not vitals.on_gpu or not vitals.steps:
        return None
    often = traffic.round_trips / vitals.steps
    if often < OFTEN:
        return None
    return Finding(
        rule="device-round-trips",
        headline=f"Tensors go to the host and back within a step: {formatting.share(cost)} of the time the GPU has "
        "nothing to do meanwhile.",
        cost_share=cost,
        evidence=(
            f"{formatting.average(often)} round trip{'s' * (round(often, 1) != 1)} a step, "
            f"{formatting.seconds(traffic.round_trip_s / traffic.round_trips)} each from the end of the copy to the "
            "host to the end of the copy back",
            f"{traffic.to_host} copies to the host in all, {formatting.size(traffic.to_host_bytes)}",
            *hot_lines(vitals, ("sync", "transfer", "other", "loss")),
        ),
        prescriptions=(
            Prescription(
                text="Keep the computation on the device",
                safety=Safety.BY_HAND,
                code="y = f(x)  # with torch on x's device, not torch.from_numpy(f(x.cpu().numpy())).to(device)",
            ).saving_at_most(cost),
        ),
    )


def tripping_share(vitals: Vitals) -> float:
    """Share of the wall-clock in which tensors are on their way to the host and back, 0..1."""
    traffic, run_s = vitals.traffic, vitals.run_s
    return min(traffic.round_trip_s / run_s, 1.0) if traffic is not None and run_s else 0.0
