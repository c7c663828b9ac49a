"""Much of every batch is padding, which the model computes like anything else.

What it means
    Samples of different lengths are padded to one length: to a constant (`max_length`), or to the longest sample of the
    batch. How much is padding is read off some batches as the loader hands them over: by their mask where they have
    one, else by the run of one value in which rows end.

Why it costs you
    Layers compute every position, and attention every pair of them; a mask only throws the results away. What is priced
    grows with the length; attention grows with its square and makes it more.

What to try
    Pad to the longest sample of the batch, in `collate_fn`: `pad_sequence`, `DataCollatorWithPadding`, `padding=True`
    rather than `padding="max_length"`. Then draw samples of like length into one batch (`group_by_length=True` in
    transformers, a sampler of buckets), or pack several into one row. With torch.compile or `cudnn.benchmark` round the
    length up to a multiple of 64, so that there are few shapes. GPU: not yet run on one.

When to leave it
    When the model needs a constant length (a layer over all positions at once), or compiled shapes must not change.
    Batches by length are drawn in another order: shuffle the batches.
"""

import re

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.removed_work import Gain, at_best
from gpu_doctor.diagnosis.rules import gpu_pace, passes
from gpu_doctor.diagnosis.rules.rule import NAMING_BAR, Finding, Prescription, Safety, faster
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording.setup import Padding

NEEDS = ("forward_share", "backward_share", "inputs", "padding")

LOOKED_AT = 3
"""Batches that must have been seen: one may happen to be short."""
PADDED_SHARE = 0.2
"""Of the positions: sorting by length leaves some padding, and a text now and then is long."""
OFTEN = 0.5
"""Part of the batches that must be padded."""
FEWER, MORE = 0.85, 1.1
"""Ends of an expectation, of what is to go: short rows fill the processor's units less well, but fit into its caches
(on one thread of a busy machine convolutions over speech saved 0.60 and 0.67 of the time where 0.63 were foretold, a
small language model 0.64 to 0.72 for 0.68)."""
SHIFTED = 1
"""Positions that a language model's input is shorter than its batch: the last token is only a target."""
UNPADS = re.compile(r"pack_padded_sequence|pack_sequence|(?<!enable_)nested_tensor|cu_seqlens|varlen")
"""In the text of a cell that computes without padding."""
BY_LENGTH = (
    "Draw samples of like length into one batch, and shuffle the batches",
    "order = sorted(range(len(lengths)), key=lengths.__getitem__)  # lengths: of all samples\n"
    "batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]\n"
    "random.shuffle(batches)\n"
    "loader = DataLoader(dataset, batch_sampler=batches, collate_fn=collate)",
)
TO_LONGEST = (
    "Pad each batch to its own longest sample",
    "def collate(samples):  # with a tokenizer: DataCollatorWithPadding(tokenizer), and no padding before it\n"
    "    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True, padding_value=PAD)",
)


def check(vitals: Vitals) -> Finding | None:
    """Fires where the model is handed rows that are padded, and much of them is padding."""
    one, spent = _handed_on(vitals), passes.computing(vitals)
    if one is None or spent is None or vitals.setup.graph_packed or UNPADS.search(vitals.source):
        return None
    part = one.batches / one.looked_at
    beyond, padded = (part * (1.0 - real / one.positions) for real in (one.needed, one.real))
    cost = gpu_pace.at_most(vitals, spent * beyond)
    constant = cost >= NAMING_BAR
    if not constant:
        cost = gpu_pace.at_most(vitals, spent * padded)
    if padded < PADDED_SHARE:
        return None
    cures = (_cure(TO_LONGEST, vitals, spent, beyond),) if constant else ()
    what = "positions beyond each batch's longest sample" if constant else "padding to the longest sample of a batch"
    return Finding(
        rule="wasted-padding",
        headline=f"{formatting.share(padded)} of what the model is handed is padding: {what} take"
        f"{'' if constant else 's'} about {formatting.share(cost)} of the time.",
        cost_share=cost,
        evidence=(
            f"{one.name}: rows of {_range(one.least_length, one.most_length)} positions, of which "
            f"{_range(one.shortest, one.longest)} are real, {formatting.average(one.real / one.rows)} on average",
            f"told by {_told(one)} in {one.batches} of {one.looked_at} inspected batches",
            f"{formatting.share(beyond)} of the positions lie beyond the longest sample of their batch; the part of "
            f"forward and backward that grows with them takes {formatting.share(spent)} of the time",
        ),
        prescriptions=(*cures, _cure(BY_LENGTH, vitals, spent, padded, at_most=True)),
    )


def _handed_on(vitals: Vitals) -> Padding | None:
    """The padded tensor, in most batches, that reaches the model at its full length: the loop has not cut it down."""
    inputs = vitals.inputs
    if inputs is None or not inputs.shape:
        return None
    for one in vitals.padding or ():
        usual = one.looked_at >= LOOKED_AT and one.batches >= OFTEN * one.looked_at and one.positions and one.rows
        full = any(one.least_length - SHIFTED <= size <= one.most_length for size in inputs.shape[1:] or inputs.shape)
        if usual and full and one.shortest < one.longest:
            return one
    return None


def _cure(cure: tuple[str, str], vitals: Vitals, spent: float, less: float, at_most: bool = False) -> Prescription:
    """What it gives if rows are so much shorter, 0..1; at best attention saves by the square of that."""
    pairs = _pairs(vitals)
    squared = less * (1.0 - pairs) + pairs * (1.0 - (1.0 - less) ** 2)
    gone, most = (gpu_pace.at_most(vitals, spent * part) for part in (less, max(MORE * less, squared)))
    text, code = cure
    changes = "The samples come in another order." if at_most else ""
    gain = Gain(faster(gone), 1.0 if at_most else faster(FEWER * gone), at_best(most))
    return Prescription(text, Safety.BY_HAND, code=code, changes=changes).expecting(gain, at_most)


def _pairs(vitals: Vitals) -> float:
    """Part of the arithmetic that attention does for pairs of positions, 0..1: as in `attention-by-hand`."""
    model, inputs = vitals.model, vitals.inputs
    if model is None or inputs is None or not model.product_weights:
        return 0.0
    calls = vitals.setup.attention_calls or ()
    fused = sum(one.calls * one.heads * (one.head_size or 0) * one.keys for one in calls)
    pairing = 2.0 * (fused or model.attention_width * max(inputs.shape[1:], default=0))
    return pairing / (model.product_weights + pairing)


def _told(one: Padding) -> str:
    """What says where the padding is: a mask by its name, or the value that rows end in."""
    try:
        float(one.told_by)
    except ValueError:
        return f"`{one.told_by}`"
    return f"the run of {one.told_by} that rows end or begin with"


def _range(least: int, most: int) -> str:
    return str(most) if least == most else f"{least} to {most}"
