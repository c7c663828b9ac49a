"""The training thread prepares each batch in the loop (augments, decodes, encodes) before the model gets it.

What it means
    Between the loader's batch and the forward the loop changes what the model is fed with. Which lines do so is read
    off the cell's text: the model's input depends on them, and they do not depend on its output.

Why it costs you
    The training waits for it, in every step. In the loader's workers the same work is done beside the training, on
    other cores; on a GPU, tensor operations take a fraction of the time.

What to try
    Sample by sample in Python: do it for the whole batch in one call. Then, or where that cannot be: move it into the
    dataset's `__getitem__`, or into `collate_fn`, and let workers do it. With a GPU, do tensor operations after
    `.to(device)`.

When to leave it
    When the training itself keeps all cores busy: workers then take them away from it, and a whole-batch operation
    gains nothing by moving (0.7 to 0.9 times the speed was measured). Nothing is said there, nor of whole-batch
    operations that run on the GPU already. GPU: not yet run on one.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.cell import batch_lines, loop_rows, moved_lines
from gpu_doctor.diagnosis.forecast.removed_work import MOST, Gain, without
from gpu_doctor.diagnosis.rules.evidence import ASKS, dearest_lines, library_calls
from gpu_doctor.diagnosis.rules.host.slow_generator import CHEAP_S
from gpu_doctor.diagnosis.rules.host.slow_python import LEFT_AT_MOST, LEFT_OF_FEEDING
from gpu_doctor.diagnosis.rules.python_pace import pace
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals import idle
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.lines import part, total
from gpu_doctor.recording import LineCost

CPU_NEEDS = ("loader", "other_share", "forward_share", "backward_share", "step_wall_s")
NEEDS = (*CPU_NEEDS, "gpu_gap_share")
EXCLUDES = ("slow-python",)
"""It only fires where its lines are most of what slow-python would name."""

MOSTLY: Final = 0.5
SAMPLEWISE: Final = re.compile(r"\bfor\b.+\bin\b|\.append\(")
"""Text of a line that takes a batch apart, or puts it together, sample by sample."""
TOGETHER = """\
flip = torch.rand(len(x)) < 0.5  # one draw for each sample,
x = torch.where(flip[:, None, None, None], x.flip(-1), x)  # and one operation for all of them"""
ON_DEVICE = """\
x = x.to(device, non_blocking=True)
x = augment(x)  # tensor operations on the GPU; random numbers with device=x.device"""
IN_DATASET = """\
class Prepared(torch.utils.data.Dataset):
    def __len__(self):
        return len(dataset)
    def __getitem__(self, i):
        x, y = dataset[i]
        return augment(x), y  # what the loop does to one sample
loader = torch.utils.data.DataLoader(Prepared(), batch_size={batch}, num_workers={workers})"""
IN_COLLATE = """\
def collate(samples):  # in the workers
    x, y = torch.utils.data.default_collate(samples)
    return augment(x), y  # what the loop does to the batch
loader = torch.utils.data.DataLoader(dataset, batch_size={batch}, num_workers={workers}, collate_fn=collate)"""


def check(vitals: Vitals) -> Finding | None:
    """Fires where lines that feed the model take at least 5 % on the training thread, and something would help."""
    step_s, lines = vitals.step_wall_s, preparing_lines(vitals)
    share = _share(vitals, lines)
    if step_s is None or share * step_s < CHEAP_S * pace(vitals) or not _most(vitals, lines):
        return None
    ways = _ways_out(vitals, lines, min(share, MOST), step_s)
    if not ways:
        return None
    return Finding(
        rule="augmentation-in-loop",
        headline=f"The loop itself prepares each batch for the model: {formatting.share(share)} of the time.",
        cost_share=min(share, 1.0),
        evidence=(
            f"{formatting.seconds(share * step_s)} of every step of {formatting.seconds(step_s)}, on the training "
            "thread",
            *dearest_lines(lines, vitals.source),
        ),
        prescriptions=ways,
    )


def preparing_lines(vitals: Vitals) -> list[LineCost]:
    """Lines outside of every phase that change the loader's batch before the model gets it, dearest first.

    What runs on the device by then is the host's launching alone, unless it is done sample by sample.
    """
    if vitals.loader is None or vitals.predicts:
        return []
    found = batch_lines(vitals.source, vitals.lines, vitals.model_names)
    libraries = library_calls(vitals)
    named = [
        one
        for one in found
        if one.phase == "other"
        and not (one.in_worker or one.before_backward or ASKS.search(one.text))
        and (one.file, one.line) not in libraries
    ]
    moved = set(moved_lines(vitals.source, named)) if vitals.on_gpu else set()
    return [one for one in named if one not in moved or _samplewise(vitals, one)]


def _share(vitals: Vitals, lines: list[LineCost]) -> float:
    """Of the wall-clock; on a GPU no more than it idles for, and nothing where too few looks fell there."""
    seen = total(lines)
    if not vitals.looked_at(seen):
        return 0.0
    share = min(seen, max((vitals.other_share or 0.0) - vitals.chores_between_share, 0.0))
    if vitals.on_gpu:
        taken = vitals.exposed_share + idle.recompiling_share(vitals) + idle.sync_share(vitals)
        share = min(share, max(vitals.gpu_idle_at_most - taken, 0.0))
    return share


def _most(vitals: Vitals, lines: list[LineCost]) -> bool:
    """Whether these lines are most of what was seen of the loop's own Python."""
    own = [
        one for one in vitals.outside_lines if one.beside or not (one.in_torch or (one.computes and not vitals.on_gpu))
    ]
    return total(lines) >= total(one for one in own if one not in lines and not ASKS.search(one.text))


def _samplewise(vitals: Vitals, line: LineCost) -> bool:
    """Whether a line takes the batch apart: by its own text, or reached through a loop inside of the step."""
    if line.looped or SAMPLEWISE.search(line.text):
        return True
    text = vitals.source.splitlines()
    here = 0 < line.line <= len(text) and text[line.line - 1].strip() == line.text
    return here and line.line in loop_rows(vitals.source)


def _ways_out(vitals: Vitals, lines: list[LineCost], share: float, step_s: float) -> tuple[Prescription, ...]:
    """Best first; none where every core is busy and the whole batch is prepared at once."""
    apart = part((one for one in lines if _samplewise(vitals, one)), lines) > MOSTLY
    workers = _by_workers(vitals, share, step_s, IN_DATASET if apart else IN_COLLATE)
    ways = [_together(vitals, share)] if apart else []
    if vitals.on_gpu:
        ways.append(_on_device(share, apart))
    return (*ways, *([workers] if workers is not None else []))


def _together(vitals: Vitals, share: float) -> Prescription:
    """In one call a tenth of it is left, or half where that goes badly (see slow-python)."""
    gain, slowly = without(vitals, share * (1.0 - LEFT_OF_FEEDING)), without(vitals, share * (1.0 - LEFT_AT_MOST))
    most = without(vitals, share)
    return Prescription(
        text="Prepare the whole batch in one call instead of sample by sample",
        safety=Safety.BY_HAND,
        code=TOGETHER,
    ).expecting(Gain(gain.speedup, min(slowly.low, gain.speedup), max(most.high, gain.speedup)), at_most=True)


def _on_device(share: float, apart: bool) -> Prescription:
    done = Prescription(
        text="Do tensor operations on the GPU, after the batch was copied to it",
        safety=Safety.BY_HAND,
        code=ON_DEVICE,
    )
    if apart:
        return replace(done, text="Then do it on the GPU, after the batch was copied to it")
    return done.saving_at_most(share)


def _by_workers(vitals: Vitals, share: float, step_s: float, code: str) -> Prescription | None:
    """What workers gain that prepare the batch as they fetch it, on the cores that the training leaves them.

    Returns:
        None where that is too little, or may be a loss where handing over is dear.
    """
    cores = max(vitals.usable_cores, 1.0)
    trained = max(1.0 - share - (vitals.data_wait_share or 0.0), 0.0) * step_s
    made = share * step_s + vitals.fetches_s
    needed = math.ceil(made / max(trained, 1e-9))
    workers = max(vitals.workers or 0, min(needed, max(int(cores), 1)), 1)
    if cores < 2:
        return None
    size = vitals.loader.batch_size if vitals.loader is not None else None
    return Prescription(
        text=f"Let {workers} worker{'s' if workers > 1 else ''} of the loader prepare the batches, beside the training",
        safety=Safety.BY_HAND,
        code=code.format(batch=size or "batch", workers=workers),
    )
