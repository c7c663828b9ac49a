"""Every setting that was written into the cells can be written off again."""

from __future__ import annotations

from typing import Any

from tests.support.patched_cells import fixed, ran

OWN = """torch.backends.cudnn.benchmark = True
torch.set_float32_matmul_precision("high")
opt = optim.Adam(net.parameters(), lr=1e-3, fused=True)
loader = DataLoader(ds, 16, num_workers=1, persistent_workers=True, prefetch_factor=4, pin_memory=True)
for x in loader:
    opt.zero_grad()
    x = x.to("cpu", non_blocking=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(x).sum()
    loss.backward()
    opt.step()
"""


def test_every_setting_can_be_written_off_again() -> None:
    import torch

    precision, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    try:
        off: dict[str, Any] = {
            "persistent_workers": False,
            "pin_memory": False,
            "prefetch_factor": 2,
            "amp": "off",
            "non_blocking": False,
            "fused_optimizer": False,
            "tf32": False,
            "cudnn_benchmark": False,
        }
        fix, cells = fixed([OWN], off)
        assert fix.complete, str(fix)
        setup = ran(cells)[1].setup
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = benchmark
    loader, facts = setup.training_loader, setup.optimizer_facts
    assert loader is not None and facts
    assert (loader.persistent_workers, loader.pin_memory, loader.prefetch_factor) == (False, False, 2)
    assert (setup.autocast, facts[0].fused, setup.flags["cudnn_benchmark"]) == ("", False, False)
    assert setup.flags["matmul_precision"] == "highest" and "non_blocking=False" in cells[0]
