"""A debugging aid of torch is on: anomaly detection, the profiler, or CUDA calls that wait for each other.

What it means
    Anomaly detection writes down the Python stack of every operation and looks for NaN in every gradient. The autograd
    profiler notes every operation. `CUDA_LAUNCH_BLOCKING=1` makes the host wait for each kernel. They find errors, and
    are easily left on.

Why it costs you
    Measured on 5 loops (torch 2.13, one CPU core): anomaly detection took 19 % of the time of 6 layers of 1024, 28 % of
    a small convolutional net, 49 % of 8 layers of 256, 66 % of two transformer layers, 81 % of 4 layers of 64. It costs
    about 0.15 ms a layer, and a pass over every gradient. The profiler took 1 to 8 %, 32 % of the smallest. What it
    costs in this loop cannot be read off a recording, but the least of it can: the stack is written down in the
    forward, so that a forward that takes longer than its backward allows was slowed by it. Only
    operations that record gradients pay: predictions under `torch.no_grad()` and frozen layers cost nothing more, and
    a forward that is long beside its backward says nothing where part of the model is frozen.

What to try
    Turn it off, run again, compare. Turn anomaly detection on again when a NaN comes, for the steps around it.

When to leave it
    While you look for an error. `torch.use_deterministic_algorithms` is no matter of debugging alone and cost nothing
    on a CPU; on a GPU it may choose slower kernels. GPU: not yet run on one.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import passes
from gpu_doctor.diagnosis.rules.python_pace import pace
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals import idle
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("step_wall_s", "backward_share")
EXCLUDES = ("launch-bound", "not-compiled", "model-too-small", "small-batch", "needless-accumulation")
"""Each launch takes longer while such an aid is on: how much of the idling is left can be judged without it only."""

ANOMALY_SHARE = 0.19
"""Of forward and backward: the least of the 5 loops on this page, which had one machine. Where another one's Python is
faster beside its arithmetic, less is lost than is said."""
ANOMALY_LAYER_S = 1.5e-4
PROFILER_LAYER_S = 2e-5
"""Seconds a layer and step, the least of 4 of the loops on this page (Python's stack there was five calls deep); on
another machine as many more or fewer as its Python takes."""
ON_SHARE = 0.02
"""On for less than this part of the run, it is looked at on purpose (`profile(schedule=...)`)."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where an aid was on, priced at the least that it is known to cost, as long as it was on."""
    step_s, flags = vitals.step_wall_s, vitals.setup.flags
    if step_s is None:
        return None
    taken = vitals.passes_share
    layers = sum(vitals.setup.layers.values()) * vitals.rounds
    slower = pace(vitals)
    costs: dict[str, float] = {}
    if vitals.backward_share and (on := _on_share(vitals, "anomaly_mode", "anomaly_on_s")) >= ON_SHARE:
        trained = min(taken, (1.0 + 1.0 / passes.BACKWARD_LEAST) * vitals.backward_share)
        usual = on * min(max(ANOMALY_SHARE * trained, layers * slower * ANOMALY_LAYER_S / step_s), trained)
        costs["anomaly"] = max(usual, _slowed_share(vitals))
    if (on := _on_share(vitals, "profiler", "profiler_on_s")) >= ON_SHARE:
        costs["profiler"] = on * min(layers * slower * PROFILER_LAYER_S / step_s, taken)
    if vitals.on_gpu and flags.get("launch_blocking") and (launching := idle.launching(vitals)) is not None:
        # Launches and kernels take turns now. Side by side they take as long as the longer of the two: half at least.
        costs["blocking"] = launching / 2.0
    if not costs:
        return None
    dearest = max(costs, key=lambda name: costs[name])
    cost = min(costs[dearest], 1.0)
    least = "at most" if dearest == "blocking" else "at least"
    return Finding(
        rule="debug-mode-on",
        headline=f"{_NAMES[dearest]}: that costs {least} {formatting.share(cost)} of the time.",
        cost_share=cost,
        evidence=(
            *(f"{_NAMES[name].lower() if name != 'blocking' else _NAMES[name]}" for name in costs if name != dearest),
            f"forward and backward take {formatting.share(taken)} of the time",
            *(("torch.use_deterministic_algorithms(True) is set as well",) if flags.get("deterministic") else ()),
            *(("torch.cuda.set_sync_debug_mode is set as well",) if flags.get("sync_debug") in _WARNS else ()),
        ),
        prescriptions=tuple(
            Prescription(text=text, safety=Safety.BY_HAND, code=code)
            for name, (text, code) in _OFF.items()
            if name in costs
        ),
    )


_WARNS = ("warn", "error")
_NAMES = {
    "anomaly": "Anomaly detection is on",
    "profiler": "The autograd profiler is on",
    "blocking": "CUDA_LAUNCH_BLOCKING is set",
}
_OFF = {
    "anomaly": ("Turn anomaly detection off", "torch.autograd.set_detect_anomaly(False)"),
    "profiler": (
        "Profile a few steps only",
        "torch.profiler.profile(schedule=torch.profiler.schedule(wait=10, warmup=2, active=3, repeat=1))",
    ),
    "blocking": ("Start the kernel without it", 'os.environ.pop("CUDA_LAUNCH_BLOCKING", None)  # before torch starts'),
}


def _slowed_share(vitals: Vitals) -> float:
    """Share of the wall-clock by which anomaly detection has at least slowed the forward; 0 if that does not show.

    It adds more to a forward (the stack of every operation, the dearer the deeper it is) than to a backward, of which
    a plain forward takes at most 1 / 0.8. A frozen part has a forward alone, with nothing written down.
    """
    if not _all_trained(vitals):
        return 0.0
    return max(vitals.together("forward", "loss") - (vitals.backward_share or 0.0) / passes.BACKWARD_LEAST, 0.0)


def _all_trained(vitals: Vitals) -> bool:
    """Whether every parameter of the model is known to be stepped and to get a gradient."""
    model, stepped = vitals.model, vitals.setup.parameter_bytes
    if model is None or not stepped or not vitals.setup.optimizers or model.frozen_bytes != 0:
        return False
    return stepped >= sum(model.dtype_bytes.values())


def _on_share(vitals: Vitals, flag: str, seconds: str) -> float:
    """Part of the steps' wall-clock in which an aid was on; all of it where only the flag is known."""
    flags = vitals.setup.flags
    if seconds in flags and vitals.run_s:
        return min(float(flags[seconds]) / vitals.run_s, 1.0)
    return 1.0 if flags.get(flag) else 0.0
