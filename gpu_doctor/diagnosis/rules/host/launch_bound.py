"""Rule for a loop that spends its time on getting from one small operation to the next.

On a GPU, kernels finish before Python launches the next, in at least 80 % of the device's time by its own clock. On a
CPU, an operation takes hardly longer than PyTorch needs to reach it. All causes have one price, a bound: the time of
the phases that launch.
"""

from __future__ import annotations

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.stages import fetched_s
from gpu_doctor.diagnosis.rules.evidence import uncompiled
from gpu_doctor.diagnosis.rules.prescriptions import COMPILED, TIMES, larger_batch
from gpu_doctor.diagnosis.rules.rule import Cause, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.debugging import debugging_aids_on
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.idle import launching
from gpu_doctor.diagnosis.vitals.in_turn import item_by_item

NEEDS: Final = ("launching_share", "caught_up_share", "exposed_wait_share", "sync_share")
CAUSES: Final = (
    Cause(
        "needless-accumulation",
        """
        Gradients are accumulated over micro-batches that do not keep the GPU busy, although a larger batch fits.

        What it means
            The loop pulls several batches for one optimizer step although at least half of the GPU's memory is free,
            and the GPU finishes a step's work as soon as it is launched. Batches from several loaders (`zip(labelled,
            unlabelled)`) count as one.

        Why it costs you
            Every micro-batch pays for the launches and the Python of a forward and a backward. One larger batch pays
            for them once. The cost is a bound: the host's time in the phases that launch.

        What to try
            Use one larger batch, or fewer larger micro-batches. Each optimizer step then sees the same samples.

        In code
            # sick
            loader = DataLoader(dataset, batch_size=8)
            accumulation_steps = 4
            # cured
            loader = DataLoader(dataset, batch_size=32)
            accumulation_steps = 1

        When to leave it
            Leave it if you tuned batch normalisation for the small batch, or if the code must also run on a smaller
            card.
        """,
        (*NEEDS, "peak_share", "loader", "batches_per_step", "memory_total_bytes"),
    ),
    Cause(
        "model-too-small",
        """
        The model is too small for the GPU: even a large batch leaves it idle, and that is fine.

        What it means
            The batch is large already (1024 samples or more, or the whole dataset), and the GPU still finishes each
            kernel before the next one is launched.

        Why it costs you
            It costs little. The GPU's utilisation looks low because there is no work that could fill it. The cost is a
            bound: the host's time in the phases that launch.

        What to try
            Leave it, or try the CPU, which may be as fast. Fewer launches still shorten the step: `torch.compile`, CUDA
            graphs, or several models trained at once.

        In code
            # sick
            device = "cuda"
            # cured
            device = "cpu"  # or keep the GPU and fewer launches:
            model = torch.compile(model, mode="reduce-overhead")

        When to leave it
            Leave it if the run is short anyway, or if the model is about to grow.
        """,
        (*NEEDS, "inputs", "parameters"),
    ),
    Cause(
        "not-compiled",
        """
        The GPU waits for the launches of many small kernels, and the model is not compiled.

        What it means
            Python launches every operation of the model on its own, and the GPU finishes each before the next one
            arrives. `torch.compile` fuses neighbouring operations into one kernel and launches them without Python.

        Why it costs you
            The GPU idles between the kernels. The cost is a bound: the host's time in the phases that launch. How much
            compiling gains depends on the model, and there is no forecast for it. This rule has not run on a real GPU
            yet.

        What to try
            Compile the model, then try a larger batch. The first steps compile for seconds to minutes; a trial leaves
            them out.

        In code
            # sick
            outputs = model(inputs)
            # cured
            compiled = torch.compile(model)  # once, before the loop
            outputs = compiled(inputs)

        When to leave it
            Leave it if the run is shorter than the compilation, or if input shapes change all the time.
        """,
        (*NEEDS, "model", "inputs"),
    ),
    Cause(
        "small-batch",
        """
        The batch is so small that the GPU finishes before the next work is launched, and memory is free for more.

        What it means
            Peak memory is below 60 % of the card, the loop does not wait for data, and the GPU keeps up with the host's
            launches.

        Why it costs you
            Every step has a fixed cost (launches, the optimizer, Python), and a larger batch spreads it over more
            samples. The cost is a bound: the host's time in the phases that launch.

        What to try
            Use a larger batch. In training, scale the learning rate with it (linear scaling, Goyal et al. 2017). A
            trial compares the losses after the same number of samples.

        In code
            # sick
            loader = DataLoader(dataset, batch_size=32)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            # cured
            loader = DataLoader(dataset, batch_size=128)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.4)

        When to leave it
            Leave it if you tuned the batch size for the result, or if the dataset is small.
        """,
        (*NEEDS, "peak_share", "loader"),
    ),
    Cause(
        "launch-bound",
        """
        The loop runs many small operations, and launching them takes about as long as computing them.

        What it means
            The step consists of many small operations. On a GPU, each finishes before the next one is launched. On a
            CPU, PyTorch takes about as long to reach an operation as to compute it.

        Why it costs you
            The GPU idles between kernels. NVML's utilisation does not show it, because it counts any time in which a
            kernel ran. A CPU is busy but computes little: a batch four times as large takes far less than four times as
            long. The cost is a bound: the time of the phases that launch.

        What to try
            Use a larger batch, which gives each launch more to do. On a GPU, `torch.compile` with
            `mode="reduce-overhead"` replays the launches as one CUDA graph.

        In code
            # sick
            loader = DataLoader(dataset, batch_size=32)
            # cured
            loader = DataLoader(dataset, batch_size=128)
            model = torch.compile(model, mode="reduce-overhead")  # on a GPU

        When to leave it
            Leave it if the model is small on purpose, or if you tuned the batch size for the result.
        """,
        NEEDS,
        ("operation_s", "backward_share", "data_wait_share"),
    ),
)

WAIT_SHARE: Final = 0.20
"""Share of the wall-clock from which on waiting for data limits the loop: a larger batch would wait longer, and a wait
empties the queue by itself."""
OPERATION_S: Final = 30e-6
"""Seconds up to which an operation of a CPU's backward is small: PyTorch takes some 7 to 10 us to reach one."""
FORWARD_TIMES: Final = 1.5
"""Longest time of forward and loss over that of the backward; if they take longer, part of them has no backward."""
MEMORY_SHARE: Final = 0.6
"""Part of the card's memory; a peak below it leaves room for a larger batch."""
ACCUMULATED: Final = 1.9
"""Smallest mean number of micro-batches in a step that counts as accumulation; an incomplete last step lowers the
mean."""
FREE_SHARE: Final = 0.5
"""Part of the card's memory that must be free at the peak: twice the batch then fits, whatever part of the peak grows
with it."""
LARGE_BATCH: Final = 1024
"""Samples from which on a batch is large."""
GRAPHS: Final = Prescription(
    "Launch the compiled model as CUDA graphs",
    Safety.BY_HAND,
    code='model = torch.compile(model, mode="reduce-overhead")',
)
LEFT: Final = Prescription(
    "Leave it, low utilisation is fine here; or try the CPU, which may be as fast",
    Safety.BY_HAND,
    code='device = "cpu"  # model.to(device); batches stay where the loader puts them',
)


def check(vitals: Vitals) -> Finding | None:
    """Reports the cause if a GPU outruns its host, or if a CPU's operations hardly compute.

    Other rules come first if items are computed one by one, or if a debugging aid slows each operation.
    """
    if item_by_item(vitals) or debugging_aids_on(vitals):
        return None
    if not vitals.on_gpu:
        return _on_cpu(vitals)
    cost, wait = launching(vitals), vitals.exposed_wait_share
    if cost is None or wait is None or wait >= WAIT_SHARE or not vitals.gpu_outruns_host:
        return None
    causes = (_accumulates(vitals, cost), _tiny(vitals, cost), _uncompiled(vitals, cost), _small(vitals, cost))
    return next((finding for finding in causes if finding is not None), None) or _plain(vitals, cost)


def _accumulates(vitals: Vitals, cost: float) -> Finding | None:
    """Reports needless accumulation: several micro-batches in a step although a larger batch would fit."""
    peak, loader, batches, total = vitals.peak_share, vitals.loader, vitals.micro_batches, vitals.memory_total_bytes
    if peak is None or loader is None or not loader.batch_size or not batches or batches < ACCUMULATED or not total:
        return None
    used, count = peak + vitals.outside_torch_bytes / total, round(batches)
    if used > 1.0 - FREE_SHARE:
        return None
    # Assume that all memory in use grows with the batch, so that the larger one is certain to fit.
    factor = max(f for f in range(1, count + 1) if count % f == 0 and f * used <= 0.9)
    if factor < 2:
        return None
    size, rest = loader.batch_size * factor, count // factor
    cure = Prescription(
        f"Train with {'one batch' if rest == 1 else f'{rest} batches'} of {size} a step instead of {count} of "
        f"{loader.batch_size}",
        Safety.BY_HAND,
        code=f"DataLoader(..., batch_size={size})\naccumulation_steps = {rest}",
        changes="The same samples in every step; batch normalisation sees more of them at once.",
    )
    headline = f"{count} micro-batches make one step while {formatting.share(1.0 - used)} of the GPU's memory is free"
    memory = f"batch size {loader.batch_size}, peak {formatting.size(peak * total)} of {formatting.size(total)}"
    return _finding(vitals, "needless-accumulation", cost, headline, (memory,), cure)


def _tiny(vitals: Vitals, cost: float) -> Finding | None:
    """Reports a model that is too small for the GPU: its batch is large, or is the whole dataset."""
    inputs, loader = vitals.inputs, vitals.loader
    if inputs is None or not inputs.shape or not vitals.parameters:
        return None
    batch = inputs.shape[0]
    whole = loader is not None and loader.dataset_len is not None and batch >= loader.dataset_len > 1
    if batch < LARGE_BATCH and not whole:
        return None
    content = "the whole dataset" if whole else formatting.count(batch, "sample")
    headline = "Launch-bound even with a large batch: the model is too small to fill this GPU"
    work = f"{content} in a batch and {formatting.grouped(vitals.parameters)} weights"
    fewer = () if vitals.model is None else (GRAPHS if vitals.compiled else COMPILED,)
    return _finding(vitals, "model-too-small", cost, headline, (work,), LEFT, *fewer)


def _uncompiled(vitals: Vitals, cost: float) -> Finding | None:
    """Reports a model that is not compiled although torch.compile is possible."""
    model, inputs = vitals.model, vitals.inputs
    if model is None or inputs is None or not vitals.could_compile:
        return None
    larger = _larger(vitals)
    return _finding(
        vitals,
        "not-compiled",
        cost,
        "Launch-bound and not compiled: kernels finish before Python launches the next",
        (uncompiled(inputs),),
        *((COMPILED, larger) if larger is not None else (COMPILED,)),
    )


def _larger(vitals: Vitals) -> Prescription | None:
    """Prescribes a larger batch; None if the run was out of memory, or its peak leaves no room for one."""
    full = vitals.peak_share is not None and vitals.peak_share >= MEMORY_SHARE
    return None if full or vitals.outcome == "out-of-memory" else larger_batch(vitals)


def _small(vitals: Vitals, cost: float) -> Finding | None:
    """Reports a small batch if the card's memory has room for a larger one."""
    peak, larger = vitals.peak_share, _larger(vitals)
    if peak is None or larger is None or vitals.loader is None:
        return None
    size = vitals.loader.batch_size
    return _finding(
        vitals,
        "small-batch",
        cost,
        f"Launch-bound at batch size {size}: kernels finish before Python launches the next",
        (f"batch size {size} uses {formatting.share(peak)} of the GPU's memory at its peak",),
        larger,
    )


def _plain(vitals: Vitals, cost: float) -> Finding:
    """Builds the finding of a launch-bound loop without a more specific cause."""
    cure = _larger(vitals) or (GRAPHS if vitals.compiled else COMPILED)
    headline = "Launch-bound: kernels finish before Python launches the next"
    return _finding(vitals, "launch-bound", cost, headline, (), cure)


def _finding(
    vitals: Vitals, rule: str, cost: float, headline: str, evidence: tuple[str, ...], *cures: Prescription
) -> Finding:
    """Builds the finding of a cause on a GPU, with the bound and the evidence that all of them share."""
    util = vitals.gpu_util_pct
    utilisation = "" if util is None else f"; NVML utilisation {formatting.percent(util)}"
    caught_up = f"the GPU keeps up with the host's launches in {formatting.share(vitals.caught_up_share)} of its time"
    return Finding(
        rule=rule,
        kind="at-most",
        headline=f"{headline} (at most {formatting.share(cost)} to gain).",
        cost_share=cost,
        evidence=(*evidence, caught_up + utilisation),
        prescriptions=cures,
    )


def _on_cpu(vitals: Vitals) -> Finding | None:
    """Reports a loop on a CPU whose backward consists of small operations, if a larger batch is possible."""
    each_s, wait, step_s = vitals.operation_s, vitals.data_wait_share, vitals.step_wall_s
    backward = vitals.backward_share
    if each_s is None or wait is None or not step_s or not backward or each_s > OPERATION_S or wait >= WAIT_SHARE:
        return None
    ahead = (vitals.forward_share or 0.0) - (vitals.no_grad_share or 0.0) + (vitals.loss_share or 0.0)
    if (vitals.optimizer_share or 0.0) > vitals.passes_share:
        return None  # a slow optimizer has a rule of its own
    larger = larger_batch(vitals, text="Use a larger batch: it gives each operation more to do")
    if ahead > FORWARD_TIMES * backward or larger is None:
        return None  # part of the forward has no backward, or no larger batch is possible
    # At best, operations take no longer for a larger batch. The time that workers need to fetch remains.
    cost = min(vitals.computing_share * (1.0 - 1.0 / TIMES), max(1.0 - fetched_s(vitals) / step_s, 0.0))
    samples = vitals.samples_per_step
    return Finding(
        rule="launch-bound",
        kind="at-most",
        headline=f"The operations are small: each takes {formatting.seconds(each_s)} in the backward, about what "
        f"PyTorch needs to reach one (at most {formatting.share(cost)} to gain).",
        cost_share=cost,
        evidence=(
            f"the backward takes {formatting.seconds(backward * step_s)} a step, {formatting.seconds(each_s)} for "
            f"each of {vitals.setup.graph_operations} operations",
            *((f"{formatting.count(samples, 'sample')} a step",) if samples else ()),
        ),
        prescriptions=(larger,),
    )
