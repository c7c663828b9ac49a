"""Rule for work whose results nobody uses: padding, unused gradients, whole tables, frozen models, float64."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_pace, half_precision
from gpu_doctor.diagnosis.rules.evidence import widths
from gpu_doctor.diagnosis.rules.rule import NAMING_BAR, Cause, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording.setup import InputFacts, ModelFacts, Padding

PADDING: Final = Cause(
    name="wasted-padding",
    needs=("forward_share", "backward_share", "inputs", "padding"),
    page="""\
Much of every batch is padding, and the model computes it like real data.

What it means
    Samples of different lengths are padded to one length: to a constant (`max_length`), or to the longest sample of the
    batch. gpu_doctor inspects some batches as the loader delivers them and counts the padding, by the mask or by the
    run of one value at the end of the rows.

Why it costs you
    Layers compute every position, and attention computes every pair of positions; a mask only discards the results. The
    cost is a bound: the part of forward and backward that padding takes, with the square of the length if the model has
    attention.

What to try
    Pad each batch to its longest sample, in `collate_fn`: `pad_sequence`, `DataCollatorWithPadding`, or `padding=True`
    instead of `padding="max_length"`. Then put samples of similar length into one batch (`group_by_length=True` in
    transformers, or a bucket sampler), or pack several into one row. With torch.compile or `cudnn.benchmark`, round the
    length up to a multiple of 64 to keep the shapes few.

In code
    # sick
    batch = tokenizer(texts, padding="max_length", max_length=512, return_tensors="pt")
    # cured
    batch = tokenizer(texts, padding="longest", return_tensors="pt")

When to leave it
    Leave it if the model needs a constant length (a layer over all positions at once), or if compiled shapes must not
    change. Batches of similar length come in another order: shuffle the batches.
""",
)
GRADIENTS: Final = Cause(
    name="unused-gradients",
    needs=("backward_share", "model"),
    page="""\
The backward computes gradients that no optimizer uses.

What it means
    Only a part of the model is trained, often a new head on a pretrained backbone, but the rest still has
    `requires_grad=True`. Leaving the rest out of the optimizer does not freeze it: the backward still computes all of
    its gradients.
    Or two models are trained in turns and the loss of one goes through the other, as in a GAN's critic step, whose
    gradients for the generator are cleared before the generator's own step.

Why it costs you
    For layers before the first trained one, the whole backward is wasted, and their activations are kept for it.
    `optimizer.zero_grad()` never clears these gradients, so they add up. The cost is a bound: the part of the
    backward that only these gradients need, by the sizes of all gradients.

What to try
    Call `requires_grad_(False)` on the part that is not trained, or run it under `torch.no_grad()`. The trained part
    gets the same gradients as before. In a critic's step, run the generator under `torch.no_grad()`. In the generator's
    step, call `critic.requires_grad_(False)` before and `True` after. If a frozen backbone gets the same inputs in each
    epoch, compute its features once.

In code
    # sick
    optimizer = torch.optim.AdamW(model.head.parameters())
    # cured
    model.requires_grad_(False)
    model.head.requires_grad_(True)
    optimizer = torch.optim.AdamW(model.head.parameters())

When to leave it
    Leave it if something else reads those gradients: an update written by hand, a saliency map, or clipping over all of
    `model.parameters()` on purpose. If the cell mentions `.grad`, this cause is not reported.
""",
)
TABLES: Final = Cause(
    name="dense-embedding-gradients",
    needs=("model", "inputs", "optimizer_share", "backward_share", "optimizer_facts", "step_wall_s"),
    page="""\
A large embedding gets a gradient as large as itself in every step, although a batch uses few of its rows.

What it means
    By default `nn.Embedding` makes a dense gradient: a tensor as large as the table, with zeros everywhere but in the
    rows that the batch looked up. The optimizer then reads and writes the whole table.

Why it costs you
    Writing the gradient and updating the table take time in proportion to the table, however small the batch is. The
    cost is a bound: the table's part of the optimizer's time, by the number of weights, and at most as much again for
    writing the gradient in the backward.

What to try
    Pass `sparse=True` to the embedding. SGD without momentum and weight decay, and Adagrad, make the same updates from
    a sparse gradient. Adam needs SparseAdam, which updates only the rows that were looked up (pytorch/pytorch#5309,
    #1285).

In code
    # sick
    users = nn.Embedding(500_000, 64)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    # cured
    users = nn.Embedding(500_000, 64, sparse=True)
    sparse = torch.optim.SparseAdam(users.parameters(), lr=1e-3)
    optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-3)  # all other parameters

When to leave it
    Leave it if weight decay or momentum should also act on rows that were not looked up. A table that is shared with
    the last layer is not counted. Only loops on a CPU are judged.
""",
)
FROZEN: Final = Cause(
    name="frozen-recomputed",
    needs=("forward_share", "backward_share", "frozen"),
    page="""\
A frozen model computes the same outputs again in every epoch.

What it means
    No optimizer steps this model (a teacher, a backbone under a trained head), its weights do not change, and it gets
    the same samples in each epoch, so its outputs are the same too. gpu_doctor follows some samples until they come
    again and compares the outputs. Augmented samples do not come again, and dropout changes the outputs. Frozen layers
    inside a trained model are not judged.

Why it costs you
    In every epoch after the first, these forwards compute outputs that are known. The cost is a bound: the time of
    these forwards.

What to try
    Compute the outputs once, store them with the samples, and index them. If the model is a frozen backbone, store its
    features and train the head on them.

In code
    # sick
    features = backbone(x[i])  # in every step
    # cured
    with torch.no_grad():  # once, before the first epoch
        known = torch.cat([backbone(part) for part in x.split(256)])
    features = known[i]  # in every step

When to leave it
    Leave it if you will augment the samples later, if the outputs of all samples fit neither into memory nor on a disk,
    or if each sample is used about once.
""",
)
DOUBLES: Final = Cause(
    name="double-precision",
    needs=("forward_share", "backward_share", "model"),
    page="""\
The model computes in float64, which takes twice the memory of float32 and at least twice the time.

What it means
    Most parameters are float64. That is seldom intended: NumPy's arrays are float64, `torch.from_numpy` keeps the
    dtype, and `model.double()` or `torch.set_default_dtype` then silences the error about two dtypes.

Why it costs you
    A number takes 8 bytes instead of 4, so memory and vector units handle half as many at a time. Many GPUs compute
    float64 far more slowly than float32. The cost is a bound: on a CPU half of forward and backward, on a GPU all the
    time in which it is busy.

What to try
    Use float32 for the model and for the data. Convert the data once, not in the loop.

In code
    # sick
    model = Net().double()
    x = torch.from_numpy(array)  # float64
    # cured
    model = Net()
    x = torch.from_numpy(array.astype(numpy.float32))  # once, before the loop

When to leave it
    Leave it if the result needs 15 digits: solvers, ill-conditioned systems, gradient checks.
""",
)
CAUSES: Final = (PADDING, GRADIENTS, TABLES, FROZEN, DOUBLES)

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
LOOKED_AT: Final = 3
"""Fewest inspected batches: a single one may happen to be short."""
PADDED_SHARE: Final = 0.2
"""Part of the positions that must be padding: sorting by length leaves some, and a text now and then is long."""
OFTEN: Final = 0.5
"""Part of the batches that must be padded."""
SHIFTED: Final = 1
"""Positions that a language model's input is shorter than its batch: the last token is only a target."""
UNPADS: Final = re.compile(r"pack_padded_sequence|pack_sequence|(?<!enable_)nested_tensor|cu_seqlens|varlen")
"""Pattern in the text of a cell that computes without padding."""
ATTENTION: Final = ("MultiheadAttention", "NonDynamicallyQuantizableLinear")
"""`nn.MultiheadAttention` and its output layer, as layers are counted."""
BY_LENGTH: Final = Prescription(
    text="Put samples of similar length into one batch, and shuffle the batches",
    safety=Safety.BY_HAND,
    code="order = sorted(range(len(lengths)), key=lengths.__getitem__)  # lengths: of all samples\n"
    "batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]\n"
    "random.shuffle(batches)\n"
    "loader = DataLoader(dataset, batch_sampler=batches, collate_fn=collate)",
    changes="The samples come in another order.",
)
TO_LONGEST: Final = Prescription(
    text="Pad each batch to its own longest sample",
    safety=Safety.BY_HAND,
    code="def collate(samples):  # with a tokenizer: DataCollatorWithPadding(tokenizer), and no padding before it\n"
    "    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True, padding_value=PAD)",
)
READS: Final = re.compile(r"\.grad\b(?!_)")
"""Pattern in the text of a cell that reads gradients itself."""
BY_TURNS: Final = """\
with torch.no_grad():
    fake = generator(z)  # the critic's step: its loss needs no gradients of the generator
critic.requires_grad_(False)  # the generator's step; True again after it"""
FREEZING: Final = """\
model.requires_grad_(False)
model.head.requires_grad_(True)  # the part that your optimizer updates
# or, if you call the frozen part by itself:
with torch.no_grad():
    features = backbone(inputs)"""
TOUCHED: Final = 0.1
"""Largest part of a table's rows that a batch may look up; with more, its gradient is hardly sparse."""
SAME: Final = ("SGD", "Adagrad")
"""Optimizers that make the same update from sparse gradients, without momentum and weight decay."""
ADAMS: Final = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax")
LOADED: Final = """\
with torch.no_grad():  # once, in the order of the dataset
    known = torch.cat([frozen(inputs) for inputs, _ in DataLoader(dataset, batch_size=256)])
dataset = torch.utils.data.StackDataset(dataset, known)  # items are ((inputs, target), output)"""
INDEXED: Final = """\
with torch.no_grad():  # once, before the first epoch
    known = torch.cat([frozen(some) for some in inputs.split(256)])
...
outputs = known[indices]  # instead of frozen(inputs[indices])"""
HALF: Final = 0.5
"""Part of a float64's bytes that float32 saves."""

Part = tuple[Finding, frozenset[str]]
"""A finding, and the phases that its price is part of."""


def check(vitals: Vitals) -> tuple[Finding, ...]:
    """Reports the costliest kind of wasted work, and others only if they lie in other phases."""
    parts: Iterable[Callable[[Vitals], Part | None]] = (_padding, _gradients, _tables, _frozen, _doubles)
    found = [waste for part in parts if (waste := part(vitals)) is not None]
    reported: list[Finding] = []
    taken: frozenset[str] = frozenset()
    for finding, phases in sorted(found, key=lambda waste: -(waste[0].cost_share or 0.0)):
        if taken.isdisjoint(phases):
            reported.append(finding)
            taken |= phases
    return tuple(reported)


def _computing(vitals: Vitals) -> float | None:
    """Share of the wall-clock in forward and backward; None if they do not limit the loop, or were not measured."""
    if not gpu_pace.kernels_set_it(vitals):
        return None
    if vitals.on_gpu:
        return half_precision.products_share(vitals)
    known = vitals.forward_share is not None and vitals.backward_share is not None
    return vitals.passes_share if known else None


def _finding(cause: Cause, headline: str, cost: float, evidence: tuple[str, ...], *cures: Prescription) -> Finding:
    """Builds a finding whose price is a bound."""
    return Finding(cause.name, headline, cost, evidence, cures, kind="at-most")


# ---- padding ---------------------------------------------------------------------------------------------------------


def _padding(vitals: Vitals) -> Part | None:
    """Reports padded rows that reach the model, if at least a fifth of the positions is padding."""
    rows, spent = _padded_input(vitals), _computing(vitals)
    if rows is None or spent is None or vitals.setup.graph_packed or UNPADS.search(vitals.source):
        return None
    part = rows.batches / rows.looked_at
    beyond, padded = (part * (1.0 - real / rows.positions) for real in (rows.needed, rows.real))
    if padded < PADDED_SHARE:
        return None
    pairs = bool(vitals.setup.attention_calls) or bool(vitals.layers(*ATTENTION))
    constant, whole = (
        gpu_pace.at_most(vitals, spent * (1.0 - (1.0 - less) ** 2 if pairs else less)) for less in (beyond, padded)
    )
    to_longest = constant >= NAMING_BAR
    cost = constant if to_longest else whole
    subject = "positions beyond each batch's longest sample take" if to_longest else "that takes"
    finding = _finding(
        PADDING,
        f"{formatting.share(padded)} of the model's input is padding: {subject} at most {formatting.share(cost)} "
        "of the time.",
        cost,
        (
            f"{rows.name}: rows of {_range(rows.least_length, rows.most_length)} positions, of which "
            f"{_range(rows.shortest, rows.longest)} are real, {formatting.average(rows.real / rows.rows)} on average",
            f"known from {_sign(rows)} in {rows.batches} of {rows.looked_at} inspected batches",
            f"{formatting.share(beyond)} of the positions lie beyond the longest sample of their batch; forward and "
            f"backward take {formatting.share(spent)} of the time",
        ),
        *((TO_LONGEST, BY_LENGTH) if to_longest else (BY_LENGTH,)),
    )
    return finding, frozenset((FORWARD, BACKWARD))


def _padded_input(vitals: Vitals) -> Padding | None:
    """Returns the tensor that is padded in most batches and reaches the model uncut, at its full length, or None."""
    inputs = vitals.inputs
    if inputs is None or not inputs.shape:
        return None
    for rows in vitals.padding or ():
        usual = rows.looked_at >= LOOKED_AT and rows.batches >= OFTEN * rows.looked_at and rows.positions and rows.rows
        full = any(rows.least_length - SHIFTED <= size <= rows.most_length for size in inputs.shape[1:] or inputs.shape)
        if usual and full and rows.shortest < rows.longest:
            return rows
    return None


def _sign(rows: Padding) -> str:
    """Names the sign by which padding is known: the mask's name, or the value that rows end or begin with."""
    try:
        float(rows.told_by)
    except ValueError:
        return f"`{rows.told_by}`"
    return f"the run of {rows.told_by} that rows end or begin with"


def _range(least: int, most: int) -> str:
    """Formats a range: `12 to 512`, or `512` if both ends are the same."""
    return str(most) if least == most else f"{least} to {most}"


# ---- gradients that no optimizer uses --------------------------------------------------------------------------------


def _gradients(vitals: Vitals) -> Part | None:
    """Reports a part of the backward that only computes gradients for parameters which no optimizer updates."""
    model, backward = vitals.model, vitals.gpu_backward_share if vitals.device_limits else vitals.backward_share
    if model is None or not model.unstepped or backward is None or READS.search(vitals.source):
        return None
    part = model.spared_share
    cost = gpu_pace.at_most(vitals, backward * part)
    cleared = model.gradients_cleared
    cure = Prescription(
        text="Keep the model that this step does not train out of the backward"
        if cleared
        else "Freeze the part that is not trained, before the optimizer is created",
        safety=Safety.BY_HAND,
        code=BY_TURNS if cleared else FREEZING,
        changes="The same updates. If you clip gradients over all of model.parameters(), the norm then covers only the "
        "trained part, and steps become larger.",
    )
    finding = _finding(
        GRADIENTS,
        f"The backward computes gradients that no optimizer uses (at most {formatting.share(cost)} to gain).",
        cost,
        (
            _which(model),
            f"the backward takes {formatting.share(backward)} of the time; {formatting.share(part)} of it serves only "
            "these gradients, by the sizes of all gradients",
        ),
        cure,
    )
    return finding, frozenset((BACKWARD,))


def _which(model: ModelFacts) -> str:
    """Says how many weights get unused gradients, and names the largest, as evidence."""
    weights, largest = formatting.grouped(model.unstepped or 0), f"the largest is {model.unstepped_place}"
    if model.gradients_cleared:
        return f"{weights} weights get gradients that are cleared before an optimizer uses them; {largest}"
    return f"{weights} weights get a gradient in every backward pass that no optimizer uses; {largest}"


# ---- whole tables for a few rows -------------------------------------------------------------------------------------


def _tables(vitals: Vitals) -> Part | None:
    """Reports the time for embedding rows that no batch looks up, in a loop on a CPU."""
    model, inputs, facts = vitals.model, vitals.inputs, vitals.optimizer_facts
    share, backward, step_s = vitals.optimizer_share, vitals.backward_share, vitals.host_step_s
    if model is None or inputs is None or not facts or share is None or backward is None or not step_s:
        return None
    stepped, indices = sum(optimizer.elements for optimizer in facts), _indices(inputs)
    if vitals.on_gpu or not model.tables or not indices or not stepped:
        return None
    looked_up = indices * max(vitals.batches_per_step or 1.0, 1.0)
    touched = looked_up / next(iter(widths(model.tables[0])), 1)  # over the rows of `users: Embedding 500000 x 64`
    if touched > TOUCHED:
        return None
    stepping = share * min(model.table_elements / stepped, 1.0)
    # Writing the gradient costs no more than the optimizer, which reads it and writes the weights.
    writing = min(stepping, backward)
    cost = (1.0 - touched) * (stepping + writing)
    finding = _finding(
        TABLES,
        f"Each step rewrites whole embedding tables for a few rows (at most {formatting.share(cost)} to gain).",
        cost,
        (
            *model.tables[:3],
            f"the model's inputs have {formatting.grouped(looked_up)} indices a step: at most "
            f"{formatting.share(touched)} of the largest table's rows",
            f"updating whole tables takes {formatting.seconds(stepping * step_s)} a step, and writing their gradients "
            "at most as much again",
        ),
        _sparse(facts[0].name, model.tables[0]),
    )
    return finding, frozenset((BACKWARD, OPTIMIZER))


def _sparse(optimizer: str, table: str) -> Prescription:
    """Prescribes sparse gradients, with an optimizer of its own if the present one cannot use them."""
    sparse = f"nn.{'EmbeddingBag' if 'EmbeddingBag' in table else 'Embedding'}(rows, width, sparse=True)"
    if optimizer in SAME:
        return Prescription(
            text="Use sparse gradients for the embedding",
            safety=Safety.BY_HAND,
            code=sparse,
            changes="The same updates, as long as the optimizer has no momentum and no weight decay.",
        )
    own = "torch.optim.SparseAdam" if optimizer in ADAMS else "torch.optim.SGD"
    return Prescription(
        text="Use sparse gradients for the embedding, with an optimizer of its own",
        safety=Safety.BY_HAND,
        code=f"{sparse}\n"
        f"table_optimizer = {own}(embedding.parameters(), lr=...)  # and {optimizer} for all other parameters",
        changes="Rows that were not looked up stay as they are: compare the losses.",
    )


def _indices(inputs: InputFacts) -> int:
    """Returns how many rows a forward looks up at most; old recordings only know the first input tensor."""
    if inputs.indices is not None:
        return inputs.indices
    return math.prod(inputs.shape) if "int" in inputs.dtype else 0


# ---- a frozen model, again -------------------------------------------------------------------------------------------


def _frozen(vitals: Vitals) -> Part | None:
    """Reports the forwards of a frozen model in the epochs after the first, whose results are known."""
    forward, frozen = vitals.forward_share, vitals.frozen
    if not forward or not vitals.run_s or not frozen or not vitals.backward_share:
        return None
    costliest = max(frozen, key=lambda found: found.wall_s)
    share = min(costliest.wall_s / vitals.run_s, forward)
    if vitals.device_limits:  # the host only launches these forwards; the GPU takes longer
        if vitals.gpu_forward_share is None or not gpu_pace.kernels_set_it(vitals):
            return None
        share = gpu_pace.at_most(vitals, vitals.gpu_forward_share * share / forward)
    cost = share * (1.0 - 1.0 / max(costliest.passes, 1.0))
    finding = _finding(
        FROZEN,
        f"{costliest.model} is frozen and gets the same samples in every epoch: computing its outputs again takes at "
        f"most {formatting.share(cost)} of the time.",
        cost,
        (
            f"no optimizer updates {costliest.model}; the samples that were followed came again, with the same outputs",
            f"its forward takes {formatting.share(share)} of the time, and it saw each sample "
            f"{formatting.average(costliest.passes)} times",
            f"outputs to store: {formatting.size(costliest.output_bytes)} a sample",
        ),
        Prescription(
            text="Compute its outputs once, before the first epoch, and look them up",
            safety=Safety.BY_HAND,
            code=LOADED if vitals.loader is not None else INDEXED,
            changes="The same training but for rounding, as long as samples are not augmented.",
        ),
    )
    return finding, frozenset((FORWARD,))


# ---- float64 ---------------------------------------------------------------------------------------------------------


def _doubles(vitals: Vitals) -> Part | None:
    """Reports a model whose parameters are mostly float64."""
    model, spent = vitals.model, _computing(vitals)
    if model is None or vitals.setup.dtype != "float64" or spent is None:
        return None
    if vitals.on_gpu:
        spent = vitals.gpu_busy_share or spent  # the optimizer computes in float64 as well
    cost = gpu_pace.at_most(vitals, spent if vitals.on_gpu else HALF * spent)
    subject = "the GPU computes" if vitals.on_gpu else "the forward takes" if vitals.predicts else _BOTH
    doubles = model.dtype_bytes.get("float64", 0)
    finding = _finding(
        DOUBLES,
        f"The model computes in float64: float32 would save at most {formatting.share(cost)} of the time.",
        cost,
        (
            f"{formatting.size(doubles)} of {formatting.size(sum(model.dtype_bytes.values()))} of parameters are "
            "float64",
            f"{subject} {formatting.share(spent)} of the time" + ("" if vitals.on_gpu else "; half of it is counted"),
        ),
        Prescription(
            text="Compute in float32: convert model and data once, before the loop",
            safety=Safety.BY_HAND,
            code="model = model.float()  # and no torch.set_default_dtype(torch.float64)\n"
            "inputs = torch.from_numpy(array.astype(numpy.float32))  # or create it with dtype=torch.float32",
            changes=f"Numbers keep 24 bits instead of 53: compare the {half_precision.compared(vitals)}.",
        ),
    )
    return finding, frozenset((FORWARD, BACKWARD))


_BOTH: Final = "forward and backward take"
