"""Patients that keep books as people do in everyday notebooks: norms, bars, logs, exports, averages, too often.

Written before the doctor saw any of them, so that its figures on them are those of loops it was not made for.
"""

from tests.support.clinic.cell import Cell

BEFORE = """
        import torch
        from torch import nn
        from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
        torch.set_num_threads(1)
        torch.manual_seed(3)
        N = %d
        images, labels = torch.randn(N * 32, 256), torch.randint(0, 5, (N * 32,))
        dataset = TensorDataset(images, labels)
        train_dl = DataLoader(dataset, batch_size=None, sampler=BatchSampler(RandomSampler(dataset), 32, True))
"""
DEEP = """
        net = nn.Sequential(*[m for _ in range(10) for m in (nn.Linear(256, 256), nn.ReLU())], nn.Linear(256, 5))
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        ce = nn.CrossEntropyLoss()
"""

NORMS = Cell(
    name="norm-of-every-parameter-as-a-number",
    klass="host",
    top=("slow-python",),
    before=BEFORE % 200 + DEEP,
    sick="""
        norms = []
        for x, y in train_dl:
            opt.zero_grad()
            loss = ce(net(x), y)
            loss.backward()
            for name, p in net.named_parameters():
                g = p.grad.detach()
                norms.append((name, g.norm(2).item(), g.abs().max().item(), g.std().item(),
                              float((g == 0).float().mean()), p.detach().norm().item()))
            opt.step()
    """,
    cured="""
        for x, y in train_dl:
            opt.zero_grad()
            loss = ce(net(x), y)
            loss.backward()
            opt.step()
    """,
)

PROGRESS = Cell(
    name="progress-text-built-each-step",
    klass="host",
    top=("slow-python",),
    before=BEFORE % 200 + DEEP,
    sick="""
        import io, time
        screen, seen, begin = io.StringIO(), [], time.time()
        for i, (x, y) in enumerate(train_dl):
            opt.zero_grad()
            loss = ce(net(x), y)
            loss.backward()
            opt.step()
            seen.append(loss.item())
            window = sorted(seen[-500:])
            stats = {f"p{q}": window[min(int(len(window) * q / 100), len(window) - 1)] for q in range(100)}
            text = " ".join(f"{k}={v:.4f}" for k, v in stats.items())
            for column in range(12):
                text = text.replace("  ", " ").ljust(2000, ".").title().swapcase()
                text = "".join(c if c.isalnum() else c.lower() for c in text)
            screen.write(f"{i}/{len(train_dl)} {time.time() - begin:.1f}s {text}" + chr(10))
    """,
    cured="""
        import io, time
        screen, seen, begin = io.StringIO(), [], time.time()
        for i, (x, y) in enumerate(train_dl):
            opt.zero_grad()
            loss = ce(net(x), y)
            loss.backward()
            opt.step()
            seen.append(loss.detach())
    """,
)

DUMPS = Cell(
    name="weights-exported-as-text-each-step",
    klass="host",
    top=("slow-python", "checkpoint-stall"),
    before=BEFORE % 160
    + """
        net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 5))
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        ce = nn.CrossEntropyLoss()
    """,
    sick="""
        import os, tempfile
        import numpy as np
        out = os.path.join(tempfile.gettempdir(), "clinic-weights.txt")
        for x, y in train_dl:
            opt.zero_grad()
            loss = ce(net(x), y)
            loss.backward()
            opt.step()
            with open(out, "w") as f:
                for name, p in net.state_dict().items():
                    if p.ndim == 1:
                        np.savetxt(f, p.numpy()[None], fmt="%.4e", header=name)
    """,
    cured="""
        for x, y in train_dl:
            opt.zero_grad()
            loss = ce(net(x), y)
            loss.backward()
            opt.step()
    """,
)

AVERAGE = Cell(
    name="average-of-weights-by-copies",
    klass="host",
    top=("slow-python",),
    before=BEFORE % 160 + DEEP,
    sick="""
        import copy
        history = copy.deepcopy(net.state_dict())
        decay = 0.99
        for x, y in train_dl:
            opt.zero_grad()
            loss = ce(net(x), y)
            loss.backward()
            opt.step()
            now = copy.deepcopy(net.state_dict())
            for k in now:
                history[k] = decay * history[k] + (1 - decay) * now[k]
    """,
    cured="""
        for x, y in train_dl:
            opt.zero_grad()
            loss = ce(net(x), y)
            loss.backward()
            opt.step()
    """,
)

EVALUATED = Cell(
    name="whole-test-set-each-short-epoch",
    klass="compute",
    top=("heavy-evaluation",),
    tail=True,
    before=BEFORE % 30
    + DEEP
    + """
        test_x, test_y = torch.randn(40 * 64, 256), torch.randint(0, 5, (40 * 64,))
        def accuracy():
            net.eval()
            right = 0
            with torch.no_grad():
                for i in range(0, len(test_x), 64):
                    right += int((net(test_x[i:i + 64]).argmax(1) == test_y[i:i + 64]).sum())
            net.train()
            return right / len(test_x)
    """,
    sick="""
        for epoch in range(8):
            for x, y in train_dl:
                opt.zero_grad()
                loss = ce(net(x), y)
                loss.backward()
                opt.step()
            acc = accuracy()
    """,
    cured="""
        for epoch in range(8):
            for x, y in train_dl:
                opt.zero_grad()
                loss = ce(net(x), y)
                loss.backward()
                opt.step()
            if epoch % 2 == 1:
                acc = accuracy()
    """,
)

ADAMW_LAYERS = Cell(
    name="adamw-over-many-small-layers",
    klass="compute",
    top=("unfused-optimizer",),
    before=BEFORE % 120
    + """
        class Block(nn.Module):
            def __init__(self, d):
                super().__init__()
                self.norm, self.a, self.b = nn.LayerNorm(d), nn.Linear(d, d), nn.Linear(d, d)
            def forward(self, x):
                return x + self.b(torch.relu(self.a(self.norm(x))))
        net = nn.Sequential(nn.Linear(256, 64), *[Block(64) for _ in range(16)], nn.Linear(64, 5))
        opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1)
        ce = nn.CrossEntropyLoss()
    """,
    sick="""
        for x, y in train_dl:
            loss = ce(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
    cure={"fused_optimizer": True},
)

WELL_LOGGED = Cell(
    name="books-kept-every-fifty-steps",
    klass="compute",
    healthy=True,
    before=BEFORE % 220 + DEEP,
    sick="""
        import json
        log, running = [], torch.zeros(())
        for i, (x, y) in enumerate(train_dl):
            opt.zero_grad()
            loss = ce(net(x), y)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            running += loss.detach()
            if i % 50 == 49:
                log.append(json.dumps({"step": i, "loss": float(running) / 50, "norm": float(norm)}))
                running.zero_()
    """,
)

CELLS = (NORMS, PROGRESS, DUMPS, AVERAGE, EVALUATED, ADAMW_LAYERS, WELL_LOGGED)
