"""Patients whose model runs, or works, for nothing that trains, or makes the same anew; and some whose second forward,
or whose new masks, are needed."""

from tests.support.clinic.cell import Cell
from tests.support.clinic.host_cells import digits

PLAIN = """
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
"""

ACCURACY_BY_A_SECOND_FORWARD = Cell(
    name="accuracy-by-a-forward-in-training-mode",
    klass="compute",
    top=("redundant-forward",),
    before=digits(200),
    sick="""
        right = 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                right += (model(x).argmax(1) == y).sum()
    """,
    cured=PLAIN,
)

CURVE_OVER_ALL_DATA = Cell(
    name="a-curve-over-much-data-each-step",
    klass="compute",
    top=("redundant-forward",),
    before=digits(120)
    + """
        def watch(model, curve):
            with torch.no_grad():
                curve.append(criterion(model(X[:512]), Y[:512]).item())
    """,
    sick="""
        curve = []
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            watch(model, curve)
    """,
    cured=PLAIN,
)

STATISTICS_IN_FORWARD = Cell(
    name="statistics-in-the-forward",
    klass="host",
    top=("python-in-forward",),
    before=digits(150)
    + """
        class Watched(nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.ranges = model, []
            def forward(self, x):
                h = self.net[0](x)
                values = h.detach().flatten()[:24000].tolist()
                self.ranges.append((min(values), max(values), sorted(values)[len(values) // 2]))
                return self.net[2](self.net[1](h))

        class Plain(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = model
            def forward(self, x):
                return self.net[2](self.net[1](self.net[0](x)))
    """,
    sick="""
        net = Watched()
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(net(x), y)
            loss.backward()
            optimizer.step()
    """,
    cured="""
        net = Plain()
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(net(x), y)
            loss.backward()
            optimizer.step()
    """,
)

HOOKED = Cell(
    name="a-hook-that-counts-dead-units",
    klass="host",
    top=("python-in-forward",),
    before=digits(150),
    sick="""
        dead = []
        def count(module, args, output):
            rows = output.detach().tolist()
            dead.append(sum(value <= 0.0 for row in rows for value in row) / output.numel())
        handle = model[1].register_forward_hook(count)
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        handle.remove()
    """,
    cured=PLAIN,
)

ONE_BY_ONE = Cell(
    name="one-sample-at-a-time",
    klass="compute",
    top=("per-sample-forward",),
    before=digits(60),
    sick="""
        for x, y in loader:
            optimizer.zero_grad()
            outputs = torch.stack([model(one) for one in x])
            loss = criterion(outputs, y)
            loss.backward()
            optimizer.step()
    """,
    cured=PLAIN,
)

PAIR_BY_PAIR = Cell(
    name="a-loss-pair-by-pair",
    klass="compute",
    top=("loss-in-a-loop",),
    before=digits(80)
    + """
        def pulled(z, y):
            total = 0.0
            for i in range(len(z)):
                j = (i + 1) % len(z)
                if y[i] == y[j]:
                    total = total + (z[i] - z[j]).square().sum()
                else:
                    total = total + torch.relu(1.0 - (z[i] - z[j]).norm()) ** 2
            return total / len(z)
    """,
    sick="""
        for x, y in loader:
            optimizer.zero_grad()
            z = model(x)
            loss = criterion(z, y) + pulled(z, y)
            loss.backward()
            optimizer.step()
    """,
    cured="""
        for x, y in loader:
            optimizer.zero_grad()
            z = model(x)
            apart, same = z - z.roll(-1, 0), y == y.roll(-1)
            far = torch.relu(1.0 - apart.norm(dim=1)) ** 2
            loss = criterion(z, y) + torch.where(same, apart.square().sum(1), far).mean()
            loss.backward()
            optimizer.step()
    """,
)

HEADS = Cell(
    name="a-loss-over-three-heads",
    klass="compute",
    healthy=True,
    never=("loss-in-a-loop", "slow-python"),
    before=digits(80)
    + """
        heads = nn.ModuleList(nn.Linear(10, 400) for _ in range(3))
    """,
    sick="""
        for x, y in loader:
            x, y = x.repeat(4, 1), y.repeat(4)
            optimizer.zero_grad()
            z = model(x)
            loss = 0.0
            for head in heads:
                scores = torch.nn.functional.linear(z, head.weight, head.bias)
                loss = loss + torch.cdist(scores, scores).mean() + scores.logsumexp(1).mean()
            loss = loss + criterion(z, y)
            loss.backward()
            optimizer.step()
    """,
)

TEACHER = Cell(
    name="a-teacher-without-gradients",
    klass="compute",
    healthy=True,
    never=("redundant-forward",),
    before=digits(120)
    + """
        import copy
        teacher = copy.deepcopy(model)
    """,
    sick="""
        for x, y in loader:
            with torch.no_grad():
                soft = teacher(x).softmax(1)
                clean = model(x).softmax(1)
            optimizer.zero_grad()
            logits = model(x + 0.1 * torch.randn_like(x))
            loss = criterion(logits, y) - (soft * logits.log_softmax(1)).sum(1).mean()
            loss = loss + (clean - logits.softmax(1)).square().sum(1).mean()
            loss.backward()
            optimizer.step()
    """,
)

REPLAY = Cell(
    name="a-policy-that-fills-a-memory",
    klass="compute",
    healthy=True,
    never=("redundant-forward", "slow-python"),
    before=digits(120)
    + """
        class Memory:
            def __init__(self):
                self.kept = []
            def push(self, x, guess):
                self.kept = [*self.kept[-20:], (x, guess)]
            def sample(self):
                return self.kept[torch.randint(len(self.kept), (1,))]
    """,
    sick="""
        memory = Memory()
        for step, (x, y) in enumerate(loader):
            with torch.no_grad():
                guess = model(x).argmax(1)
            memory.push(x, guess)
            seen, wanted = memory.sample()
            optimizer.zero_grad()
            loss = criterion(model(seen), wanted)
            loss.backward()
            optimizer.step()
    """,
)

UNROLLED = Cell(
    name="a-cell-unrolled-over-time",
    klass="compute",
    healthy=True,
    never=("per-sample-forward", "redundant-forward"),
    before="""
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        torch.set_num_threads(1)
        cell, head = nn.GRUCell(64, 256), nn.Linear(256, 10)
        data = TensorDataset(torch.randn(40 * 32, 32, 64), torch.randint(0, 10, (40 * 32,)))
        loader = DataLoader(data, batch_size=32, shuffle=True)
        optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01)
    """,
    sick="""
        for x, y in loader:
            state = torch.zeros(len(x), 256)
            for t in range(x.shape[1]):
                state = cell(x[:, t], state)
            loss = nn.functional.cross_entropy(head(state), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
)

BALANCED = Cell(
    name="a-forward-that-keeps-a-loss",
    klass="compute",
    healthy=True,
    never=("python-in-forward",),
    before=digits(120)
    + """
        class Balanced(nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.aux = model, []
            def forward(self, x):
                h = self.net[0](x)
                self.aux.append((h @ h.T).square().mean() + torch.cdist(h, h).mean())
                return self.net[2](self.net[1](h))
        net = Balanced()
    """,
    sick="""
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(net(x), y) + 1e-4 * sum(net.aux)
            net.aux.clear()
            loss.backward()
            optimizer.step()
    """,
)

CONSTANT_IN_FORWARD = Cell(
    name="a-constant-made-in-every-forward",
    klass="host",
    top=("python-in-forward",),
    before=digits(200)
    + """
        import math

        class Windowed(nn.Module):
            side, widths = 28, tuple(range(4, 32, 2))
            def __init__(self):
                super().__init__()
                self.net = model
            def window(self):
                heights = []
                for y in range(self.side):
                    for x in range(self.side):
                        far = (x - self.side / 2) ** 2 + (y - self.side / 2) ** 2
                        heights.append(sum(math.exp(-far / width ** 2) for width in self.widths))
                return torch.tensor(heights) / len(self.widths)
            def forward(self, x):
                return self.net(x * self.window())

        class Kept(Windowed):
            def __init__(self):
                super().__init__()
                self.register_buffer("heights", self.window(), persistent=False)
            def forward(self, x):
                return self.net(x * self.heights)
    """,
    sick="""
        net = Windowed()
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(net(x), y)
            loss.backward()
            optimizer.step()
    """,
    cured="""
        net = Kept()
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(net(x), y)
            loss.backward()
            optimizer.step()
    """,
)

NEW_EACH_TIME = Cell(
    name="masks-and-tables-that-are-new-in-every-forward",
    klass="compute",
    healthy=True,
    never=("python-in-forward",),
    before="""
        import torch
        from torch import nn
        torch.set_num_threads(1)
        torch.manual_seed(0)

        class Reader(nn.Module):
            def __init__(self):
                super().__init__()
                self.levels = 10
                self.embed = nn.Embedding(500, 128)
                self.frequencies = nn.Parameter(torch.randn(64))
                self.body = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 128))
                self.head = nn.Linear(128, self.levels)
            def positions(self, n):
                angles = torch.arange(n)[:, None] * self.frequencies.exp()
                return torch.cat((angles.sin(), angles.cos()), 1)
            def mask(self, lengths, n):
                return torch.tensor([[i < length for i in range(n)] for length in lengths.tolist()])
            def forward(self, tokens, lengths):
                n = tokens.size(1)
                h = self.embed(tokens) + self.positions(n)
                h = h * (self.mask(lengths, n) & (torch.rand(n) < 0.9))[..., None]
                return self.head(self.body(h).mean(1)) + 0.1 * torch.arange(self.levels)

        model = Reader()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        ends = [40 + step % 24 for step in range(160)]
        batches = [(torch.randint(0, 500, (16, n)), torch.randint(n - 2, n + 1, (16,))) for n in ends]
        Y = torch.randint(0, 10, (160, 16))
    """,
    sick="""
        for (tokens, lengths), y in zip(batches, Y):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(tokens, lengths), y)
            loss.backward()
            optimizer.step()
    """,
)

CELLS = (
    ACCURACY_BY_A_SECOND_FORWARD,
    CURVE_OVER_ALL_DATA,
    STATISTICS_IN_FORWARD,
    HOOKED,
    ONE_BY_ONE,
    PAIR_BY_PAIR,
    HEADS,
    TEACHER,
    REPLAY,
    UNROLLED,
    BALANCED,
    CONSTANT_IN_FORWARD,
    NEW_EACH_TIME,
)
