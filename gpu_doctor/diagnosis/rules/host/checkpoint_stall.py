"""The loop stands still while `torch.save` writes a checkpoint, or other data is written to a file.

What it means
    `torch.save` copies every tensor to the host and writes it to the file before it returns; so do `np.save`,
    `pickle.dump` and a file opened for bytes. `os.fsync` then waits for the disk. All of that time the training thread
    does nothing else, and a GPU runs dry.

Why it costs you
    A checkpoint of a model with Adam holds three times the parameters. At 1 GB/s that is 12 s for a billion
    parameters in fp32; a network disk is slower.

What to try
    Save less often: by the clock (every 15 minutes) and not by the step. Write to a local disk and let a background
    process copy it. Copy the tensors to the host and save them on another thread (or use
    `torch.distributed.checkpoint.async_save`).

When to leave it
    When a crash would cost more than the checkpoints do, or in a run this short.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.removed_work import without
from gpu_doctor.diagnosis.rules.evidence import chore_line, dearest_lines
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording.setup import Chore

NEEDS = ("chores", "run_s", "steps_per_s")

FEWEST_CALLS = 2
"""From one checkpoint (`if step % 1000 == 0` in a run of 50 steps) nobody can tell how often they come."""
EVERY = """\
import time
saved_at = time.monotonic()  # before the loop
if time.monotonic() - saved_at > 900:  # in the loop, by the clock: 15 minutes
    torch.save(state, path)
    saved_at = time.monotonic()"""
ASIDE = """\
import copy, threading
def snapshot(tree):  # a copy on the host; the training may go on
    return {k: v.detach().to("cpu", copy=True) if isinstance(v, torch.Tensor)
            else snapshot(v) if isinstance(v, dict) else copy.deepcopy(v) for k, v in tree.items()}
threading.Thread(target=torch.save, args=(snapshot(model.state_dict()), path)).start()"""


def check(vitals: Vitals) -> Finding | None:
    """Fires where the checkpoints and files written inside of steps take at least 5 % of the wall-clock."""
    chore = next((one for one in vitals.chores_of("checkpoint") if one.calls >= FEWEST_CALLS), None)
    heard = vitals.chore_share("checkpoint") or 0.0 if chore is not None else 0.0
    cost = min(heard + vitals.saving_share, 1.0)
    most = without(vitals, cost, calls_per_step=chore.calls / max(vitals.steps, 1) if chore is not None else 1.0)
    what = "checkpoints" if heard >= vitals.saving_share else "data to files"
    return Finding(
        rule="checkpoint-stall",
        headline=f"Saving {what} takes {formatting.share(cost)} of the time, in which nothing trains.",
        cost_share=cost,
        evidence=(
            *(_calls(chore, vitals.steps) if chore is not None else ()),
            *dearest_lines(vitals.saving_lines, vitals.source),
        ),
        prescriptions=(
            Prescription(
                text="Save less often, and to a local disk",
                safety=Safety.BY_HAND,
                code=EVERY,
            ).expecting(most, at_most=True),
            Prescription(
                text="Copy the tensors to the host and write the file on another thread",
                safety=Safety.BY_HAND,
                code=ASIDE,
            ),
        ),
    )


def _calls(chore: Chore, steps: int) -> tuple[str, ...]:
    size = "" if chore.nbytes != chore.nbytes else f" for {formatting.size(chore.nbytes / chore.calls)}"
    each = formatting.seconds(chore.wall_s / chore.calls)
    return f"saved {chore.calls} times in {steps} steps, {each} each{size}", *chore_line(chore)
