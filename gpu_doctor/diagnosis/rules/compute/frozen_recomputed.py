"""A frozen model computes in every epoch what it computed in the first one.

What it means
    No optimizer steps this model (a teacher, a backbone under a trained head), its weights stand still, and it is given
    the same samples in each epoch: its results are the same, too. That is seen, not assumed: some samples are followed
    by a few of their numbers until all have come again, and their results are compared. Augmented samples do not come
    again, and with dropout results differ. Frozen layers inside of a trained model are not told apart.

Why it costs you
    A forward through the larger of the two models, in every epoch after the first, for numbers that were there already.

What to try
    Compute its outputs once, keep them beside the samples, and index them. Of a frozen backbone keep the features, and
    train the head on these. GPU: not yet run on one.

When to leave it
    When samples are to be augmented later on, when the results of all samples fit neither into memory nor on a disk, or
    when each sample is used about once.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.removed_work import without
from gpu_doctor.diagnosis.rules import gpu_pace
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("forward_share", "backward_share", "frozen")

LOADED = """\
with torch.no_grad():  # once, in the order of the data set
    known = torch.cat([frozen(inputs) for inputs, _ in DataLoader(dataset, batch_size=256)])
dataset = torch.utils.data.StackDataset(dataset, known)  # items are ((inputs, target), output)"""
INDEXED = """\
with torch.no_grad():  # once, before the first epoch
    known = torch.cat([frozen(some) for some in inputs.split(256)])
...
outputs = known[indices]  # instead of frozen(inputs[indices])"""


def check(vitals: Vitals) -> Finding | None:
    """Fires where the epochs after the first spend a twentieth of the time on results that are known."""
    forward, step_s, frozen = vitals.forward_share, vitals.host_step_s, vitals.frozen
    if not forward or not step_s or not vitals.run_s or not frozen or not vitals.backward_share:
        return None
    one = max(frozen, key=lambda found: found.wall_s)
    share = min(one.wall_s / vitals.run_s, forward)
    if vitals.on_gpu and not vitals.gpu_outruns_host:  # the host is soon done with it, the GPU is not
        if vitals.gpu_forward_share is None or not gpu_pace.kernels_set_it(vitals):
            return None
        share = gpu_pace.at_most(vitals, vitals.gpu_forward_share * share / forward)
    again = share * (1.0 - 1.0 / max(one.passes, 1.0))
    gain = without(vitals, again)  # its weights leave the caches to the model that is trained
    return Finding(
        rule="frozen-recomputed",
        headline=f"{one.model} is frozen and gets the same samples in every epoch: computing its outputs anew takes "
        f"{formatting.share(again)} of the time.",
        cost_share=again,
        evidence=(
            f"no optimizer steps {one.model}; samples that were followed came again, with the same outputs",
            f"its forward takes {formatting.share(share)} of the time, and went through the samples "
            f"{formatting.average(one.passes)} times",
            f"outputs to keep: {formatting.size(one.output_bytes)} a sample",
        ),
        prescriptions=(
            Prescription(
                text="Compute its outputs once, before the first epoch, and look them up",
                safety=Safety.BY_HAND,
                code=LOADED if vitals.loader is not None else INDEXED,
                changes="The same training but for rounding, as long as samples are not augmented.",
            ).expecting(gain),
        ),
    )
