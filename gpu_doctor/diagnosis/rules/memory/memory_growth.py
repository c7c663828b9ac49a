"""Memory grows from step to step until it is full: the loop keeps something of every step.

What it means
    The memory that torch holds on the GPU, or that the process holds on the host, rises at a steady rate. A cache or an
    allocator that warms up would flatten.

Why it costs you
    It is a risk and has no price: it costs nothing until the memory is full. Then the run ends, often after hours. The
    usual cause is a list or a sum that keeps a loss or an output with its whole graph, that is with every activation of
    every step. Or something keeps the batches: a list, a replay memory without a limit, or `itertools.cycle(loader)`,
    which stores the batches of its first pass to repeat them.

What to try
    Keep numbers, not tensors. On a GPU, reading a number in each step makes the loop wait: keep `loss.detach()` there.
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
"""Smallest rise that is reported however far the limit is (TraceML 0.5)."""
SEEN_RISE_BYTES = float(256 << 20)
"""Smallest rise that is reported if no graphs are known to be kept. A smaller one may have other reasons: imports at
the first steps and a heap with changing sizes brought 200 MB within 70 steps (an LSTM on one machine). A heap that
swings further is reported by mistake; the higher this bar is, the later a leak without a known line is reported."""
SEEN_STEPS = 50
"""Fewest steps for which such a rise must have gone on."""
NAMED_RISE_BYTES = float(4 << 20)
"""Smallest rise that is reported if graphs are kept; less may be single pages."""
HORIZON_S = 24 * 3600.0
"""Seconds until the memory is full, beyond which a rise is not reported unless graphs are kept: no notebook's run lasts
longer."""

COUNTED = (
    "alive = weakref.WeakSet()  # before the loop; import weakref\n"
    "alive.add(loss)  # in each step: this, or another tensor of it\n"
    "print(len(alive))  # every 100 steps: does the number rise?"
)
SNAPSHOT = (
    "torch.cuda.memory._record_memory_history()  # before the loop\n"
    "torch.cuda.memory._dump_snapshot('kept.pickle')  # 100 steps later; open it at pytorch.org/memory_viz:\n"
    "# it shows which lines allocated the memory that is still in use"
)
"""Code that shows on a GPU which tensors of earlier steps are kept; `COUNTED` does so on a CPU."""
EVALUATED = Prescription(
    "Run passes that do not train without recording gradients",
    Safety.BY_HAND,
    code="with torch.inference_mode():\n    ...",
)
WRITTEN = Prescription(
    "Write the outputs to a file as they come",
    Safety.BY_HAND,
    code='kept = np.lib.format.open_memmap("outputs.npy", "w+", np.float32, (len(dataset), width))\n'
    "kept[done : done + len(outputs)] = outputs.float().cpu()  # in the loop, instead of appending them\n"
    "done += len(outputs)",
)

CYCLE = "itertools.cycle"
CYCLES = re.compile(r"\bcycle\(")
"""Pattern of a call of `cycle` in a cell's text, used if the object that keeps the batches has no name."""
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
    """Reports growing memory of the GPU or the host, whichever is full first."""
    sides = [side for side in (_side(vitals, "device"), _side(vitals, "host")) if side is not None]
    if not sides:
        return None
    where, rate, rise, steps_to_full = min(sides, key=lambda side: side[3] if side[3] is not None else float("inf"))
    if where == "host" and _by_batches(vitals, rate):
        return _batches(vitals, rate, rise, steps_to_full) if rise >= SEEN_RISE_BYTES else None
    lines = kept_graphs(vitals.source) if vitals.graphs_kept else ()
    if not _worth_reporting(vitals, rise, steps_to_full):
        return None
    place = "the GPU's memory" if where == "device" else "the process's memory"
    named = lines[0] if lines else None
    because = f": line {named.line} keeps `{named.value}` of every step" if named is not None else ""
    if named is None and vitals.graphs_kept:
        because = ": the loop keeps the graph of every step's output"
    cures = (
        (*((EVALUATED,) if vitals.graphs_kept else ()), WRITTEN) if vitals.predicts else _cures(lines, vitals.on_gpu)
    )
    return Finding(
        rule="memory-growth",
        headline=f"Memory grows by {formatting.size(rate)} a step{because}.",
        cost_share=None,
        kind="hint",
        evidence=(
            f"{place} rose by {formatting.size(rise)} during the recording, and the rate does not fall",
            *_alive(vitals),
            *(f"cell line {line.line}: {line.text}" for line in lines[:3]),
        ),
        prescriptions=cures,
        risk=_full(steps_to_full),
    )


def _by_batches(vitals: Vitals, rate: float) -> bool:
    """True if kept batches explain the rise: all followed ones are alive, and it is at least half of their bytes.

    Args:
        vitals: vitals of the run.
        rate: rise of the host's memory, in bytes per step.
    """
    facts = vitals.setup.kept_batches
    if facts is None or not vitals.batches_kept or vitals.graphs_kept:
        return False
    return EXPLAINED * facts.batch_bytes * max(vitals.batches_per_step or 1.0, 1.0) <= rate


def _batches(vitals: Vitals, rate: float, rise: float, steps_to_full: float | None) -> Finding | None:
    """Builds the finding that every batch is kept; None if their keeper is bounded and will drop them.

    Args:
        vitals: vitals of the run.
        rate: rise of the host's memory, in bytes per step.
        rise: rise during the recording, in bytes.
        steps_to_full: steps until the memory is full; None = not known.
    """
    facts = vitals.setup.kept_batches
    if facts is None or facts.bounded:
        return None
    cycles = facts.kind == CYCLE or (not facts.keeper and bool(CYCLES.search(vitals.source)))
    who = f"`{facts.keeper}` ({facts.kind}) keeps every batch" if facts.keeper else "every batch is kept"
    return Finding(
        rule="memory-growth",
        headline=f"Memory grows by {formatting.size(rate)} a step: {who}.",
        cost_share=None,
        kind="hint",
        evidence=(
            f"the process's memory rose by {formatting.size(rise)} during the recording, and the rate does not fall",
            f"all {facts.followed} batches that were followed are still in memory; a batch has "
            f"{formatting.size(facts.batch_bytes)}",
        ),
        prescriptions=(ANEW,) if cycles else (BOUNDED,),
        risk=_end_of_pass(vitals, facts.batch_bytes, steps_to_full) if facts.kind == CYCLE else _full(steps_to_full),
    )


def _end_of_pass(vitals: Vitals, batch_bytes: float, steps_to_full: float | None) -> str:
    """Describes the risk of `itertools.cycle`, which keeps the batches of one pass and then repeats them.

    Args:
        vitals: vitals of the run.
        batch_bytes: mean bytes of a batch.
        steps_to_full: steps until the memory is full; None = not known.
    """
    batches = vitals.loader.batches if vitals.loader is not None else None
    if not batches:
        return "It grows until one whole pass over the loader is kept."
    if steps_to_full is not None and steps_to_full < batches / vitals.rounds - vitals.steps:
        return _full(steps_to_full)
    return f"One whole pass will be kept: {formatting.size(batches * batch_bytes)}."


def _full(steps_to_full: float | None) -> str:
    """Describes the risk of full memory; `steps_to_full` is None if it is not known."""
    if steps_to_full is None:
        return "The memory will be full, and the run will end."
    return f"The memory is full after about {formatting.grouped(float(f'{steps_to_full:.2g}'))} more steps."


def _side(vitals: Vitals, where: str) -> tuple[str, float, float, float | None] | None:
    """Returns where memory grows (`device` or `host`), bytes per step, bytes so far, and steps until it is full.

    None if that memory does not grow.
    """
    names = ("growth_bytes_per_step", "rise_bytes", "steps_to_full")
    rate, rise, steps_to_full = (getattr(vitals, f"{where}_{name}") for name in names)
    return (where, rate, rise, steps_to_full) if rate and rise else None


def _worth_reporting(vitals: Vitals, rise: float, steps_to_full: float | None) -> bool:
    """True if the rise is large and will go on; a cache that fills in the first epoch stops growing with its end.

    Kept graphs count however far the limit is, as nobody keeps them on purpose.

    Args:
        vitals: vitals of the run.
        rise: rise during the recording, in bytes.
        steps_to_full: steps until the memory is full; None = not known.
    """
    if vitals.graphs_kept:
        return rise >= NAMED_RISE_BYTES
    ends = steps_to_full is not None and steps_to_full * (vitals.step_wall_s or 0.0) <= HORIZON_S
    if not ends and rise < LARGE_RISE_BYTES:
        return False
    if vitals.predicts:  # it keeps its predictions on purpose, which is a risk only if memory is full before its end
        return rise >= SEEN_RISE_BYTES and _before_its_end(vitals, steps_to_full)
    if vitals.growth_past_first_epoch or (vitals.workers or 0) > 0:  # workers cache in their own memory
        return rise >= SEEN_RISE_BYTES and vitals.measured_steps >= SEEN_STEPS
    # Within the first epoch a cache of the data looks the same. It matters if even that does not fit.
    return rise >= SEEN_RISE_BYTES and _before_its_end(vitals, steps_to_full)


def _alive(vitals: Vitals) -> tuple[str, ...]:
    """Says that the graphs of all followed steps are still in memory, as evidence; empty if they are not."""
    graphs = vitals.setup.kept_graphs
    if graphs is None or not vitals.graphs_kept:
        return ()
    return (f"the autograd graphs of all {graphs.marked} steps that were followed are still in memory",)


def _before_its_end(vitals: Vitals, steps_to_full: float | None) -> bool:
    """True if the memory will be full before the first pass over the loader ends."""
    batches = vitals.loader.batches if vitals.loader is not None else None
    if not batches or steps_to_full is None:
        return False
    return steps_to_full < batches / vitals.rounds - vitals.steps


def _cures(lines: tuple[Kept, ...], on_gpu: bool) -> tuple[Prescription, ...]:
    """Returns the prescriptions for kept tensors: detach them; if no line is known that keeps them, search first.

    Args:
        lines: lines of the cell that keep tensors with their graphs.
        on_gpu: True if the loop trains on a GPU.
    """
    code = "\n".join(line.cure for line in lines[:3] if line.cure) or "losses.append(loss.item())"
    if on_gpu:  # reading a number would make the loop wait for the GPU
        code = code.replace(".item()", ".detach()")
    first = Prescription("Detach tensors before keeping them", Safety.BY_HAND, code=code)
    if lines:
        return (first, EVALUATED)
    seek = Prescription(
        "Find the lists, sums and dictionaries that keep tensors beyond their step",
        Safety.BY_HAND,
        code=SNAPSHOT if on_gpu else COUNTED,
    )
    return (seek, first)
