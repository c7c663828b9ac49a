"""The loop makes its own batches, without a DataLoader, and trains nothing while it does.

What it means
    Batches come from a generator, a list of files, or code at the top of the step: the same thread first makes the
    batch and then trains on it. The lines that make it are told from the text of the cell: what the model's input
    depends on, and what gets the labels. Targets that the step computes for the loss alone from data that is there
    already (anchors assigned to boxes, rewards discounted) are its own Python: see slow-python. Or a thread of your own
    makes batches and puts them into a queue, and the queue is empty.

Why it costs you
    Making a batch and training on the one before could happen at the same time, in two processes.

What to try
    Put the generator into a `DataLoader` as it is: with one worker it runs ahead of the training. Where batch `i` can
    be made by itself, a Dataset lets several workers share the work. Or make a batch cheaper: vectorise, preprocess; a
    batch of some ms costs about as much to hand over from a worker as it costs to make. If a queue runs empty, fill it
    with more threads where these wait (for a disk, a server), with worker processes where they compute: Python lets
    only one thread compute at a time.

When to leave it
    When the next batch depends on what the model just did (reinforcement learning, active learning).
"""

import math
import re
from dataclasses import replace

from gpu_doctor import formatting
from gpu_doctor.cell import batch_lines, elsewhere_lines
from gpu_doctor.diagnosis.forecast.forecast import WORKERS_PER_CORE
from gpu_doctor.diagnosis.forecast.removed_work import MOST
from gpu_doctor.diagnosis.rules.compute import per_sample_forward
from gpu_doctor.diagnosis.rules.evidence import dearest_lines
from gpu_doctor.diagnosis.rules.python_pace import pace
from gpu_doctor.diagnosis.rules.rule import RESIDUAL_SHARE, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.lines import part, total
from gpu_doctor.recording import LineCost

NEEDS = ("other_share", "backward_share", "step_wall_s")

CHEAP_S = 4e-4
"""A batch made in less is as cheap as one gets: it is cut out of arrays (0.02 to 0.3 ms for 32 to 256 rows on
one machine, on others as much longer as Python takes there)."""
STREAM = """\
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from batches()  # your generator, as it is
loader = torch.utils.data.DataLoader(Stream(), batch_size=None, num_workers=1)
for batch in loader: ..."""
DATASET = """\
class Batches(torch.utils.data.Dataset):
    def __len__(self):
        return steps
    def __getitem__(self, i):
        return make_batch(i)  # what your loop does for batch i
loader = torch.utils.data.DataLoader(Batches(), batch_size=None, num_workers={workers})"""
READERS = """\
for part in range({times} * readers):  # each reads a part of the data
    threading.Thread(target=fill, args=(queue, part), daemon=True).start()"""
TAKEN_FROM = re.compile(r"\.(get\(\s*(\)|timeout\b|block\b|True\b)|get_nowait\(|result\(|recv\()")
"""Text of a line that takes something out of a queue, or from another thread or process (a dict's `get` has a key)."""
HARDLY = 0.5
"""A way out that saves less than half of what the next one does is not said first."""
MOSTLY = 0.5
CHEAPER = 2.0
LEFT_OF_MAKING = 0.1
"""Vectorised, a batch that is made by a Python loop over its elements takes a tenth of the time or less (see
slow-python); that is said first where workers would leave twice as much of the step."""
UNFAIR = 2.0
"""So many times its fair turn a thread may wait for a core: the load is a minute's mean, and knows no priorities."""
WHOLE = 0.05
"""Of a worker: 4.03 of them are 4."""


def making_share(vitals: Vitals) -> float:
    """Share of the wall-clock that the loop's own making of batches takes outside of every phase, 0..1."""
    return min(total(making_lines(vitals)), vitals.other_share or 0.0)


def making_lines(vitals: Vitals) -> list[LineCost]:
    """Lines outside of every phase in which a loop without a loader makes its batches, dearest first."""
    if vitals.loader is not None:
        return []
    found = batch_lines(vitals.source, vitals.lines, vitals.model_names)
    named = [one for one in found if one.phase == "other" and not one.in_worker]
    beyond = elsewhere_lines(vitals.source, vitals.lines, vitals.model_names)
    more = [one for one in beyond if one.phase == "other" and not one.in_worker and one not in named]
    # What the cell's text knows nothing of may also be the loss: that is as long as the clock says.
    in_turn = per_sample_forward.calls_in_turn(vitals)  # a policy that is asked makes no batch
    named, more = ([one for one in found if one not in in_turn] for found in (named, more))
    told = any(one.before_backward for one in vitals.lines)
    more = [one for one in more if not one.before_backward]
    whole = total(more)
    if (left := whole - (0.0 if told else vitals.loss_share or 0.0)) > 0:
        named += [replace(one, share=one.share * left / whole) for one in more]
    return sorted(named, key=lambda one: -one.share)


def check(vitals: Vitals) -> Finding | None:
    """Fires where a loop without a loader spends at least 10 % on lines that make its batches."""
    step_s, other = vitals.host_step_s, vitals.other_share
    if vitals.loader is not None or step_s is None or other is None:
        return None
    # Not without the loss: what follows a second forward counts as such until the next backward, batches included.
    share = making_share(vitals)
    if vitals.on_gpu:
        if vitals.gpu_gap_share is None:
            return None
        share = min(share, max(vitals.gpu_idle_at_most - (vitals.exposed_transfer_share or 0.0), 0.0))
    if share < RESIDUAL_SHARE or share * step_s < CHEAP_S * pace(vitals):
        return None
    ways = _ways_out(vitals, min(share, MOST), step_s)
    if not ways:
        return None
    waited = f"The loop waits for the queue that its batches come from: {formatting.share(share)} of the time."
    made = f"The loop makes its batches itself: {formatting.share(share)} of the time, in which it does not "
    made += "predict." if vitals.predicts else "train."
    return Finding(
        rule="slow-generator",
        headline=waited if _handed_on(vitals) else made,
        cost_share=share,
        evidence=(
            f"{formatting.seconds(share * step_s)} of every step of {formatting.seconds(step_s)}; no DataLoader is "
            "used",
            *dearest_lines(making_lines(vitals), vitals.source),
        ),
        prescriptions=ways,
    )


def _ways_out(vitals: Vitals, share: float, step_s: float) -> tuple[Prescription, ...]:
    """With one worker the longer of making and training is left of a step, with many the training, if cores suffice.

    Empty where no worker gains anything, and a CPU computes the whole batch in a few operations already.
    """
    vectorise = Prescription(
        text="Make a batch cheaper: vectorise over the batch, or preprocess once and store the result",
        safety=Safety.BY_HAND,
        code="x = torch.from_numpy(stored[indices])  # one indexing a batch",
    )
    workers = _workers(vitals, share, step_s)
    several = _by_workers(
        *(vitals, share, step_s, workers),
        "If each batch can be made independently: a Dataset with several workers",
        DATASET.format(workers=workers),
    )
    if _handed_on(vitals):  # it runs ahead of the training already: one worker would do no better
        readers = _by_readers(vitals, share, step_s, workers)
        return (*(one for one in (readers, several) if one is not None), vectorise)
    alone = _by_workers(vitals, share, step_s, 1, "Let one worker run the generator ahead of the loop", STREAM)
    ways = [one for one in (alone, several) if one is not None]
    if several is not None and (alone is None or _saves(alone) < HARDLY * min(share, _saves(several))):
        ways.reverse()  # making is so much of a step that doing it beside the training saves hardly anything
    if _vectorised(vitals):
        return tuple(ways)
    # Where even a worker that runs ahead gains nothing, a batch that computes has to become cheaper: that is the cure.
    sooner = alone is not None or (several is not None and _waits(vitals, share, step_s))
    left = min((1.0 - _saves(one) for one in ways), default=1.0)
    cheaper = CHEAPER * (1.0 - share + LEFT_OF_MAKING * share) < left and not _waits(vitals, share, step_s)
    return (*ways, vectorise) if sooner and not cheaper else (vectorise, *ways)


def _vectorised(vitals: Vitals) -> bool:
    """Whether batches are mostly made by operations on whole tensors, where they run: on the CPU."""
    lines = making_lines(vitals)
    return not vitals.on_gpu and part((one for one in lines if one.computes), lines) > MOSTLY


def _saves(one: Prescription) -> float:
    """Of the wall-clock."""
    return 1.0 - 1.0 / (one.predicted_speedup or 1.0)


def _handed_on(vitals: Vitals) -> bool:
    """Whether the lines that make the batches mostly take them out of a queue, which a thread of the user's fills."""
    lines = making_lines(vitals)
    return part((one for one in lines if TAKEN_FROM.search(one.text)), lines) > MOSTLY


CPU_BOUND = 0.5
SATURATED = 0.85


def _computing(vitals: Vitals, share: float, step_s: float) -> float:
    """Of the time in which batches are made, the part in which the process computes or queues for a core.

    On a busy machine a second of CPU takes a computing thread as many as there are threads for a core. 1 where nobody
    counted.
    """
    cpu_s, slower = vitals.consumer_cpu_s, 1.0
    if (vitals.cpu_util_pct or 0.0) >= 100.0 * SATURATED:
        if vitals.load_average is None:
            return 1.0
        slower = max(UNFAIR * vitals.load_average / max(vitals.usable_cores, 1.0), 1.0)
    return 1.0 if cpu_s is None else (cpu_s * slower - (1.0 - share) * step_s) / (share * step_s)


def _waits(vitals: Vitals, share: float, step_s: float) -> bool:
    """Whether making a batch waits (a disk, a server) rather than computes."""
    return _computing(vitals, share, step_s) < CPU_BOUND


def _workers(vitals: Vitals, share: float, step_s: float) -> int:
    """As many as make a batch in the time of training on one: of those that compute no more than there are cores."""
    needed = math.ceil(share / (1.0 - share) - WHOLE)
    most = int(vitals.usable_cores) * (WORKERS_PER_CORE if _waits(vitals, share, step_s) else 1)
    return max(2, min(most, needed))


def _by_readers(vitals: Vitals, share: float, step_s: float, times: int) -> Prescription | None:
    """What so many times the readers give where they wait; None where they compute: Python lets only one do so."""
    if not _waits(vitals, share, step_s):
        return None
    return Prescription(
        text=f"Fill the queue with {times} times as many threads: they can wait at the same time",
        safety=Safety.BY_HAND,
        code=READERS.format(times=times),
    )


def _by_workers(vitals: Vitals, share: float, step_s: float, workers: int, text: str, code: str) -> Prescription | None:
    """Workers that make the batches; None where no core is free for one that computes."""
    if vitals.usable_cores < 2 and not _waits(vitals, share, step_s):
        return None
    return Prescription(text, Safety.BY_HAND, code=code)
