"""Training loops of many kinds as cells, for tests that turn every knob on every kind of loop.

Each is a pair: what an earlier cell makes, and the cell that trains. Joined, everything is made in the training cell.
"""

from __future__ import annotations

from typing import Final

IMPORTS: Final = """import torch
from collections import OrderedDict
from dataclasses import dataclass
from torch import nn
from torch.utils.data import (BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, Sampler, TensorDataset,
                              WeightedRandomSampler, get_worker_info)
torch.manual_seed(0)
"""
DATA: Final = """x = torch.randn(240, 8)
data = TensorDataset(x, (x[:, :1] > 0).float())
"""
NET: Final = """net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""
LOADER: Final = "loader = DataLoader(data, batch_size=8, shuffle=True)\n"
LOOP: Final = """for xb, yb in loader:
    opt.zero_grad()
    loss = nn.functional.mse_loss(net(xb), yb)
    loss.backward()
    opt.step()
"""
PLAIN: Final = IMPORTS + DATA + NET

PROGRAMS: Final[dict[str, tuple[str, str]]] = {
    "plain": (PLAIN + LOADER, LOOP),
    "subclass with another __init__": (
        PLAIN
        + """class Pairs(DataLoader):
    def __init__(self, rows, size, *, note):
        super().__init__(rows, size, shuffle=True)
        self.note = note
    def __iter__(self):
        for one in super().__iter__():
            yield one[0], one[1]
loader = Pairs(data, 8, note="mine")
""",
        LOOP,
    ),
    "a batch sampler of one's own": (
        PLAIN
        + """class Halves(Sampler):
    def __iter__(self):
        return iter([list(range(i, i + 8)) for i in range(0, 240, 8)])
    def __len__(self):
        return 30
loader = DataLoader(data, batch_sampler=Halves())
""",
        LOOP,
    ),
    "torch's batch sampler": (
        PLAIN + "loader = DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 8, False))\n",
        LOOP,
    ),
    "weighted sampler and generator": (
        PLAIN
        + """generator = torch.Generator().manual_seed(3)
weights = torch.rand(240)
loader = DataLoader(data, 8, sampler=WeightedRandomSampler(weights, 240, generator=generator), generator=generator)
""",
        LOOP,
    ),
    "one cycle over len(loader)": (
        PLAIN + LOADER,
        """schedule = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, epochs=2, steps_per_epoch=len(loader))
for epoch in range(2):
"""
        + "".join(f"    {line}\n" for line in LOOP.splitlines())
        + "        schedule.step()\n",
    ),
    "a stream that shards": (
        PLAIN
        + """class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return (data[i] for i in range(first, 240, step))
loader = DataLoader(Stream(), batch_size=8)
""",
        LOOP,
    ),
    "a stream that does not shard": (
        PLAIN
        + """class Stream(IterableDataset):
    def __iter__(self):
        return (data[i] for i in range(240))
loader = DataLoader(Stream(), batch_size=8)
""",
        LOOP,
    ),
    "clipping and accumulation": (
        PLAIN + LOADER,
        """for i, (xb, yb) in enumerate(loader):
    loss = nn.functional.mse_loss(net(xb), yb) / 2
    loss.backward()
    if i % 2:
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
""",
    ),
    "two optimizers": (
        IMPORTS
        + DATA
        + """gen, critic = nn.Linear(8, 8), nn.Linear(8, 1)
opt_g, opt_c = torch.optim.Adam(gen.parameters()), torch.optim.Adam(critic.parameters())
"""
        + LOADER,
        """for xb, yb in loader:
    opt_c.zero_grad()
    (critic(gen(xb).detach()).mean() - critic(xb).mean()).backward()
    opt_c.step()
    opt_g.zero_grad()
    (-critic(gen(xb)).mean()).backward()
    opt_g.step()
""",
    ),
    "LBFGS": (
        IMPORTS
        + DATA
        + """net = nn.Linear(8, 1)
opt = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3)
"""
        + LOADER,
        """for xb, yb in loader:
    def closure():
        opt.zero_grad()
        loss = nn.functional.mse_loss(net(xb), yb)
        loss.backward()
        return loss
    opt.step(closure)
""",
    ),
    "BCELoss": (
        IMPORTS
        + DATA
        + """net = nn.Sequential(nn.Linear(8, 1), nn.Sigmoid())
opt = torch.optim.AdamW(net.parameters())
"""
        + LOADER,
        LOOP.replace("nn.functional.mse_loss", "nn.BCELoss()") + "    loss.detach().numpy()\n",
    ),
    "a model that returns a dict": (
        IMPORTS
        + DATA
        + """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 1)
    def forward(self, x):
        hidden = torch.relu(self.body(x))
        return {"out": self.head(hidden), "hidden": [hidden]}
net = Net()
opt = torch.optim.Adam(net.parameters())
"""
        + LOADER,
        LOOP.replace("net(xb)", 'net(xb)["out"]'),
    ),
    "a model that returns a tuple": (
        IMPORTS
        + DATA
        + """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.LSTM(8, 4, batch_first=True)
        self.head = nn.Linear(4, 1)
    def forward(self, x):
        out, state = self.body(x.unsqueeze(1))
        return self.head(out[:, 0]), state
net = Net()
opt = torch.optim.Adam(net.parameters())
"""
        + LOADER,
        LOOP.replace("net(xb)", "net(xb)[0]"),
    ),
    "an output as Hugging Face's": (
        IMPORTS
        + "from transformers.utils import ModelOutput\n"
        + DATA
        + """@dataclass
class Output(ModelOutput):
    loss: torch.Tensor = None
    logits: torch.Tensor = None
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 1)
    def forward(self, x, labels):
        logits = self.head(x)
        return Output(loss=nn.functional.mse_loss(logits, labels), logits=logits)
net = Net()
opt = torch.optim.AdamW(net.parameters())
"""
        + LOADER,
        """for xb, yb in loader:
    opt.zero_grad()
    out = net(xb, labels=yb)
    out.loss.backward()
    opt.step()
    out["logits"].detach().numpy(), out[1], out.to_tuple()
""",
    ),
    "one's own autocast and scaler": (
        PLAIN + LOADER + 'scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)\n',
        """for xb, yb in loader:
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(net(xb), yb)
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
""",
    ),
    "two loaders zipped": (
        PLAIN
        + """labelled = DataLoader(data, batch_size=8, shuffle=True)
unlabelled = DataLoader(TensorDataset(torch.randn(480, 8)), batch_size=16)
""",
        """for (xb, yb), (ub,) in zip(labelled, unlabelled):
    opt.zero_grad()
    loss = nn.functional.mse_loss(net(xb), yb) + net(ub).square().mean()
    loss.backward()
    opt.step()
""",
    ),
    "images": (
        IMPORTS
        + """data = TensorDataset(torch.randn(240, 3, 8, 8), torch.randn(240, 1))
net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 1))
opt = torch.optim.Adam(net.parameters())
"""
        + LOADER,
        LOOP,
    ),
}
"""Name -> (earlier cell, training cell)."""
