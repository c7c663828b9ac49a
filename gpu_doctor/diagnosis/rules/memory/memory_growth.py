"""Memory grows from step to step until it is full: the loop keeps something of every step.

What it means
    The memory that torch holds on the GPU, or that the process holds on the host, rises at a steady rate. A cache or an
    allocator that warms up would flatten.

Why it costs you
    It is a risk and has no price: it costs nothing until the memory is full. Then the run ends, often after hours. The
    usual cause is a list or a sum that keeps a loss or an output with its whole graph, that is every activation of
    every step. Or something keeps the batches: a list, a replay memory without a limit, or `itertools.cycle(loader)`,
    which stores the batches of its first pass to repeat them.

What to try
    Keep numbers, not tensors. On a GPU, where reading a number in each step makes the loop wait, keep `loss.detach()`.
    On a CPU that is not enough, because small tensors that stay alive pin the heap around them. Evaluate under
    `torch.inference_mode()`. If a loop that predicts cannot hold all its outputs, write them to a file as they come.
    Replace `itertools.cycle(loader)` by a generator that restarts the loader, which also shuffles and augments again.
    Limit a memory of past samples: `collections.deque(maxlen=...)`.

In code
    # sick
    losses.append(loss)
    batches = itertools.cycle(loader)
    # cured
    losses.append(loss.item())
    def forever(loader):
        while True:
            yield from loader
    batches = forever(loader)

When to leave it
    Leave it if the growth is intended and ends in time, such as a cache of a dataset that fits.
"""

import re

from gpu_doctor import formatting
from gpu_doctor.cell import Kept, kept_graphs
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.memory import EXPLAINED

NEEDS = ("host_growth_bytes_per_step",)

LARGE_RISE_BYTES = float(1 << 30)
"""A rise that is named however far the limit is (TraceML 0.5)."""
SEEN_RISE_BYTES = float(256 << 20)
"""Where no graphs are known to be kept, a smaller rise may be anything: imports at the first steps, and pieces
of the heap under changing sizes brought 200 MB within 70 steps (an LSTM on one machine). Where a heap swings further,
a growth is named that is none; a leak with no line is named later by as much as this is too high."""
SEEN_STEPS = 50
"""And it must have gone on for so many steps."""
NAMED_RISE_BYTES = float(4 << 20)
"""Where graphs are kept: what a steady rise must bring to be told from single pages."""
HORIZON_S = 24 * 3600.0
"""A rise that needs more than a day to fill the memory is left alone, unless graphs are kept: no notebook's run lasts
longer."""

COUNTED = (
    "alive = weakref.WeakSet()  # before the loop; import weakref\n"
    "alive.add(loss)  # in each step: this, or another tensor of it\n"
    "print(len(alive))  # every 100 steps: does the number rise?"
)
SNAPSHOT = (
    "torch.cuda.memory._record_memory_history()  # before the loop\n"
    "torch.cuda.memory._dump_snapshot('kept.pickle')  # 100 steps later: which lines made what is still there,\n"
    "# as pytorch.org/memory_viz shows it"
)
"""What shows whether the tensors of earlier steps are kept, on a CPU and on a GPU."""
EVALUATED = Prescription(
    "Run passes that do not train without recording gradients",
    Safety.BY_HAND,
    code="with torch.inference_mode():\n    ...",
)
WRITTEN = Prescription(
    "Write the outputs to a file as they come",
    Safety.BY_HAND,
    code='kept = np.lib.format.open_memmap("outputs.npy", "w+", np.float32, (len(dataset), width))\n'
    "kept[done : done + len(outputs)] = outputs.float().cpu()  # in the loop, where they were appended\n"
    "done += len(outputs)",
)

CYCLE = "itertools.cycle"
CYCLES = re.compile(r"\bcycle\(")
"""In the text of a cell whose iterator has no name."""
ANEW = Prescription(
    "Restart the loader instead of repeating stored batches",
    Safety.BY_HAND,
    code="def forever(loader):\n    while True:\n        yield from loader\nbatches = forever(loader)",
    changes="Each pass is shuffled and augmented again.",
)
BOUNDED = Prescription(
    "Keep no whole batches, or limit their number",
    Safety.BY_HAND,
    code="kept = collections.deque(maxlen=1000)  # import collections",
    changes="The oldest are dropped.",
)


def check(vitals: Vitals) -> Finding | None:
    """Fires on the side that is full first: the GPU or the host."""
    sides = [one for one in (_side(vitals, "device"), _side(vitals, "host")) if one is not None]
    if not sides:
        return None
    where, rate, rise, left = min(sides, key=lambda one: one[3] if one[3] is not None else float("inf"))
    if where == "host" and _by_batches(vitals, rate):
        return _batches(vitals, rate, rise, left) if rise >= SEEN_RISE_BYTES else None
    kept = kept_graphs(vitals.source) if vitals.graphs_kept else ()
    if not _told(vitals, rise, left):
        return None
    place = "the GPU's memory" if where == "device" else "the process's memory"
    named = kept[0] if kept else None
    because = f": line {named.line} keeps `{named.value}` of every step" if named is not None else ""
    if named is None and vitals.graphs_kept:
        because = ": the loop keeps the graph of every step's output"
    cures = (*((EVALUATED,) if vitals.graphs_kept else ()), WRITTEN) if vitals.predicts else _cures(kept, vitals.on_gpu)
    return Finding(
        rule="memory-growth",
        headline=f"Memory grows by {formatting.size(rate)} a step{because}.",
        cost_share=None,
        kind="hint",
        evidence=(
            f"{place} rose by {formatting.size(rise)} during the recording, and the rate does not fall",
            *_alive(vitals),
            *(f"cell line {one.line}: {one.text}" for one in kept[:3]),
        ),
        prescriptions=cures,
        risk=_full(left),
    )


def _by_batches(vitals: Vitals, rate: float) -> bool:
    """Whether kept batches explain the rise: all that were followed live on, and it is no less than half of theirs."""
    kept = vitals.setup.kept_batches
    if kept is None or not vitals.batches_kept or vitals.graphs_kept:
        return False
    return EXPLAINED * kept.batch_bytes * max(vitals.batches_per_step or 1.0, 1.0) <= rate


def _batches(vitals: Vitals, rate: float, rise: float, left: float | None) -> Finding | None:
    """Every batch that the loader delivers is kept; None by what forgets them in time."""
    kept = vitals.setup.kept_batches
    if kept is None or kept.bounded:
        return None
    cycles = kept.kind == CYCLE or (not kept.keeper and bool(CYCLES.search(vitals.source)))
    who = f"`{kept.keeper}` ({kept.kind}) keeps every batch" if kept.keeper else "every batch is kept"
    return Finding(
        rule="memory-growth",
        headline=f"Memory grows by {formatting.size(rate)} a step: {who}.",
        cost_share=None,
        kind="hint",
        evidence=(
            f"the process's memory rose by {formatting.size(rise)} during the recording, and the rate does not fall",
            f"all {kept.followed} batches that were followed are still in memory; a batch has "
            f"{formatting.size(kept.batch_bytes)}",
        ),
        prescriptions=(ANEW,) if cycles else (BOUNDED,),
        risk=_end_of_pass(vitals, kept.batch_bytes, left) if kept.kind == CYCLE else _full(left),
    )


def _end_of_pass(vitals: Vitals, batch_bytes: float, left: float | None) -> str:
    """What becomes of the memory of a `cycle`, which keeps one pass and then repeats it."""
    batches = vitals.loader.batches if vitals.loader is not None else None
    if not batches:
        return "It grows until one whole pass over the loader is kept."
    if left is not None and left < batches / vitals.rounds - vitals.steps:
        return _full(left)
    return f"One whole pass will be kept: {formatting.size(batches * batch_bytes)}."


def _full(left: float | None) -> str:
    if left is None:
        return "The memory will be full, and the run will end."
    return f"The memory is full after about {formatting.grouped(float(f'{left:.2g}'))} more steps."


def _side(vitals: Vitals, where: str) -> tuple[str, float, float, float | None] | None:
    names = ("growth_bytes_per_step", "rise_bytes", "steps_to_full")
    rate, rise, left = (getattr(vitals, f"{where}_{name}") for name in names)
    return (where, rate, rise, left) if rate and rise else None


def _told(vitals: Vitals, rise: float, left: float | None) -> bool:
    """Whether the rise is one that goes on: what the first epoch caches ends with it.

    Graphs that were seen to outlive their steps are never meant to be kept, however far the limit is.
    """
    if vitals.graphs_kept:
        return rise >= NAMED_RISE_BYTES
    ends = left is not None and left * (vitals.step_wall_s or 0.0) <= HORIZON_S
    if not ends and rise < LARGE_RISE_BYTES:
        return False
    if vitals.predicts:  # what it is there for is kept until its end: a threat only where that comes too late
        return rise >= SEEN_RISE_BYTES and _before_its_end(vitals, left)
    if vitals.growth_past_first_epoch or (vitals.workers or 0) > 0:  # workers cache in their own memory
        return rise >= SEEN_RISE_BYTES and vitals.measured_steps >= SEEN_STEPS
    # Within the first epoch a cache of the data looks alike. It matters if even that does not fit.
    return rise >= SEEN_RISE_BYTES and _before_its_end(vitals, left)


def _alive(vitals: Vitals) -> tuple[str, ...]:
    """What was seen of the graphs, where all are kept."""
    graphs = vitals.setup.kept_graphs
    if graphs is None or not vitals.graphs_kept:
        return ()
    return (f"the autograd graphs of all {graphs.marked} steps that were followed are still in memory",)


def _before_its_end(vitals: Vitals, left: float | None) -> bool:
    """Whether the memory is full before the loader has been run through once."""
    batches = vitals.loader.batches if vitals.loader is not None else None
    if not batches or left is None:
        return False
    return left < batches / vitals.rounds - vitals.steps


def _cures(kept: tuple[Kept, ...], on_gpu: bool) -> tuple[Prescription, ...]:
    code = "\n".join(one.cure for one in kept[:3] if one.cure) or "losses.append(loss.item())"
    if on_gpu:  # a number would have to be waited for
        code = code.replace(".item()", ".detach()")
    first = Prescription("Detach tensors before keeping them", Safety.BY_HAND, code=code)
    if kept:
        return (first, EVALUATED)
    seek = Prescription(
        "Find the lists, sums and dictionaries that keep tensors beyond their step",
        Safety.BY_HAND,
        code=SNAPSHOT if on_gpu else COUNTED,
    )
    return (seek, first)
