"""What the tests of fixed loops share."""

from __future__ import annotations

from typing import Any

import gpu_doctor
from gpu_doctor.recording import Setup
from gpu_doctor.trials.knobs import KNOBS
from tests.support.image_cells import IMAGES

assert KNOBS  # the knobs are imported here, before a test's time is counted

TRAIN = """%s
for epoch in range(2):
    for images, targets in loader:
        images, targets = images.to(device), targets.to(device)
        optimizer.zero_grad()

        # the forward
        output = model(
            images  # all of them
        )
        note = '''a text
over lines'''
        loss = criterion(output, targets)

        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()  # once
"""


def images(settings: dict[str, Any], loop: str = TRAIN % "# a cell", earlier: str = IMAGES) -> tuple[Any, str, Setup]:
    """The fix, the fixed cell, and the setup that a run of it found."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(earlier, namespace)
    case = gpu_doctor.case(loop, namespace)
    case.run()
    fix = case.fix(settings, [earlier])
    after = {one.before: one.after for one in fix.cells}
    fresh: dict[str, Any] = {"__name__": "__main__"}
    exec(after.get(earlier, earlier), fresh)
    again = gpu_doctor.case(after.get(loop, loop), fresh)
    return fix, after.get(loop, loop), again.run().setup
