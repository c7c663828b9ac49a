"""How a trial waits for the device at both ends of what it measures; the user's own run is never held up.

It opens before the tap `sync`, whose stand-ins would take the wait for one of the loop's.
GPU: not yet run on one; tested with stand-ins for torch's functions.
"""

from __future__ import annotations

import torch

from gpu_doctor.capture.taps.tap import TapScope


def tap(scope: TapScope) -> None:
    """Says how to wait for the devices that the loop trains on; nothing is waited for here."""
    if not scope.accelerated:
        return
    recorder, cuda, mps = scope.recorder, torch.cuda.synchronize, torch.mps.synchronize

    def waits() -> bool:
        setup = recorder.setup()
        used = {setup.device, *(setup.model.device_bytes if setup.model is not None else ())}
        cards = sorted(one for one in used if one.startswith("cuda"))
        if cards and torch.cuda.is_current_stream_capturing():  # a wait would spoil the graph
            return False
        for one in cards:
            cuda(torch.device(one))
        if setup.device.startswith("mps"):
            mps()
        return bool(cards) or setup.device.startswith("mps")

    def forget() -> None:
        recorder.device_waits.wait_by(None)

    recorder.device_waits.wait_by(waits)
    scope.at_end(forget)
