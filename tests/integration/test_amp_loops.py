"""Loops of every kind with torch's recipe for mixed precision written in: they run, and they train."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Final

import pytest
import torch

from gpu_doctor.recording import Setup
from gpu_doctor.trials.cell_code import fix_of, written_into
from gpu_doctor.trials.knobs.amp.knob import lstm_in_bf16
from tests.support.cells import CELLS, names

FOUND: Final = Setup(optimizers=("SGD",), device="cpu", dtype="float32")


@pytest.mark.filterwarnings("ignore:Detected call of")  # torch, where the first step finds no scale
@pytest.mark.parametrize("where", ["before", "inside"])
@pytest.mark.parametrize("amp", ["bf16", "fp16"])
@pytest.mark.parametrize("name", [name for name, cell in CELLS.items() if cell.knobs])
def test_the_changed_loop_trains_and_is_what_is_pasted(name: str, amp: str, where: str) -> None:
    earlier, loop, refused = CELLS[name].setup, CELLS[name].code, CELLS[name].refuses.get(f"amp={amp}")
    cell = loop if where == "before" else earlier + loop
    namespace = names()
    exec(earlier, namespace)
    namespace["In"] = ["", *([earlier] if where == "before" else []), cell]
    fix, ran = (how(cell, namespace, amp) for how in (pasted, text_that_runs))
    if refused:
        assert refused in fix.notes[0] and ran.reasons == {"amp": fix.notes[0]}
        return
    assert [one.after for one in fix.cells] == [ran.text] and not ran.reasons
    if name == "a model that returns a tuple" and (amp == "fp16" or not lstm_in_bf16()):
        return  # oneDNN has no such LSTM
    dtypes: list[torch.dtype] = []
    look = torch.nn.modules.module.register_module_forward_hook(
        lambda module, args, out: dtypes.append(out.dtype) if isinstance(module, torch.nn.Linear) else None
    )
    half_to_numpy = (name, amp) == ("an output as Hugging Face's", "bf16")
    try:
        with pytest.raises(TypeError, match="BFloat16") if half_to_numpy else nullcontext():
            exec(ran.text, namespace)
    finally:
        look.remove()
    assert dtypes and set(dtypes) == {torch.bfloat16 if amp == "bf16" else torch.float16}
    for parameter in (namespace["net"] if "net" in namespace else namespace["G"]).parameters():
        assert parameter.dtype == torch.float32 and bool(torch.isfinite(parameter).all())


def pasted(cell: str, namespace: dict[str, Any], amp: str) -> Any:
    return fix_of(cell, cell, namespace, FOUND, {"amp": amp}, None)


def text_that_runs(cell: str, namespace: dict[str, Any], amp: str) -> Any:
    return written_into(cell, namespace, FOUND, {"amp": amp})
