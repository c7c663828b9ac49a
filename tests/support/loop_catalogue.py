"""Every loop that is recorded against its own count, by name; those on a GPU run on a simulated one."""

from __future__ import annotations

from typing import Final

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from gpu_doctor.recording import Recording
from tests.support import loops, loops_apart, loops_copied
from tests.support import loops_batches as boxed
from tests.support import loops_evaluated as evaluated
from tests.support.loop_parts import Truth
from tests.support.loops import Loop
from tests.support.simulated_cuda import SimulatedCuda
from tests.support.simulated_device import SimulatedDevice

ON_DEVICE: Final[dict[str, Loop]] = {
    "copies": loops_copied.copies(),
    "copies into a buffer": loops_copied.copies_into_a_buffer,
    "items": loops_copied.items,
    "items before backward": loops_copied.items_before_backward,
    "items in the forward": loops_copied.copies(reads=True),
    "evaluation on the device": loops_copied.evaluation_on_the_device,
    "inference on the device": loops_copied.inference_on_the_device,
    "in main memory beside a device": loops_copied.in_main_memory,
}
"""Those that are recorded as where there is a device to copy to and to wait for."""
LOOPS: Final[dict[str, Loop]] = {
    "plain": loops.plain,
    "shuffled by workers": loops.of_workers(2, shuffle=True),
    "persistent workers": loops.of_workers(3, persistent_workers=True),
    **{f"accumulation of {n}": loops.accumulation(n) for n in (2, 4, 8)},
    "accumulation of 4 over epochs": loops.accumulation(4, each_epoch=6),
    "summed losses": loops.summed_losses,
    "gan": loops.gan,
    "lbfgs": loops.lbfgs,
    **{
        f"evaluation {where}{mode}{grad}": evaluated.evaluation(not mode, not grad, every)
        for where, every in (("every 3 steps", 3), ("per epoch", None))
        for mode in ("", ", training mode")
        for grad in ("", ", gradients")
    },
    "evaluation before and after": evaluated.evaluation_around(no_grad=True),
    "evaluation before and after, gradients": evaluated.evaluation_around(no_grad=False),
    "evaluation of the training set": evaluated.evaluation_of_the_training_set,
    "forces": evaluated.forces,
    "statistics first": evaluated.statistics_first,
    "zipped": loops.zipped,
    "nested": loops.nested,
    "restarted": loops.restarted,
    "while true": loops.while_true,
    "trainer": loops.trainer,
    "new loader each epoch": boxed.new_loader_each_epoch,
    **{f"{name} batches": boxed.held_in(box, stream=False) for name, box in boxed.BOXES.items()},
    **{f"stream of {name} batches": boxed.held_in(box, stream=True) for name, box in boxed.BOXES.items()},
    "one ahead": boxed.one_ahead,
    "several models": loops.several_models,
    "frozen backbone": evaluated.frozen_backbone,
    "inference": evaluated.inference,
    "unheard inference": evaluated.unheard_inference,
    "arrays": loops_apart.arrays,
    "arrays accumulated": loops_apart.arrays_accumulated,
    "arrays with evaluation": loops_apart.arrays_with_evaluation,
    "async generator": loops_apart.async_generator,
    "one batch": loops_apart.one_batch,
    "gan on one batch": loops_apart.gan_on_one_batch,
    "functional": evaluated.functional,
    "own update": evaluated.own_update,
    "in a thread": loops_apart.in_a_thread,
    "read by a thread": loops_apart.read_by_a_thread,
    "in a function": loops_apart.in_a_function,
    "wrapped optimizer": loops_apart.wrapped_optimizer,
    "torch.compile": loops_apart.compiled("function"),
    "module.compile": loops_apart.compiled("method"),
    "in main memory": loops_copied.in_main_memory,
    **ON_DEVICE,
}


def played(name: str) -> tuple[Truth, Recording]:
    """Plays a loop with every tap on: its own count, and what was recorded. Those on a GPU run in virtual time."""
    if name not in ON_DEVICE:
        return _played(name, Recorder(name=name))
    with SimulatedCuda(SimulatedDevice(exact=True), kernel_ms=0.01, launch_ms=0.005) as cuda:
        return _played(name, cuda.device.recorder(name=name))


def _played(name: str, recorder: Recorder) -> tuple[Truth, Recording]:
    truth = Truth()
    with listening(recorder, truth.namespace, accelerated=name in ON_DEVICE):
        LOOPS[name](truth)
    truth.end()
    return truth, recorder.close()
