"""augmentation-in-loop: the loop works on the loader's batch before the model gets it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, line, on_gpu

RULE = "augmentation-in-loop"
FLIP = replace(line("x = augment(x)", 0.5), before_forward=True)
AUGMENTING = Loop(other=10.0, lines=(FLIP,))


def test_sick() -> None:
    found = sick(RULE, AUGMENTING)
    assert found.cost_share == pytest.approx(0.5, abs=0.01) and "augment(x)" in found.headline
    assert "batch_size=32" in found.prescriptions[0].code
    compile(found.prescriptions[0].code, RULE, "exec")
    assert named(AUGMENTING) == [RULE]
    plot = replace(line("plot(history)", 0.2), line=9)
    assert set(named(AUGMENTING.but(lines=(replace(FLIP, share=0.3), plot)))) == {RULE, "slow-python"}


def test_well() -> None:
    assert asked(RULE, AUGMENTING.but(lines=(replace(FLIP, before_forward=False),))) is None
    assert asked(RULE, AUGMENTING.but(has_loader=False)) is None, "there is no loader whose workers could do it"
    assert asked(RULE, AUGMENTING.but(other=0.5)) is None
    few = replace(AUGMENTING.but(lines=(replace(FLIP, share=0.1), line("log(x)", 0.4))).recording(), looks=10)
    assert RULE not in named(few), "one look tells nothing"


def test_behind_a_busy_gpu_it_is_free() -> None:
    assert asked(RULE, on_gpu(other=5.0, gpu_gap=0.1, gpu_work=14.9, lines=(FLIP,))) is None
    idle = on_gpu(other=5.0, gpu_gap=5.0, gpu_work=10.0, lines=(FLIP,))
    assert any("on the GPU" in one.code for one in sick(RULE, idle).prescriptions)
