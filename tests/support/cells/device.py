"""Cells that train on a device, for tests on a GPU: the same run on a CPU, so that they are known to be right."""

from __future__ import annotations

from dataclasses import replace

from tests.support.cells.cell import Cell

_START = """
device = "DEVICE"
half = torch.bfloat16 if device == "cpu" else torch.float16
"""
_VECTORS = """
loader = DataLoader(TensorDataset(xs, ys), batch_size=4, shuffle=True, pin_memory=device != "cpu")
"""

_KINDS = {
    "autocast, a scaler, clipping, a schedule": Cell(
        _VECTORS
        + """
net = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(0.3), nn.ReLU(), nn.Linear(12, 3)).to(device)
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 10)
scaler = torch.amp.GradScaler(device, init_scale=1024.0, growth_interval=3)
total = torch.zeros((), device=device)
""",
        """
for x, y in loader:
    x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
    opt.zero_grad()
    with torch.autocast(device, dtype=half):
        loss = F.cross_entropy(net(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    sched.step()
    total += loss.detach()
""",
    ),
    "two optimizers, noise of a generator on the device": Cell(
        """
real = torch.randn(64, 8, device=device)
gen = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8)).to(device)
critic = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 1)).to(device)
opt_g = torch.optim.Adam(gen.parameters(), lr=1e-3, amsgrad=True)
opt_c = torch.optim.SGD(critic.parameters(), lr=1e-2, momentum=0.9, nesterov=True)
noise = torch.Generator(device=device).manual_seed(7)
history = []
""",
        """
for step in range(24):
    z = torch.randn(16, 4, device=device, generator=noise)
    batch = real[torch.randperm(64, device=device)[:16]]
    opt_c.zero_grad()
    (critic(gen(z).detach()).mean() - critic(batch).mean()).backward()
    opt_c.step()
    opt_g.zero_grad()
    loss = -critic(gen(z)).mean()
    loss.backward()
    opt_g.step()
    history.append(loss.detach())
""",
    ),
    "convolutions, channels last, fused, averaged weights": Cell(
        """
xs, ys = torch.randn(96, 3, 8, 8), torch.randint(0, 3, (96,))
loader = DataLoader(TensorDataset(xs, ys), batch_size=8, shuffle=True)
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3))
net = net.to(device, memory_format=torch.channels_last)
averaged = torch.optim.swa_utils.AveragedModel(net)
opt = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
flat = torch.zeros(64, device=device)
views = [flat[:32].view(4, 8), flat[32:]]
""",
        """
for x, y in loader:
    x = x.to(device, memory_format=torch.channels_last)
    loss = F.cross_entropy(net(x), y.to(device))
    loss.backward()
    opt.step()
    opt.zero_grad(set_to_none=False)
    averaged.update_parameters(net)
    views[0] += loss.detach()
""",
    ),
}

IMAGES = Cell(
    """
xs, ys = torch.randn(512, 3, 16, 16), torch.randint(0, 10, (512,))
loader = DataLoader(TensorDataset(xs, ys), batch_size=16)
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
).to(device)
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
""",
    """
for x, y in loader:
    x, y = x.to(device), y.to(device)
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
""",
)
"""A cell in which every knob has something to turn."""

NAMES = tuple(_KINDS)


def kind(name: str, device: str) -> Cell:
    """Returns a cell by its name, on a device such as `cuda`."""
    return on(_KINDS[name], device)


def on(found: Cell, device: str) -> Cell:
    """Returns a cell on a device."""
    return replace(found, earlier=_START.replace("DEVICE", device) + found.earlier, net=False)
