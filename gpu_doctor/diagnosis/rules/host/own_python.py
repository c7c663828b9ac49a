"""Rule for time in which the loop runs its own code and nothing trains; the place of the code decides the cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import chore_line, costliest_lines, joined, phases
from gpu_doctor.diagnosis.rules.rule import RESIDUAL_SHARE, Cause, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals import own_code
from gpu_doctor.diagnosis.vitals.debugging import debugging_aids_on
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.lines import part, total
from gpu_doctor.recording import LineCost
from gpu_doctor.recording.setup import Chore

SLOW_PYTHON: Final = """
The loop's own code (logging, metrics, copies, batches made by hand) takes time in which nothing trains.

What it means
    Besides loading, forward, backward and optimizer, the loop runs code of its own: in each step, between epochs, or
    between forward and backward. Its time is measured, and samples of the running loop name its lines. Copies and
    conversions of tensors on these lines count too. On a GPU so does a line that waits for it, such as `x[mask]` or
    `torch.nonzero(x)`: the size of its result depends on values that the GPU has yet to compute.

Why it costs you
    The device has nothing to do meanwhile, unless a GPU still has work queued. The cost is this time.

What to try
    Run it every n steps, move it out of the loop, or handle the whole batch in one call instead of one call per sample.
    If something is the same in every epoch (a conversion, a sort), do it once before the loop. Instead of selecting
    with a mask, keep the size: `torch.where(mask, x, 0)`.

In code
    # sick
    writer.add_histogram("weights", model.head.weight, step)
    # cured
    if step % 100 == 0:
        writer.add_histogram("weights", model.head.weight, step)

When to leave it
    Leave it if the line is part of the training. In a loop that computes without modules, or that updates its
    parameters itself, only plain Python counts here, because the rest looks the same as training.
"""
SLOW_GENERATOR: Final = """
The loop pulls its batches from your generator, and trains nothing while it makes them.

What it means
    The lines are in a generator, or in an iterator's `__next__`, that the loop pulls from. It runs on the training
    thread: first it makes the batch, then the loop trains on it.

Why it costs you
    Making a batch and training on the one before could happen at the same time, in two processes. The cost is the time
    that making the batches takes.

What to try
    Put the generator into a `DataLoader` as it is: with one worker it runs ahead of the training. If any batch can be
    made without the ones before it, write a Dataset, and several workers share the work. Or make a batch cheaper:
    vectorise, or preprocess once.

In code
    # sick
    for batch in batches(): ...
    # cured
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from batches()
    for batch in DataLoader(Stream(), batch_size=None, num_workers=1): ...

When to leave it
    Leave it if the next batch depends on what the model just did (reinforcement learning, active learning), or if
    making a batch takes no longer than receiving it from a worker.
"""
AUGMENTATION: Final = """
The training thread works on each batch between the loader and the forward (augments, decodes, encodes).

What it means
    These lines run after the loader has delivered the batch and before the model is called.

Why it costs you
    The training waits for them in every step. The loader's workers could do the same work during the training, on other
    cores. The cost is the time of these lines.

What to try
    If the code handles one sample at a time in Python, handle the whole batch in one call. Then move it into the
    dataset's `__getitem__` or into `collate_fn`, where workers run it. With a GPU, run tensor operations after
    `.to(device)`.

In code
    # sick
    for x, y in DataLoader(dataset, batch_size=64, num_workers=2):
        x = augment(x)
    # cured
    def collate(samples):  # runs in the workers
        x, y = torch.utils.data.default_collate(samples)
        return augment(x), y
    loader = DataLoader(dataset, batch_size=64, num_workers=2, collate_fn=collate)

When to leave it
    Leave it if the training itself keeps all cores busy: workers would take cores away from it.
"""
IN_FORWARD: Final = """
Plain Python runs inside the model's forward or backward: statistics, checks, loops over values.

What it means
    On these lines of a module, a hook or an autograd function, the Python interpreter runs and no torch operator
    computes. This is measured, not read from the code: the sampler had to wait for Python's lock.

Why it costs you
    The lines run in every step. They often fetch values from the device, or turn tensors into Python numbers one by
    one. In the anatomy of a step their time counts as forward or backward. The cost is their time.

What to try
    Take statistics out, or compute them every n steps, on the device and for the whole tensor at once. To find a NaN,
    use `torch.autograd.detect_anomaly()` for a few steps. Compute whatever is the same in every step once, in
    `__init__`.

In code
    # sick
    counts = [sum(v == k for v in labels.tolist()) for k in range(10)]
    # cured
    counts = torch.bincount(labels, minlength=10)

When to leave it
    Leave it while you debug the model, for a few steps.
"""
CHECKPOINT: Final = """
The loop stands still while `torch.save` writes a checkpoint.

What it means
    `torch.save` copies every tensor to the host and writes it to the file before it returns. The training thread does
    nothing else meanwhile, and a GPU runs out of work.

Why it costs you
    A checkpoint with Adam's state is three times as large as the parameters, and a network disk is slow. The cost is
    the time that the calls took.

What to try
    Save by the clock, such as every 15 minutes, and not by the step. Write to a local disk and let a background process
    copy the file. Or copy the tensors to the host and save them on another thread
    (`torch.distributed.checkpoint.async_save`).

In code
    # sick
    torch.save(model.state_dict(), path)  # every 100 steps
    # cured
    if time.monotonic() - saved_at > 900:  # every 15 minutes
        torch.save(model.state_dict(), path)
        saved_at = time.monotonic()

When to leave it
    Leave it if a crash would cost more than the checkpoints do, or if the run is short.
"""
GARBAGE: Final = """
The loop calls `gc.collect()` again and again, and each call walks through all of Python's objects.

What it means
    `gc.collect()` looks for reference cycles among all objects of the process. torch and the packages that it imports
    alone create some hundred thousand. Tensors do not need it: their memory is freed as soon as nothing refers to them.

Why it costs you
    Each call takes longer the more objects the process has, and nothing trains meanwhile. The cost is the time that the
    calls took.

What to try
    Take the call out of the loop. If memory grows without it, something keeps references, often `losses.append(loss)`
    without `.item()`: cure that. If a library makes the call, `gc.freeze()` before the training exempts all objects
    that exist by then.

In code
    # sick
    for batch in loader:
        train(batch)
        gc.collect()
    # cured
    for batch in loader:
        train(batch)

When to leave it
    Leave it between two experiments. If the loop's objects do form cycles, call it every few hundred steps.
"""
CACHE: Final = """
The loop calls `torch.cuda.empty_cache()` in most steps and gives away memory that the next step needs.

What it means
    torch keeps freed GPU memory for the next tensor. `empty_cache` waits for the GPU and returns this memory to the
    driver, and the next step has to request it again. torch gains no memory by it.

Why it costs you
    The call waits until the GPU has finished. Then `cudaFree` and, in the next step, `cudaMalloc` run once for every
    block. The cost is the time of the calls alone; the step after each call is slower too.

What to try
    Take the call out of the loop. If the run is then out of memory, the memory is fragmented: try
    `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.

In code
    # sick
    for batch in loader:
        train(batch)
        torch.cuda.empty_cache()
    # cured
    for batch in loader:
        train(batch)

When to leave it
    Leave a single call between two phases of different shapes, such as training and a large evaluation: it can prevent
    fragmentation. This rule has not run on a real GPU yet.
"""
_CLOCK: Final = ("other_share", "step_wall_s")
_CALLS: Final = ("chores", "run_s", "steps_per_s")
CAUSES: Final = (
    Cause("slow-python", SLOW_PYTHON, _CLOCK),
    Cause("slow-generator", SLOW_GENERATOR, _CLOCK),
    Cause("augmentation-in-loop", AUGMENTATION, (*_CLOCK, "loader")),
    Cause("python-in-forward", IN_FORWARD, ("forward_share", "step_wall_s")),
    Cause("checkpoint-stall", CHECKPOINT, _CALLS),
    Cause("garbage-collected-each-step", GARBAGE, _CALLS),
    Cause("cache-emptied-each-step", CACHE, (*_CALLS, "gpu")),
)

FEWEST_CALLS: Final = 2
"""Fewest calls that show how often they come; a single one (`if step % 1000 == 0` in a run of 50 steps) does not."""
MOST_STEPS: Final = 0.5
"""Part of the steps in which the cache must be emptied; in fewer, it may be emptied between two phases on purpose."""
LONGEST: Final = 70
"""Most characters of a line of code in a headline."""
MOSTLY: Final = 0.8
"""Part of a finding's time from which on one line stands for all of it in the headline."""

STREAM: Final = """\
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from batches()  # your generator, as it is
loader = torch.utils.data.DataLoader(Stream(), batch_size=None, num_workers=1)
for batch in loader: ..."""
COLLATE: Final = """\
def collate(samples):  # in the workers
    x, y = torch.utils.data.default_collate(samples)
    return augment(x), y  # what the loop does to the batch
loader = torch.utils.data.DataLoader(dataset, batch_size={batch}, num_workers=2, collate_fn=collate)"""
BY_CLOCK: Final = """\
import time
saved_at = time.monotonic()  # before the loop
if time.monotonic() - saved_at > 900:  # in the loop, by the clock: 15 minutes
    torch.save(state, path)
    saved_at = time.monotonic()"""
ASIDE: Final = """\
import copy, threading
def snapshot(tree):  # a copy on the host; the training may go on
    return {k: v.detach().to("cpu", copy=True) if isinstance(v, torch.Tensor)
            else snapshot(v) if isinstance(v, dict) else copy.deepcopy(v) for k, v in tree.items()}
threading.Thread(target=torch.save, args=(snapshot(model.state_dict()), path)).start()"""


def check(vitals: Vitals) -> Sequence[Finding]:
    """Reports the loop's own code outside the phases, Python inside them, and costly calls; no second counts twice."""
    return (*_outside(vitals), *_in_passes(vitals), *_calls(vitals))


def _outside(vitals: Vitals) -> Iterator[Finding]:
    """Divides the time outside the phases among causes by their lines; yields each that takes a tenth of the time."""
    lines = own_code.outside_lines(vitals)
    share = own_code.outside_share(vitals)
    if own_code.disturbed(vitals, share):
        return
    pulled = [line for line in lines if line.pulled]
    fed = [line for line in lines if line.before_forward and not line.pulled and vitals.loader is not None]
    rest = share
    for cause, cause_lines, cures in (
        ("slow-generator", pulled, (_by_hand("Let one worker run the generator ahead of the loop", STREAM), CHEAPER)),
        ("augmentation-in-loop", fed, _prepared(vitals)),
    ):
        cause_share = share * part(cause_lines, lines)
        if cause_share >= RESIDUAL_SHARE and vitals.sampled_enough(total(cause_lines)):
            rest -= cause_share
            lines = [line for line in lines if line not in cause_lines]
            yield _finding(vitals, cause, cause_share, cause_lines, cures)
    if rest >= RESIDUAL_SHARE:
        yield _finding(vitals, "slow-python", rest, lines, (SELDOM,))


def _in_passes(vitals: Vitals) -> Iterator[Finding]:
    """Yields the finding on Python inside the computing phases; on a GPU only if that GPU outruns its host.

    It yields nothing while a debugging aid is on, which runs Python at each operation: the time is then the aid's.
    """
    if debugging_aids_on(vitals):
        return
    share = own_code.passes_share(vitals)
    if vitals.on_gpu:
        share = min(share, vitals.launching_share or 0.0) if vitals.gpu_outruns_host else 0.0
    if share >= RESIDUAL_SHARE and not own_code.disturbed(vitals, share):
        yield _finding(vitals, "python-in-forward", share, own_code.passes_lines(vitals), (IN_INIT,))


def _finding(
    vitals: Vitals, cause: str, share: float, lines: Sequence[LineCost], cures: tuple[Prescription, ...]
) -> Finding:
    """Builds the finding of a cause from its share of the wall-clock, 0..1, and its lines."""
    step_s = vitals.host_step_s or 0.0
    return Finding(
        rule=cause,
        headline=f"{formatting.share(share)} of the time {_predicate(vitals, cause, share, lines)}.",
        cost_share=share,
        evidence=(
            f"{formatting.seconds(share * step_s)} of each step of {formatting.seconds(step_s)}, on average",
            *costliest_lines(lines, vitals.source),
        ),
        prescriptions=cures,
    )


def _predicate(vitals: Vitals, cause: str, share: float, lines: Sequence[LineCost]) -> str:
    """Completes the headline `31 % of the time ...`: where the code is, and its costliest line."""
    computing = list(dict.fromkeys(line.phase for line in lines)) or ["forward"]
    where = {
        "slow-generator": "goes into making batches in your generator",
        "augmentation-in-loop": "goes into changing the loader's batch before the forward",
        "python-in-forward": f"is plain Python inside {joined(computing)}",
    }.get(cause, f"is your own code outside {joined(('loading', *phases(vitals)))}")
    texts: dict[str, float] = {}
    for line in lines:
        if line.text:
            texts[line.text] = texts.get(line.text, 0.0) + line.share
    if not texts:
        return where
    text = max(texts, key=lambda line: texts[line])
    shown = f"`{text if len(text) <= LONGEST else text[: LONGEST - 3] + '...'}`"
    fraction = texts[text] / total(lines)
    return f"{where}: {shown}" if fraction >= MOSTLY else f"{where}, {formatting.share(share * fraction)} on {shown}"


def _by_hand(text: str, code: str) -> Prescription:
    """Returns a prescription that is done by hand."""
    return Prescription(text, Safety.BY_HAND, code=code)


SELDOM: Final = _by_hand(
    "Run it every n steps, once before the loop, or for the whole batch in one call",
    "if step % 100 == 0:\n    ...",
)
CHEAPER: Final = _by_hand(
    "Make a batch cheaper: vectorise over the batch, or preprocess once and store the result",
    "x = torch.from_numpy(stored[indices])  # one indexing per batch",
)
IN_INIT: Final = _by_hand(
    "Take it out of the forward, run it every n steps, or compute constants once",
    "if self.step % 100 == 0:  # in the forward\n    ...\n"
    'self.register_buffer("anchors", make_anchors())  # in __init__',
)


def _prepared(vitals: Vitals) -> tuple[Prescription, ...]:
    """Returns the prescriptions for work on the loader's batch: in the workers, or, with a GPU, on the GPU."""
    size = vitals.loader.batch_size if vitals.loader is not None else None
    device = _by_hand(
        "Run tensor operations after the copy to the GPU", "x = augment(x.to(device, non_blocking=True))  # on the GPU"
    )
    workers = _by_hand(
        "Let the loader's workers do it during the training, for the whole batch in one call",
        COLLATE.format(batch=size or "batch"),
    )
    return (workers, device) if vitals.on_gpu else (workers,)


# ---- costly calls ---------------------------------------------------------------------------------------------------


def _calls(vitals: Vitals) -> Iterator[Finding]:
    """Yields a finding for each kind of costly call (a checkpoint, `gc.collect`, `empty_cache`) that comes often."""
    for chore in vitals.chores or ():
        share = min(vitals.chore_share(chore.kind) or 0.0, 1.0)
        frequent = chore.calls >= FEWEST_CALLS
        if chore.kind == "empty-cache":
            frequent = vitals.on_gpu and chore.calls >= MOST_STEPS * vitals.steps
        if not frequent or chore.kind not in COSTLY:
            continue
        cause, headline, called, cures = COSTLY[chore.kind]
        if chore.kind == "collect-garbage" and chore.text and "collect" not in chore.text:
            cures = (EXEMPT,)
        yield Finding(
            rule=cause,
            headline=headline.format(share=formatting.share(share)),
            cost_share=share,
            evidence=(_counted(chore, called, vitals.steps), *chore_line(chore)),
            prescriptions=cures,
        )


def _counted(chore: Chore, called: str, steps: int) -> str:
    """Says how often a call was made, how long each took and for how many bytes, as evidence."""
    size = "" if chore.nbytes != chore.nbytes else f" for {formatting.size(chore.nbytes / chore.calls)}"
    each = formatting.seconds(chore.wall_s / chore.calls)
    return f"{called} {chore.calls} times in {steps} steps, {each} each{size}"


EXEMPT: Final = _by_hand(
    "A library calls it: exempt the objects that exist before the training",
    "gc.collect()\ngc.freeze()  # before the training",
)
COSTLY: Final = {
    "checkpoint": (
        "checkpoint-stall",
        "Saving checkpoints takes {share} of the time, in which nothing trains.",
        "saved",
        (
            _by_hand("Save less often, and to a local disk", BY_CLOCK),
            _by_hand("Copy the tensors to the host and write the file on another thread", ASIDE),
        ),
    ),
    "collect-garbage": (
        "garbage-collected-each-step",
        "Collecting garbage by hand takes {share} of the time.",
        "gc.collect() was called",
        (_by_hand("Take gc.collect() out of the loop", "# gc.collect()"),),
    ),
    "empty-cache": (
        "cache-emptied-each-step",
        "Emptying the GPU's memory cache takes {share} of the time, and slows the next step too.",
        "empty_cache() was called",
        (_by_hand("Take empty_cache() out of the loop", "# torch.cuda.empty_cache()"),),
    ),
}
"""Kind of call -> its cause, the headline, the verb for its count, and the prescriptions."""
