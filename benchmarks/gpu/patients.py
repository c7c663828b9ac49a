"""The patients: a loop for each rule whose trouble one NVIDIA GPU can have without a setting of the machine changed."""

from __future__ import annotations

from typing import Final

from benchmarks.gpu.cells import BUSY, HEAD, LOOP, PLAIN, then
from benchmarks.gpu.patient import Patient

STARVED: Final = "DataLoader(Rows(32 * steps, ms=0.4), batch_size=32, pin_memory=pinned)"
TWO_WORKERS: Final = "DataLoader(Rows(32 * steps, ms=1.0), batch_size=32, pin_memory=pinned, num_workers=2)"
ASLEEP: Final = "DataLoader(Rows(32 * steps, ms=0.4, sleeps=True), batch_size=32, pin_memory=pinned)"
WORKERS: Final = "num_workers=size(8, 1)"

INPUT: Final = (
    Patient(
        "loader-without-workers",
        "input",
        HEAD + BUSY + f"loader = {STARVED}\n",
        LOOP,
        LOOP,
        loader=STARVED,
        by_hand=WORKERS,
        others=("slow-getitem",),
    ),
    Patient(
        "too-few-workers",
        "input",
        HEAD + BUSY + f"loader = {TWO_WORKERS}\n",
        LOOP,
        LOOP,
        loader=TWO_WORKERS,
        by_hand=WORKERS,
    ),
    Patient(
        "slow-storage",
        "input",
        HEAD + BUSY + f"loader = {ASLEEP}\n",
        LOOP,
        LOOP,
        loader=ASLEEP,
        by_hand=WORKERS,
        others=("loader-without-workers",),
    ),
)
"""Timed with the workers that the diagnosis prescribes."""

IMAGES: Final = """
class Images(Dataset):
    def __init__(self, pin=False, dtype=torch.uint8, count=size(512, 4)):
        shape = (count, 3, size(224, 8), size(224, 8))
        self.batch = torch.zeros(shape, dtype=dtype)
        if pin and pinned:
            self.batch = self.batch.pin_memory()
    def __len__(self):
        return steps
    def __getitem__(self, index):
        return self.batch
"""
PAGEABLE_LOADER: Final = "DataLoader(Images(count=size(96, 4)), batch_size=None, num_workers=2, prefetch_factor=1)"
"""Few and small enough for 64 MB of shared memory, which is all that a container may have."""
IN_TURN: Final = LOOP.replace(
    "    optimizer.zero_grad()\n",
    "    burn(2.0)\n    mask = mask_of_host.to(device, non_blocking=True)\n    optimizer.zero_grad()\n",
)
"""After the first copy the host works something out, and copies that."""
WAITS: Final = LOOP.replace(", non_blocking=True", "")

TRANSFER: Final = (
    Patient(
        "pageable-transfer",
        "transfer",
        HEAD + BUSY + IMAGES + f"loader = {PAGEABLE_LOADER}\n",
        WAITS,
        LOOP,
        loader=PAGEABLE_LOADER,
        by_hand="pin_memory=pinned",
    ),
    Patient(
        "blocking-transfer",
        "transfer",
        HEAD
        + BUSY
        + IMAGES
        + "loader = DataLoader(Images(pin=True), batch_size=None)\nmask_of_host = Images(pin=True, count=8).batch\n",
        IN_TURN.replace(", non_blocking=True", ""),
        IN_TURN,
        others=("heavy-transfer",),
    ),
    Patient(
        "heavy-transfer",
        "transfer",
        HEAD
        + BUSY
        + IMAGES
        + "wide = DataLoader(Images(pin=True, dtype=torch.float32), batch_size=None)\n"
        + "narrow = DataLoader(Images(pin=True), batch_size=None)\n",
        LOOP.replace("loader", "wide"),
        LOOP.replace("loader", "narrow"),
    ),
    Patient(
        "many-small-transfers",
        "transfer",
        PLAIN + "small = nn.Linear(64, 64).to(device)\noptimizer = torch.optim.SGD(small.parameters(), lr=1e-6)\n",
        """
for x in loader:
    parts = [torch.tensor([float(i)]).to(device) for i in range(60)]
    optimizer.zero_grad()
    loss = (small(x.to(device, non_blocking=True)) + torch.cat(parts).sum()).square().mean()
    loss.backward()
    optimizer.step()
""",
        """
for x in loader:
    parts = torch.arange(60, device=device).float()
    optimizer.zero_grad()
    loss = (small(x.to(device, non_blocking=True)) + parts.sum()).square().mean()
    loss.backward()
    optimizer.step()
""",
    ),
    Patient(
        "device-round-trips",
        "transfer",
        PLAIN + "rows = torch.zeros(size(4096, 64), 1024, device=device)\n",
        then("rows = torch.from_numpy(rows.cpu().numpy() * 0.5 + 1.0).to(device)", "rows = rows + loss.detach()"),
        then("rows = rows * 0.5 + 1.0", "rows = rows + loss.detach()"),
        others=("host-sync",),
    ),
)

TINY: Final = """
deep = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(size(120, 8))]).to(device)
optimizer = torch.optim.SGD(deep.parameters(), lr=1e-6)
"""
TINY_LOOP: Final = """
for x in loader:
    x = x.to(device, non_blocking=True)
    optimizer.zero_grad()
    loss = deep(x).square().mean()
    loss.backward()
    optimizer.step()
"""


def tiny(width: int = 64, batch: int = 32, micro: int = 1, large: int = 256) -> str:
    """Cells with many layers that hardly compute, a loader of small batches, and one of large ones."""
    return (
        HEAD
        + TINY.replace("WIDTH", str(width))
        + f"large_batch = {large}\n"
        + f"loader = DataLoader(Rows({micro} * {batch} * steps, ({width},)), batch_size={batch}, pin_memory=pinned)\n"
        + f"large = DataLoader(Rows(large_batch * steps, ({width},)), batch_size=large_batch, pin_memory=pinned)\n"
    )


HOST: Final = (
    Patient("host-sync", "host", PLAIN, then("total = loss.item()", "burn(3.0)"), then("burn(3.0)")),
    Patient(
        "hidden-sync",
        "host",
        PLAIN + "scores = torch.rand(size(4096, 64), device=device)\n",
        then("likely = scores[scores > 0.5]", "burn(3.0)"),
        then("likely = scores * (scores > 0.5)", "burn(3.0)"),
        others=("host-sync",),
    ),
    Patient("slow-python", "host", PLAIN, then("burn(12.0)"), LOOP),
    Patient(
        "not-compiled",
        "host",
        tiny(),
        TINY_LOOP,
        "deep = torch.compile(deep) if device == 'cuda' else deep\n" + TINY_LOOP,
        others=("launch-bound",),
    ),
    Patient(
        "small-batch",
        "host",
        tiny(),
        TINY_LOOP,
        TINY_LOOP.replace("loader", "large"),
        samples=8.0,
        batch=32,
        others=("not-compiled", "launch-bound"),
        name="launch-bound and a larger batch",
    ),
    Patient(
        "model-too-small",
        "host",
        HEAD
        + "deep = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)).to(device)\n"
        + "optimizer = torch.optim.Adam(deep.parameters())\nrows = torch.randn(2048, 16)\n"
        + "loader = DataLoader([rows] * steps, batch_size=None)\n",
        TINY_LOOP,
    ),
    Patient(
        "unfused-optimizer",
        "host",
        HEAD
        + TINY.replace("WIDTH", "256")
        + "loader = DataLoader(Rows(32 * steps, (256,)), batch_size=32, pin_memory=pinned)\n",
        "optimizer = torch.optim.AdamW(deep.parameters(), lr=1e-6, foreach=False)\n" + TINY_LOOP,
        "optimizer = torch.optim.AdamW(deep.parameters(), lr=1e-6, fused=True)\n" + TINY_LOOP,
        others=("not-compiled", "launch-bound"),
    ),
    Patient(
        "cache-emptied-each-step",
        "host",
        PLAIN,
        then("if device == 'cuda': torch.cuda.empty_cache()"),
        LOOP,
        others=("host-sync", "slow-python"),
    ),
)

PRODUCTS: Final = """
width = size(4096, 64)
wide = [one for _ in range(size(4, 2)) for one in (nn.Linear(width, width), nn.ReLU())]
wide = nn.Sequential(*wide).to(device)
optimizer = torch.optim.SGD(wide.parameters(), lr=1e-6)
loader = DataLoader([torch.randn(size(2048, 32), size(4096, 64))] * steps, batch_size=None)
kept = next(iter(loader)).to(device)
"""
PRODUCTS_LOOP: Final = """
for _ in loader:
    optimizer.zero_grad()
    loss = wide(kept).float().square().mean()
    loss.backward()
    optimizer.step()
"""
IN_HALF: Final = """
for _ in loader:
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.bfloat16):
        out = wide(kept)
    loss = out.float().square().mean()
    loss.backward()
    optimizer.step()
"""
CONVOLUTIONS: Final = """
layers = [nn.Conv2d(size(64, 4), size(64, 4), 3, padding=1) for _ in range(size(12, 2))]
stack = nn.Sequential(*[one for layer in layers for one in (layer, nn.BatchNorm2d(size(64, 4)), nn.ReLU())]).to(device)
optimizer = torch.optim.SGD(stack.parameters(), lr=1e-6)
images = torch.randn(size(64, 2), size(64, 4), size(56, 8), size(56, 8), device=device)
loader = DataLoader([torch.zeros(1)] * steps, batch_size=None)
"""
CONVOLVED: Final = """
for _ in loader:
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.bfloat16, enabled=HALF):
        out = stack(images)
    loss = out.float().square().mean()
    loss.backward()
    optimizer.step()
"""
LAST: Final = (
    "stack = stack.to(memory_format=torch.channels_last)\nimages = images.to(memory_format=torch.channels_last)\n"
)
WORDS: Final = """
class Words(nn.Module):
    def __init__(self, vocabulary, width=size(768, 16)):
        super().__init__()
        self.body, self.head = nn.Linear(width, width), nn.Linear(width, vocabulary, bias=False)
    def forward(self, x):
        return self.head(self.body(x))

def words(vocabulary):
    made = Words(vocabulary).to(device)
    return made, torch.optim.SGD(made.parameters(), lr=1e-6)

tokens = torch.randn(size(8192, 16), size(768, 16), device=device)
targets = torch.randint(0, size(50257, 33), (size(8192, 16),), device=device)
loader = DataLoader([torch.zeros(1)] * steps, batch_size=None)
"""
WORDS_LOOP: Final = """
model, optimizer = words(VOCABULARY)
for _ in loader:
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = functional.cross_entropy(model(tokens), targets)
    loss.backward()
    optimizer.step()
"""

LOST: Final = WORDS_LOOP.replace("VOCABULARY", "size(50304, 64)").replace(
    "functional.cross_entropy(model(tokens), targets)",
    "-torch.log(torch.softmax(model(tokens), -1) + 1e-9).gather(-1, targets[:, None]).mean()",
)
FROZEN: Final = """
width, inner, batch = size(2048, 64), size(8192, 256), size(4096, 32)
teacher = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width)).to(device, half)
teacher.requires_grad_(False)
student = nn.Linear(width, width).to(device, half)
optimizer = torch.optim.SGD(student.parameters(), lr=1e-6)
rows = torch.randn(8 * batch, width, device=device, dtype=half)
orders = [one for _ in range(-(-steps // 8)) for one in torch.randperm(len(rows), device=device).split(batch)]
loader = DataLoader([torch.zeros(1)] * steps, batch_size=None)
"""
TAUGHT: Final = """
for step, _ in enumerate(loader):
    at = orders[step]
    x = rows[at]
    with torch.no_grad():
        wanted = teacher(x)
    optimizer.zero_grad()
    loss = functional.mse_loss(student(x).float(), wanted.float())
    loss.backward()
    optimizer.step()
"""
"""Eight steps are an epoch."""

COMPUTE: Final = (
    Patient("full-precision", "compute", HEAD + PRODUCTS, PRODUCTS_LOOP, IN_HALF),
    Patient(
        "tf32-off",
        "compute",
        HEAD + PRODUCTS,
        PRODUCTS_LOOP,
        "torch.set_float32_matmul_precision('high')\n" + PRODUCTS_LOOP,
        others=("full-precision",),
    ),
    Patient(
        "cudnn-not-tuned",
        "compute",
        HEAD + CONVOLUTIONS,
        CONVOLVED.replace("HALF", "False"),
        "torch.backends.cudnn.benchmark = True\n" + CONVOLVED.replace("HALF", "False"),
        others=("full-precision",),
    ),
    Patient(
        "channels-first-convolutions",
        "compute",
        HEAD + CONVOLUTIONS,
        CONVOLVED.replace("HALF", "True"),
        LAST + CONVOLVED.replace("HALF", "True"),
    ),
    Patient(
        "loss-by-hand",
        "compute",
        HEAD + WORDS,
        LOST,
        WORDS_LOOP.replace("VOCABULARY", "size(50304, 64)"),
    ),
    Patient(
        "unaligned-shapes",
        "compute",
        HEAD + WORDS,
        WORDS_LOOP.replace("VOCABULARY", "size(50257, 33)"),
        WORDS_LOOP.replace("VOCABULARY", "size(50304, 64)"),
    ),
    Patient(
        "frozen-recomputed",
        "compute",
        HEAD + FROZEN,
        TAUGHT,
        "known = torch.zeros_like(rows)\n"
        + TAUGHT.replace(
            "wanted = teacher(x)", "if step < 8:\n            known[at] = teacher(x)\n        wanted = known[at]"
        ),
    ),
)

FULL_CARD: Final = (
    "held = torch.empty(int(0.93 * torch.cuda.mem_get_info()[0]), dtype=torch.uint8, device=device)"
    " if device == 'cuda' else None\n"
)
ACCUMULATED: Final = """
for step, x in enumerate(loader):
    loss = deep(x.to(device, non_blocking=True)).square().mean() / 4
    loss.backward()
    if step % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
"""
ALL_AT_ONCE: Final = """
for x in large:
    loss = deep(x.to(device, non_blocking=True)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
OTHER: Final = """
import subprocess, sys
work = "import torch; a = torch.randn(4096, 4096, device='cuda'); print('works', flush=True)"
work += "\\nwhile True: a @ a; torch.cuda.synchronize()"
command = [sys.executable, "-c", work if device == "cuda" else "print()"]
other = subprocess.Popen(command, stdout=subprocess.PIPE)
other.stdout.readline()
try:
"""

MEMORY: Final = (
    Patient("near-out-of-memory", "compute", PLAIN, FULL_CARD + LOOP),
    Patient(
        "needless-accumulation",
        "host",
        tiny(micro=4, large=128),
        ACCUMULATED,
        ALL_AT_ONCE,
        others=("not-compiled",),
    ),
    Patient(
        "shared-gpu",
        "compute",
        PLAIN,
        OTHER
        + "".join(f"    {one}\n" for one in LOOP.strip().splitlines())
        + "finally:\n    other.kill()\n    other.wait()\n    other.stdout.close()\n",
    ),
)

HEALTHY: Final = "healthy"
"""In place of a rule: nothing may be found that costs a tenth."""
PATIENTS: Final = (
    *INPUT,
    *TRANSFER,
    *HOST,
    *COMPUTE,
    *MEMORY,
    Patient(HEALTHY, "compute", PLAIN, LOOP),
)
LEFT_OUT: Final = {
    "throttled, capped-clocks, slow-link": "the machine's settings are left alone",
    "emulated-half-precision": "takes a card older than compute capability 8.0",
    "cpu-only-torch, driver-too-old, unsupported-architecture": "take another torch or driver",
    "idle-gpus, data-parallel, communication-bound, straggler": "take several GPUs",
    "fragmented-memory": "no loop is known that fragments torch's allocator on every card",
}
"""GPU rules without a patient here, and why."""
