"""Patients with a chore or a switch that nobody needs: saving, collecting garbage, debugging, too many threads."""

from tests.support.clinic.cell import Cell
from tests.support.clinic.host_cells import digits

CHECKPOINT = Cell(
    name="checkpoint-every-step",
    klass="host",
    top=("checkpoint-stall",),
    before=digits(80),
    sick="""
        import tempfile, os
        path = os.path.join(tempfile.gettempdir(), "clinic-last.pt")
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    """,
    cured="""
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
    """,
)

SYNCED = Cell(
    name="checkpoint-synced-to-disk",
    klass="host",
    top=("checkpoint-stall",),
    never=("slow-python",),
    before=digits(80),
    sick="""
        import tempfile, os
        path = os.path.join(tempfile.gettempdir(), "clinic-synced.pt")
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            with open(path, "wb") as f:
                torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, f)
                f.flush()
                os.fsync(f.fileno())
    """,
    cured=CHECKPOINT.cured,
)

ARRAYS = Cell(
    name="weights-to-numpy-files",
    klass="host",
    top=("checkpoint-stall",),
    never=("slow-python",),
    before=digits(80),
    sick="""
        import tempfile, os
        import numpy as np
        folder = tempfile.mkdtemp()
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            for name, weight in model.state_dict().items():
                np.save(os.path.join(folder, name + ".npy"), weight.numpy())
    """,
    cured=CHECKPOINT.cured,
)

GARBAGE = Cell(
    name="gc-collect-each-step",
    klass="host",
    top=("garbage-collected-each-step",),
    before=digits(30),
    sick="""
        import gc
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            del loss
            gc.collect()  # someone on a forum said this helps
    """,
    cured="""
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            del loss
    """,
)

ANOMALY = Cell(
    name="anomaly-mode-left-on",
    klass="compute",
    top=("debug-mode-on",),
    before="""
        import torch
        from torch import nn
        torch.set_num_threads(1)

        class Gates(nn.Module):
            def __init__(self):
                super().__init__()
                self.cell = nn.Linear(48, 32)
            def forward(self, x):
                h = torch.zeros(x.shape[0], 32)
                for t in range(x.shape[1]):
                    h = torch.tanh(self.cell(torch.cat([x[:, t], h], 1)))
                return h.mean(1)

        model = Gates()
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
        waves = torch.randn(120, 16, 24, 16)
    """,
    sick="""
        torch.autograd.set_detect_anomaly(True)
        for x in waves:
            loss = (model(x) - x.mean((1, 2))).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
    cured="""
        for x in waves:
            loss = (model(x) - x.mean((1, 2))).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
)

THREADS = Cell(
    name="sixteen-threads-on-two-cores",
    klass="compute",
    top=("cpu-oversubscription",),
    cure={"threads": 2},
    before="""
        import torch
        from torch import nn
        model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
        data = torch.randn(100, 128, 512)
        labels = torch.randint(0, 10, (100, 128))
    """,
    sick="""
        torch.set_num_threads(16)  # copied from a script for a bigger machine
        for x, y in zip(data, labels):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
    """,
    cured="""
        torch.set_num_threads(2)
        for x, y in zip(data, labels):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
    """,
)

CELLS = (
    CHECKPOINT,
    SYNCED,
    ARRAYS,
    GARBAGE,
    ANOMALY,
    THREADS,
)
