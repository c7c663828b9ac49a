"""Rule for a GPU that idles because the host waited for it: for a value, or for a tensor on the host.

While the host waits, the GPU works. Afterwards its queue is empty, and it idles until the next launches arrive. Only
this idle time counts. Waits inside torch's own GradScaler and gradient clipping are not recorded as the user's.
"""

from __future__ import annotations

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import hot_lines
from gpu_doctor.diagnosis.rules.rule import Cause, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.idle import announced_sync_share, round_trip_share

CAUSES: Final = (
    Cause(
        "host-sync",
        """
        The loop waits for the GPU in each step (`.item()`, `.cpu()`, `print(loss)`); then the GPU waits for the loop.

        What it means
            Reading a value from the GPU stops the host until all queued work is done. Only then can the host launch the
            next step, so the GPU's queue is empty meanwhile.

        Why it costs you
            The GPU idles from the end of the wait until new launches arrive. The cost is this idle time, and never more
            than the wait itself.

        What to try
            Keep sums on the GPU and read them every 100 steps. For predictions, keep the outputs on the GPU and copy
            them together, at the end or every hundred batches.

        In code
            # sick
            total += loss.item()
            # cured
            total += loss.detach()
            if step % 100 == 0:
                print(total.item() / (step + 1))

        When to leave it
            Leave it if the step is long compared with the idle time after the wait.
        """,
        ("sync_share", "gpu_gap_share", "exposed_wait_share"),
    ),
    Cause(
        "device-round-trips",
        """
        Tensors leave the GPU for the host and come back within a step, and the GPU idles meanwhile.

        What it means
            Something in the middle of the step runs on the CPU (`.cpu()`, NumPy, SciPy, a Python loop over values), and
            its result goes back to the GPU.

        Why it costs you
            All queued work must be done before a tensor can be copied to the host. From then until the result is back
            and new launches arrive, the GPU has nothing to do. The cost is this time.

        What to try
            Compute with torch on the GPU: most NumPy functions have a counterpart in torch. If something has to run on
            the CPU, do it in one trip per step, or move it into the loader.

        In code
            # sick
            clipped = numpy.clip(x.cpu().numpy(), 0.0, 1.0)
            x = torch.from_numpy(clipped).to(device)
            # cured
            x = x.clamp(0.0, 1.0)

        When to leave it
            Leave it if torch has no such operation on the GPU and the step needs the result at once.
        """,
        ("gpu_gap_share", "traffic", "run_s", "steps_per_s"),
    ),
)

OFTEN: Final = 0.05
"""Fewest round trips per step, one in twenty steps: rarer ones belong to logging or evaluation."""
LOSS: Final = Prescription(
    "Read the value every n steps and keep sums on the device",
    Safety.BY_HAND,
    code="running_loss += loss.detach()  # .item() every 100 steps",
)
OUTPUTS: Final = Prescription(
    "Keep the outputs on the device and fetch them once, after the loop",
    Safety.BY_HAND,
    code="kept.append(outputs)  # in the loop, without .cpu(), .item() or .tolist()\n"
    "outputs = torch.cat(kept).cpu()  # after the loop, or every 100 batches if they would not fit",
)
STAYING: Final = Prescription(
    "Keep the computation on the device",
    Safety.BY_HAND,
    code="y = f(x)  # with torch on x's device, not torch.from_numpy(f(x.cpu().numpy())).to(device)",
)


def check(vitals: Vitals) -> list[Finding]:
    """Reports waits for values and round trips with the idle time that follows them; no second counts twice."""
    if not vitals.on_gpu:
        return []
    found = (_announced(vitals), _round_trips(vitals))
    return [finding for finding in found if finding is not None]


def _announced(vitals: Vitals) -> Finding | None:
    """Reports the idle time after waits for values (host-sync)."""
    cost = announced_sync_share(vitals)
    if not cost:
        return None
    line = next((cost.text for cost in vitals.lines_in("sync")), "")
    waits = f"`{formatting.clean(line, 60)}` waits" if line else "The loop waits every step"
    bound = "at most " if vitals.gpu_outruns_host else ""  # its clock does not show when it idles within phases
    times = "" if vitals.syncs_per_step is None else f" in {formatting.average(vitals.syncs_per_step)} syncs a step"
    return Finding(
        rule="host-sync",
        kind="at-most" if bound else "lost",
        headline=f"{waits} for the GPU; the GPU then sits idle {bound}{formatting.share(cost)} of the time.",
        cost_share=cost,
        evidence=(
            f"the host waits {formatting.share(vitals.sync_share)} of the time{times}; the GPU idles "
            f"{formatting.share(vitals.gpu_gap_share)} of its time",
            *hot_lines(vitals, ("sync",)),
        ),
        prescriptions=(OUTPUTS if vitals.predicts else LOSS,),
    )


def _round_trips(vitals: Vitals) -> Finding | None:
    """Reports tensors that go to the host and back within a step (device-round-trips)."""
    traffic, cost = vitals.traffic, round_trip_share(vitals)
    if traffic is None or not vitals.steps or vitals.gpu_gap_share is None:
        return None
    per_step = traffic.round_trips / vitals.steps
    if per_step < OFTEN:
        return None
    return Finding(
        rule="device-round-trips",
        kind="lost",
        headline="Tensors go to the host and back within a step; the GPU sits idle meanwhile, "
        f"{formatting.share(cost)} of the time.",
        cost_share=cost,
        evidence=(
            f"{formatting.average(per_step)} round trip{'s' * (round(per_step, 1) != 1)} a step, "
            f"{formatting.seconds(traffic.round_trip_s / traffic.round_trips)} each from the end of the copy to the "
            "host to the end of the copy back",
            f"{traffic.to_host} copies to the host in all, {formatting.size(traffic.to_host_bytes)}",
            *hot_lines(vitals, ("sync", "transfer", "other")),
        ),
        prescriptions=(STAYING,),
    )
