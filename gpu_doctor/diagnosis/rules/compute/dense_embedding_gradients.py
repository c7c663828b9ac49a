"""A large embedding gets a gradient as large as itself in every step, though a batch touches few of its rows.

What it means
    `nn.Embedding` makes a dense gradient unless told otherwise: a tensor of zeros of the table's size, with numbers in
    the rows that the batch looked up. The optimizer then reads and writes the whole table.

Why it costs you
    Both cost as much as the table is large, whatever the batch. Measured on a CPU (torch 2.13, 1 thread, 256 look-ups a
    step): with SGD, steps took 5 times as long for a table of 100 000 x 64 and 134 times for 500 000 x 64; with fused
    Adam, 4 and 73 times.

What to try
    `sparse=True` in the embedding. SGD without momentum and weight decay, and Adagrad, make the same updates from it;
    Adam has a namesake, SparseAdam, that moves only the rows that were looked up (pytorch/pytorch#5309, #1285).

When to leave it
    When weight decay or momentum should act on rows that were not looked up; when the table is shared with the last
    layer (left out here). What a table costs a GPU is not known from the host's clock, so that this rule judges CPUs
    alone.
"""

import math

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import passes
from gpu_doctor.diagnosis.rules.evidence import widths
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording.setup import InputFacts

NEEDS = ("model", "inputs", "optimizer_share", "backward_share", "optimizer_facts", "step_wall_s")

TOUCHED = 0.1
"""A batch that looks up a larger part of the rows has a gradient that is hardly sparse."""
SLOWEST_BYTES_PER_S = 1e9
"""A table is written faster on any machine: a single channel of DDR3-800 has 6.4 GB/s (JEDEC), and new pages are
cleared first."""
ELEMENT_BYTES = 4.0
"""Of float32."""
SAME = ("SGD", "Adagrad")
"""Optimizers that make the same update from sparse gradients, without momentum and weight decay."""
ADAMS = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax")


def check(vitals: Vitals) -> Finding | None:
    """Fires on a CPU where the work on rows that nobody looked up takes its share of the time."""
    model, inputs, facts = vitals.model, vitals.inputs, vitals.optimizer_facts
    share, backward, step_s = vitals.optimizer_share, vitals.backward_share, vitals.host_step_s
    if model is None or inputs is None or not facts or share is None or backward is None or not step_s:
        return None
    stepped = sum(one.elements for one in facts)
    indices = _indices(inputs)
    if vitals.on_gpu or not model.tables or not indices or not stepped:
        return None
    looked_up = indices * max(vitals.batches_per_step or 1.0, 1.0)
    touched = looked_up / next(iter(widths(model.tables[0])), 1)  # its rows, of `users: Embedding 500000 x 64`
    if touched > TOUCHED:
        return None
    stepping = share * min(model.table_elements / stepped, 1.0)
    # A look-up costs the forward next to nothing: what the backward takes beyond the usual goes into whole tables.
    beyond = max(backward - passes.BACKWARD_BY_PRODUCTS * vitals.together("forward", "loss"), 0.0)
    writing = min(beyond, ELEMENT_BYTES * model.table_elements / SLOWEST_BYTES_PER_S / step_s)
    cost = (1.0 - touched) * (stepping + writing)
    written = f", and writing their gradients at least {formatting.seconds(writing * step_s)}" if writing else ""
    return Finding(
        rule="dense-embedding-gradients",
        headline=f"Each step rewrites whole embedding tables for a few rows: at least {formatting.share(cost)} of "
        "the time.",
        cost_share=cost,
        evidence=(
            *model.tables[:3],
            f"the model's inputs have {formatting.grouped(looked_up)} indices a step: at most "
            f"{formatting.share(touched)} of the largest table's rows",
            f"updating whole tables takes {formatting.seconds(stepping * step_s)} a step{written}",
        ),
        prescriptions=(_cure(facts[0].name, model.tables[0]),),
    )


def _cure(optimizer: str, table: str) -> Prescription:
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
        f"table_optimizer = {own}(embedding.parameters(), lr=...)  # beside {optimizer} for all other parameters",
        changes="Rows that were not looked up stay as they are: compare the losses.",
    )


def _indices(inputs: InputFacts) -> int:
    """So many rows are looked up in one forward, at most; old recordings know the first tensor alone."""
    if inputs.indices is not None:
        return inputs.indices
    return math.prod(inputs.shape) if "int" in inputs.dtype else 0
