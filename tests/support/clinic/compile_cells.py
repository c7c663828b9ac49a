"""Patients whose model is compiled: again for every number that changes, or once and for good."""

from tests.support.clinic.cell import Cell

ABOVE = """
    import torch
    from torch import nn
    torch.set_num_threads(1)
    torch.manual_seed(0)

    class Scheduled(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
            self.epoch = 0
            self.register_buffer("weight", torch.tensor(1.0))

        def forward(self, x):
            return self.body(x) / (1 + self.epoch) * self.weight

    net = Scheduled()
    net.compile(backend="aot_eager")
    opt = torch.optim.SGD(net.parameters(), 1e-3)
    data = torch.randn(64, 128, 64)
"""

NUMBERED = Cell(
    name="compiled-for-every-epoch-number",
    klass="compute",
    top=("recompiles",),
    never=("debug-mode-on", "changing-shapes"),
    before=ABOVE,
    sick="""
        for epoch in range(8):
            net.epoch = epoch
            for x in data:
                loss = (net(x) - x).square().mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
    """,
    cured="""
        for epoch in range(8):
            net.weight.fill_(1 / (1 + epoch))
            for x in data:
                loss = (net(x) - x).square().mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
    """,
)

ONCE = Cell(
    name="compiled-once-with-a-smaller-last-batch",
    klass="compute",
    healthy=True,
    never=("recompiles", "debug-mode-on"),
    before=ABOVE.replace('"aot_eager"', '"eager"'),
    sick="""
        for epoch in range(24):
            for x in (*data, data[0, :40]):
                loss = (net(x) - x).square().mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
    """,
)

CELLS = (NUMBERED, ONCE)
