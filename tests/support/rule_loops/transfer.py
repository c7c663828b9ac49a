"""Loops of the causes in `rules/transfer/`: copies to the GPU that it waits for."""

from __future__ import annotations

from typing import Any

from gpu_doctor.recording import Recording
from gpu_doctor.recording.setup import Traffic
from tests.support.recordings import Loop, on_gpu, read, with_columns, with_more
from tests.support.rule_loops.form import CauseLoops, Sick

PIN = {"pin_memory": True}

PAGEABLE = on_gpu(transfer=5.0, gpu_gap=5.0, gpu_work=10.0, pageable=2.0, batch_bytes=50e6, workers=4).but(
    loader={"num_workers": 4, "prefetch_factor": 2}
)
SMALL = Traffic(to_device=4000, to_device_bytes=4e6, small=4000)

PAGEABLE_TRANSFER = CauseLoops(
    "pageable-transfer",
    well=on_gpu(),
    sick={
        "all that was exposed": Sick(PAGEABLE, 5 / 15, settings=(PIN,), gain=1.2, figures=("48 MiB",)),
        "whatever the link": Sick(PAGEABLE.but(pcie=(4, 16)), 5 / 15, settings=(PIN,), gain=1.2),
        "a loader that pins already": Sick(PAGEABLE.but(loader=PIN), 5 / 15, cures=("def pin_memory",)),
        "without workers the loop would pin by itself": Sick(
            PAGEABLE.but(workers=0), 5 / 15, settings=(PIN,), cures=("num_workers=1",)
        ),
    },
    near={
        "pinned": PAGEABLE.but(pageable=0.0),
        "the GPU does not notice them": PAGEABLE.but(gpu_gap=0.1, gpu_work=15.0),
        "the loader fills the gap": on_gpu(wait=8.0, transfer=0.3, gpu_gap=8.0, pageable=2.0),
        "many small copies are another cause": with_more(
            PAGEABLE.but(transfers=40.0, pageable=40.0, batch_bytes=40e3), traffic=SMALL
        ),
    },
)

WAITED = Traffic(to_device=200, to_device_bytes=2e9, blocking_pinned=200)
BLOCKING = on_gpu(transfer=5.0, gpu_gap=5.0, gpu_work=10.0, batch_bytes=20e6)
"""The host waits 5 of 15 ms for copies."""


def waited(loop: Loop = BLOCKING, traffic: Traffic = WAITED, copied_ms: float = 2.0) -> Recording:
    """Returns the recording of a GPU that copies for some of the wait, and then idles."""
    return with_columns(with_more(loop, traffic=traffic), exposed_transfer_s=copied_ms * 1e-3)


BLOCKING_TRANSFER = CauseLoops(
    "blocking-transfer",
    well=on_gpu(),
    sick={
        "the idling, and the copying is the bytes": Sick(
            waited(), 3 / 15, named=("blocking-transfer", "heavy-transfer"), gain=1.07, cures=("non_blocking=True",)
        ),
        "beside launches the copy hides as well": Sick(
            waited(BLOCKING.but(caught_up=1.0)), 5 / 15, named=("blocking-transfer", "small-batch"), gain=1.07
        ),
    },
    near={
        "nothing is waited for": waited(traffic=Traffic(to_device=200, to_device_bytes=2e9)),
        "pageable": waited(BLOCKING.but(pageable=2.0)),
        "the GPU does not notice": waited(BLOCKING.but(gpu_gap=0.1, gpu_work=15.0), copied_ms=0.1),
        "all of the wait is copying": waited(copied_ms=5.0),
    },
)

WIDE = Traffic(to_device=200, to_device_bytes=10e9, wide_bytes=9.5e9)
HEAVY = on_gpu(transfer=4.0, other=1.0, gpu_gap=4.0, gpu_work=11.0, batch_bytes=100e6)

HEAVY_TRANSFER = CauseLoops(
    "heavy-transfer",
    well=on_gpu(),
    sick={
        "3 MiB a sample": Sick(with_more(HEAVY, traffic=WIDE), 4 / 15, cures=("uint8", "Stream()"), figures=("3 MiB",)),
        "narrow bytes are copied ahead": Sick(
            with_more(HEAVY, traffic=Traffic(to_device=200, to_device_bytes=10e9)),
            4 / 15,
            cures=("wait_stream",),
            unsaid=("uint8",),
        ),
        "the link that was read": Sick(
            with_more(HEAVY.but(pcie=(4, 16)), traffic=WIDE), 4 / 15, figures=("PCIe 4", "16 lanes")
        ),
        "what is left of a blocking copy": Sick(waited(), 2 / 15, named=("blocking-transfer", "heavy-transfer")),
    },
    near={
        "short copies": with_more(HEAVY.but(transfer=0.3, gpu_gap=0.3, gpu_work=14.7), traffic=WIDE),
        "copied on a stream of their own": with_more(HEAVY.but(gpu_gap=0.1, gpu_work=14.9), traffic=WIDE),
        "the loader fills the gap": with_more(HEAVY.but(wait=4.0, gpu_gap=4.0), traffic=WIDE),
        "pageable": with_more(HEAVY.but(pageable=2.0), traffic=WIDE),
        "no GPU": with_more(Loop(transfer=4.0), traffic=WIDE),
    },
)

PIECES = on_gpu(transfer=1.0, forward=2.0, backward=1.5, optimizer=0.5, gpu_work=4.5, gpu_gap=0.5, caught_up=1.0).but(
    transfers=40.0, batch_bytes=40e3
)
"""Forty copies of 1 kB in 1 ms of a 5 ms step of the host, while the GPU has 3 ms of work."""

PIECEMEAL = ("many-small-transfers", "small-batch")

MANY_SMALL_TRANSFERS = CauseLoops(
    "many-small-transfers",
    bottleneck="host",
    well=on_gpu(),
    sick={
        "forty copies a step": Sick(
            with_more(PIECES, traffic=SMALL), 0.2, named=PIECEMEAL, figures=("40 copies", "1\u202f000 B")
        ),
        "pinning is not the cure": Sick(with_more(PIECES.but(pageable=40.0), traffic=SMALL), 0.2, named=PIECEMEAL),
    },
    near={
        "two a step": with_more(
            PIECES.but(transfers=2.0), traffic=Traffic(to_device=200, to_device_bytes=4e6, small=200)
        ),
        "the GPU has work queued": with_more(PIECES.but(caught_up=0.0, gpu_gap=0.01), traffic=SMALL),
        "large pieces": with_more(PIECES.but(batch_bytes=80e6), traffic=Traffic(to_device=4000, to_device_bytes=8e9)),
    },
)

COPYING = on_gpu(transfer=5.0, gpu_gap=5.0)
BEST: dict[str, Any] = {"pcie_gen": 5, "pcie_width": 16, "pcie_gen_max": 5, "pcie_width_max": 16}
LINK = 5 / 15 * 0.75


def slot(loop: Loop = COPYING, **readings: Any) -> Recording:
    """Returns the loop's recording on a card whose link was read."""
    return read(loop, 0, **{**BEST, **readings})


SLOW_LINK = CauseLoops(
    "slow-link",
    kind="at-most",
    well=slot(on_gpu()),
    sick={
        "4 of 16 lanes": Sick(slot(pcie_width=4), LINK, figures=("gen 5 x4",)),
        "generation 3 of 5": Sick(slot(pcie_gen=3), LINK, figures=("gen 5 x16",)),
        "lanes missing in an older slot": Sick(
            slot(pcie_gen=3, pcie_gen_max=3, pcie_width=4), LINK, figures=("gen 3 x16",)
        ),
    },
    near={
        "the best that the slot has": slot(),
        "nobody read the link": COPYING,
        "the host cannot make it faster": slot(pcie_gen=4, pcie_gen_max=4),
        "copies take NVLink-C2C": slot(pcie_width=1, c2c_bytes_per_s=447e9),
        "a link that rests is judged at its best": slot(pcie_gen=[1, 1, 5, 5, 1, 5, 1, 1]),
        "hidden copies": slot(on_gpu(), pcie_width=4),
        "a slot that is not known": read(COPYING, 0, pcie_gen=3, pcie_width=16, pcie_width_max=16),
    },
)

CAUSES = (PAGEABLE_TRANSFER, BLOCKING_TRANSFER, HEAVY_TRANSFER, MANY_SMALL_TRANSFERS, SLOW_LINK)
