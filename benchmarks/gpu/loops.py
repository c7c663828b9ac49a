"""Loops as people write them on a GPU, one for each GPU cause, sick and cured.

They are no files as the corpus' programs are, for their sizes are filled in: they keep the device busy for a known time
whatever the card (`rows_for`), and shrink in a rehearsal (`size`). Each runs in a namespace of its own.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from typing import Any, Final

from tests.support.turns import scaled

WORK_S: Final = 0.006
"""The device's part of a step of the net in `BUSY`."""
HEALTHY: Final = "healthy"
"""Stands in place of a rule: nothing may be found that costs a tenth."""
HEAD: Final = """
import time
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

device, steps, real = "DEVICE", STEPS, REAL
pinned = device == "cuda"
half = torch.bfloat16 if pinned else torch.float32

def size(full, small):
    return full if real else small

def burn(ms):
    until = time.perf_counter() + size(ms, 0.2 * ms) * 1e-3
    while time.perf_counter() < until:
        pass

class Rows(Dataset):
    def __init__(self, count, shape=(64,), ms=0.0, sleeps=False):
        self.count, self.ms, self.sleeps, self.row = count, ms, sleeps, torch.randn(shape)
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        if self.sleeps:
            time.sleep(self.ms * 1e-3)
        elif self.ms:
            burn(self.ms)
        return self.row

class Held(Dataset):
    def __init__(self, count, batch, ms=0.0):
        self.count, self.batch, self.ms = count, batch, ms
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        time.sleep(self.ms * 1e-3)
        return self.batch

def pin(batch):
    return batch.pin_memory() if pinned else batch
"""
BUSY: Final = """
class Net(nn.Module):
    def __init__(self, rows=ROWS, width=size(4096, 64)):
        super().__init__()
        self.rows = rows
        self.inner = nn.Sequential(nn.Linear(64, width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    def forward(self, x):
        x = x.flatten(1)[:, :64].to(half)
        return self.inner(x.repeat(-(-self.rows // len(x)), 1)[: self.rows])

net = Net().to(device, half)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
"""
"""A net that works as long as `ROWS` rows take, however few samples there are."""
LOOP: Final = """
for x in loader:
    x = x.to(device, non_blocking=True)
    optimizer.zero_grad()
    loss = net(x).float().square().mean()
    loss.backward()
    optimizer.step()
"""
PLAIN: Final = HEAD + BUSY + "loader = DataLoader(Rows(32 * steps), batch_size=32, pin_memory=pinned)\n"
"""A loop that waits for nothing."""
WAITS: Final = LOOP.replace(", non_blocking=True", "")


@dataclass(frozen=True)
class Loop:
    """Holds what is known of a loop by construction; what its cure gains is measured, never written down."""

    rule: str
    klass: str
    """The bottleneck class."""
    above: str
    """The cells above: they make `steps`, `device`, the loader and the model."""
    cell: str
    cured: str = ""
    """The cell when it is cured; empty where there is nothing to time."""
    better: str = ""
    """The cells above when it is cured; empty = as they were."""
    others: tuple[str, ...] = ()
    """Rules that may come first as well."""
    samples: float = 1.0
    """Samples of a step of the cured loop over those of the sick one."""
    name: str = ""
    """Empty = the rule's."""

    @property
    def key(self) -> str:
        """Returns the name of its rows."""
        return self.name or self.rule


def filled(above: str, device: str, steps: int, real: bool = True, rows: int = 0) -> str:
    """Fills the cells above in for a device, a number of steps and a size of the net; 0 = as busy as WORK_S says."""
    rows = rows or (rows_for(device, real) if "ROWS" in above else 0)
    for name, value in {"DEVICE": device, "STEPS": steps, "REAL": real, "ROWS": rows}.items():
        above = above.replace(name, str(value))
    return above


@functools.cache
def rows_for(device: str, real: bool) -> int:
    """Finds the rows with which the net keeps this card busy for WORK_S: loops are then equally sick on every card."""
    if not real:
        return 64
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(filled(HEAD + BUSY, device, 1, real, 8192), "<above>", "exec"), names)
    torch, took = names["torch"], 0.0
    x = torch.randn(32, 64, device=device)
    for _ in range(5):  # in the first ones kernels are chosen and the clock rises
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(20):
            names["optimizer"].zero_grad()
            names["net"](x).float().square().mean().backward()
            names["optimizer"].step()
        torch.cuda.synchronize()
        took = (time.perf_counter() - began) / 20
    return scaled(8192, took, WORK_S, least=64)


def then(*lines: str) -> str:
    """Appends lines to the loop, after its optimizer step."""
    return LOOP + "".join(f"    {one}\n" for one in lines)


def fed(dataset: str, words: str = "") -> str:
    """Writes the cells above a loop on a dataset, with more words for its loader."""
    return HEAD + BUSY + f"loader = DataLoader({dataset}, batch_size=32, pin_memory=pinned{words})\n"


SLEEPS: Final = "Rows(32 * steps, ms=0.4, sleeps=True)"
EIGHT: Final = fed(SLEEPS, ", num_workers=size(8, 1)")
INPUT: Final = (Loop("slow-storage", "input", fed(SLEEPS), LOOP, LOOP, EIGHT, ("loader-without-workers",)),)

IMAGES: Final = "torch.zeros((size({}, 4), 3, size(224, 8), size(224, 8)), dtype=torch.{})"
PAGED: Final = HEAD + BUSY + f"images = Held(steps, {IMAGES.format(96, 'uint8')})\n"
FORKED: Final = "loader = DataLoader(images, batch_size=None, num_workers=2, prefetch_factor=1{})\n"
"""They fit into 64 MB of shared memory, which is all that a container may have."""
WHOLE: Final = f"loader = DataLoader(Held(steps, pin({IMAGES})), batch_size=None)\n"
MASK: Final = f"mask = pin({IMAGES.format(8, 'uint8')})\n"
IN_TURN: Final = LOOP.replace(
    "    optimizer.zero", "    burn(2.0)\n    y = mask.to(device, non_blocking=True)\n    optimizer.zero"
)
"""After the first copy the host works something out, and copies that."""
SMALL: Final = "net = nn.Linear(64, 64).to(device)\noptimizer = torch.optim.SGD(net.parameters(), lr=1e-6)\n"
MANY: Final = LOOP.replace("    optimizer.zero", "    x = x + PARTS.sum()\n    optimizer.zero")
ONE_BY_ONE: Final = "torch.cat([torch.tensor([float(i)]).to(device) for i in range(60)])"
STATE: Final = PLAIN + "rows = torch.zeros(size(4096, 64), 1024, device=device)\n"
TRIP: Final = "rows = torch.from_numpy(rows.cpu().numpy() * 0.5 + 1.0).to(device)"
STAYS: Final = ("rows = rows * 0.5 + 1.0", "rows = rows + loss.detach()")
BLOCKED: Final = HEAD + BUSY + WHOLE.format(512, "uint8") + MASK
HEAVY: Final = tuple(HEAD + BUSY + WHOLE.format(512, kind) for kind in ("float32", "uint8"))
TRANSFER: Final = (
    Loop(
        "pageable-transfer",
        "transfer",
        PAGED + FORKED.format(""),
        WAITS,
        LOOP,
        PAGED + FORKED.format(", pin_memory=pinned"),
    ),
    Loop(
        "blocking-transfer",
        "transfer",
        BLOCKED,
        IN_TURN.replace(", non_blocking=True", ""),
        IN_TURN,
        "",
        ("heavy-transfer",),
    ),
    Loop("heavy-transfer", "transfer", HEAVY[0], LOOP, LOOP, HEAVY[1]),
    Loop(
        "many-small-transfers",
        "transfer",
        PLAIN + SMALL,
        MANY.replace("PARTS", ONE_BY_ONE),
        MANY.replace("PARTS", "torch.arange(60, device=device)"),
    ),
    Loop("device-round-trips", "transfer", STATE, then(TRIP, STAYS[1]), then(*STAYS), "", ("host-sync",)),
)


def deep(width: int = 64, batch: int = 32, micro: int = 1) -> str:
    """Writes cells with many layers that hardly compute, and a loader of so many micro-batches a step."""
    rows = f"Rows({micro} * {batch} * steps, ({width},))"
    return (
        HEAD
        + f"net = nn.Sequential(*[nn.Linear({width}, {width}) for _ in range(size(120, 8))]).to(device)\n"
        + "optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)\n"
        + f"loader = DataLoader({rows}, batch_size={batch}, pin_memory=pinned)\n"
    )


LITTLE: Final = (
    HEAD
    + "net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)).to(device)\n"
    + "optimizer = torch.optim.Adam(net.parameters())\n"
    + "loader = DataLoader(Held(steps, torch.randn(2048, 16)), batch_size=None)\n"
)
LAUNCHES: Final = ("not-compiled", "launch-bound")
ACCUMULATED: Final = """
for step, x in enumerate(loader):
    loss = net(x.to(device, non_blocking=True)).square().mean() / 4
    loss.backward()
    if step % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
"""
EMPTIED: Final = then("if pinned: torch.cuda.empty_cache()")
HOST: Final = (
    Loop("host-sync", "host", PLAIN, then("total = loss.item()", "burn(3.0)"), then("burn(3.0)")),
    Loop("slow-python", "host", PLAIN, then("burn(12.0)"), LOOP),
    Loop("not-compiled", "host", deep(), LOOP, LOOP, deep() + "net = torch.compile(net)\n", LAUNCHES),
    Loop("small-batch", "host", deep(), LOOP, LOOP, deep(batch=256), LAUNCHES, 8.0),
    Loop("model-too-small", "host", LITTLE, LOOP),
    Loop("cache-emptied-each-step", "host", PLAIN, EMPTIED, LOOP, "", ("host-sync", "slow-python")),
    Loop("needless-accumulation", "host", deep(micro=4), ACCUMULATED, LOOP, deep(batch=128), ("not-compiled",)),
)

PRODUCTS: Final = (
    HEAD
    + """
width = size(4096, 64)
net = nn.Sequential(*[one for _ in range(size(4, 2)) for one in (nn.Linear(width, width), nn.ReLU())]).to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5)
loader = DataLoader(Held(steps, torch.randn(size(2048, 32), width, device=device)), batch_size=None)
"""
)
IN_HALF: Final = LOOP.replace(
    "    loss = net(x)", "    with torch.autocast(device, dtype=torch.bfloat16):\n        out = net(x)\n    loss = out"
)
IN_FP16: Final = IN_HALF.replace("bfloat16", "float16").replace(
    "    loss.backward()\n    optimizer.step()\n",
    "    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()\n",
)
SCALER: Final = "scaler = torch.amp.GradScaler(device)\n"
IMAGE_NET: Final = (
    HEAD
    + """
width = size(64, 4)
blocks = [(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()) for _ in range(size(12, 2))]
net = nn.Sequential(*[one for block in blocks for one in block]).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
images = torch.randn(size(64, 2), width, size(56, 8), size(56, 8), device=device)
"""
)
GIVEN: Final = "loader = DataLoader(Held(steps, images), batch_size=None)\n"
LAST: Final = (
    "net = net.to(memory_format=torch.channels_last)\nimages = images.to(memory_format=torch.channels_last)\n" + GIVEN
)
TUNED: Final = "torch.backends.cudnn.benchmark = True\n"
FULL_CARD: Final = (
    "free = int(0.93 * torch.cuda.mem_get_info()[0]) if pinned and real else 0\n"
    "held = torch.empty(free, dtype=torch.uint8, device=device)\n"
)
OTHER: Final = """
import subprocess, sys
work = "import torch; a = torch.randn(4096, 4096, device='cuda'); print('works', flush=True)"
work += "\\nwhile True: a @ a; torch.cuda.synchronize()"
other = subprocess.Popen([sys.executable, "-c", work if real else "print()"], stdout=subprocess.PIPE)
other.stdout.readline()
try:
""" + "".join(f"    {one}\n" for one in LOOP.strip().splitlines())
SHARED: Final = OTHER + "finally:\n    other.kill()\n    other.wait()\n    other.stdout.close()\n"
FULL: Final = ("full-precision",)
COMPUTE: Final = (
    Loop("full-precision", "compute", PRODUCTS, LOOP, IN_HALF),
    Loop("tf32-off", "compute", PRODUCTS, LOOP, "torch.set_float32_matmul_precision('high')\n" + LOOP, "", FULL),
    Loop("cudnn-not-tuned", "compute", IMAGE_NET + GIVEN, LOOP, TUNED + LOOP, "", FULL),
    Loop("compile", "compute", IMAGE_NET + LAST, IN_HALF, IN_HALF, IMAGE_NET + LAST + "net = torch.compile(net)\n"),
    Loop("channels-first-convolutions", "compute", IMAGE_NET + GIVEN, IN_HALF, IN_HALF, IMAGE_NET + LAST),
    Loop("near-out-of-memory", "compute", PLAIN, FULL_CARD + LOOP),
    Loop("shared-gpu", "compute", PLAIN, SHARED),
)
LOOPS: Final = (Loop(HEALTHY, "compute", PLAIN, LOOP), *INPUT, *TRANSFER, *HOST, *COMPUTE)
LEFT_OUT: Final = {
    "throttled, capped-clocks, slow-link": "the machine's settings are left alone",
    "emulated-half-precision": "takes a card older than compute capability 8.0",
    "cpu-only-torch, driver-too-old, unsupported-architecture": "take another torch or driver",
    "idle-gpus, data-parallel": "take several GPUs",
    "fragmented-memory": "no loop is known that fragments torch's allocator on every card",
}
"""The GPU causes without a loop here, and why."""
