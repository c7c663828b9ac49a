"""A `worker_init_fn` is written before the loader, handed to it, and run by real workers."""

from __future__ import annotations

from typing import Any

import gpu_doctor
from tests.support.patched_cells import LOOP, PRELUDE, fixed

TELLING = """class Telling(Rows):
    def __getitem__(self, i):
        return torch.full((4,), float(torch.get_num_threads()))
loader = DataLoader(
    Telling(),
    batch_size=16,  # rows
    num_workers=1
)
"""


READ = LOOP.replace("    loss = net", "    threads = x[0, 0].item()\n    loss = net")


def test_a_worker_init_fn_is_written_before_the_loader_and_handed_to_it() -> None:
    fix, cells = fixed([TELLING, READ], {"worker_threads": 2})
    assert fix.complete, str(fix)
    assert cells[0].startswith("def worker_threads(worker):\n    import torch\n    torch.set_num_threads(2)\n\nclass")
    assert "    num_workers=1,\n    worker_init_fn=worker_threads,\n)" in cells[0] and "# rows" in cells[0]
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(PRELUDE + cells[0], namespace)
    gpu_doctor.case(cells[1], namespace).run()
    assert namespace["threads"] == 2.0
