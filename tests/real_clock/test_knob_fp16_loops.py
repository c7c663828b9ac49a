"""In real fp16 loops of every kind the loss is scaled and every gradient is finite."""

from __future__ import annotations

from typing import Any, Final

import pytest
import torch

from gpu_doctor.capture import patching
from gpu_doctor.trials.knobs.amp.autocast import mixed_precision
from gpu_doctor.trials.knobs.knob import Refused, TrialScope
from tests.support.knob_programs import PROGRAMS

REFUSED: Final = {"two optimizers": "More than one optimizer steps", "LBFGS": "The optimizer steps with a closure"}


LEFT_OUT: Final = ("a model that returns a tuple",)
"""oneDNN has no LSTM in float16 on this CPU."""


@pytest.mark.parametrize("where", ["before", "inside"])
@pytest.mark.parametrize("name", [one for one in PROGRAMS if one not in LEFT_OUT])
def test_the_loss_is_scaled_and_every_gradient_is_finite(name: str, where: str) -> None:
    earlier, loop = PROGRAMS[name]
    namespace: dict[str, Any] = {"__name__": "__main__"}
    if where == "before":
        exec(earlier, namespace)
    code = loop if where == "before" else earlier + loop
    seen: list[torch.dtype] = []
    look = torch.nn.modules.module.register_module_forward_hook(
        lambda module, args, out: seen.append(out.dtype) if isinstance(module, torch.nn.Linear) else None
    )
    try:
        if name in REFUSED:
            with pytest.raises(Refused, match=REFUSED[name]), mixed_precision(torch.float16, TrialScope(namespace)):
                exec(code, namespace)
        else:
            with mixed_precision(torch.float16, TrialScope(namespace)) as scaling:
                exec(code, namespace)
            assert scaling is not None and scaling.skipped < 5  # the first scale is too large for some, and is halved
            assert set(seen) == {torch.float16} or "autocast" in name
            for parameter in namespace["net"].parameters():
                assert parameter.dtype == torch.float32 and bool(torch.isfinite(parameter).all())
    finally:
        look.remove()
    assert patching.active() == ()
