"""Patients whose loop does by Python, or twice, what torch does in one call, and sound loops that look like theirs.

Written before the doctor saw any of them, so that its figures on them are those of loops it was not made for.
"""

from tests.support.clinic.cell import Cell

ADJACENCY = Cell(
    name="graph-built-edge-by-edge",
    klass="host",
    top=("slow-python",),
    before="""
        import random
        import torch
        from torch import nn
        torch.set_num_threads(1)
        random.seed(0); torch.manual_seed(0)
        N = 300
        edges = [(random.randrange(N), random.randrange(N)) for _ in range(2500)]
        features, labels = torch.randn(N, 32), torch.randint(0, 4, (N,))

        def build_adjacency(edges, n, drop=0.1):
            A = torch.zeros(n, n)
            for u, v in edges:
                if random.random() > drop:
                    A[u, v] = 1.0
                    A[v, u] = 1.0
            A = A + torch.eye(n)
            d = A.sum(1).rsqrt()
            return d[:, None] * A * d[None, :]

        E = torch.tensor(edges)
        def built_at_once(n, drop=0.1):
            kept = E[torch.rand(len(E)) > drop]
            A = torch.eye(n)
            A[kept[:, 0], kept[:, 1]] = 1.0
            A[kept[:, 1], kept[:, 0]] = 1.0
            d = A.sum(1).rsqrt()
            return d[:, None] * A * d[None, :]

        class GCN(nn.Module):
            def __init__(self):
                super().__init__()
                self.w1, self.w2 = nn.Linear(32, 64), nn.Linear(64, 4)
            def forward(self, x, A):
                return self.w2(A @ torch.relu(self.w1(A @ x)))

        model = GCN()
        opt = torch.optim.Adam(model.parameters(), lr=0.01)
    """,
    sick="""
        for epoch in range(60):
            A = build_adjacency(edges, N)
            out = model(features, A)
            loss = nn.functional.cross_entropy(out, labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
    cured="""
        for epoch in range(300):
            A = built_at_once(N)
            out = model(features, A)
            loss = nn.functional.cross_entropy(out, labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
)

SECOND_FORWARD = Cell(
    name="accuracy-by-a-second-forward",
    klass="compute",
    top=("heavy-evaluation",),
    before="""
        import torch
        from torch import nn
        from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
        torch.set_num_threads(1)
        torch.manual_seed(0)
        ds = TensorDataset(torch.randn(3200, 1, 28, 28), torch.randint(0, 10, (3200,)))

        class LeNet(nn.Module):
            def __init__(self):
                super().__init__()
                self.c1, self.c2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
                self.f1, self.f2 = nn.Linear(320, 50), nn.Linear(50, 10)
            def forward(self, x):
                x = torch.relu(nn.functional.max_pool2d(self.c1(x), 2))
                x = torch.relu(nn.functional.max_pool2d(self.c2(x), 2))
                return self.f2(nn.functional.dropout(torch.relu(self.f1(x.flatten(1))), training=self.training))

        model = LeNet()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
        loader = DataLoader(ds, batch_size=None, sampler=BatchSampler(RandomSampler(ds), 64, True))
    """,
    sick="""
        accuracies = []
        for epoch in range(2):
            for data, target in loader:
                model.train()
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(data), target)
                loss.backward()
                optimizer.step()
                model.eval()
                with torch.no_grad():
                    accuracies.append((model(data).argmax(1) == target).float().mean().item())
    """,
    cured="""
        accuracies = []
        for epoch in range(2):
            for data, target in loader:
                model.train()
                optimizer.zero_grad()
                out = model(data)
                loss = nn.functional.cross_entropy(out, target)
                loss.backward()
                optimizer.step()
                accuracies.append((out.detach().argmax(1) == target).float().mean().item())
    """,
)

MIXUP = Cell(
    name="mixup-sample-by-sample",
    klass="host",
    top=("augmentation-in-loop",),
    before="""
        import random
        import numpy as np, torch
        from torch import nn
        from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
        torch.set_num_threads(1)
        torch.manual_seed(0)
        ds = TensorDataset(torch.rand(4800, 3, 24, 24), torch.randint(0, 10, (4800,)))
        net = nn.Sequential(nn.Conv2d(3, 12, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(12 * 121, 10))
        opt = torch.optim.SGD(net.parameters(), 0.02)
        loader = DataLoader(ds, batch_size=None, sampler=BatchSampler(RandomSampler(ds), 32, True))

        def mixup(x, y, alpha=0.4):
            xs, ys = [], []
            for i in range(len(x)):
                j = random.randrange(len(x))
                lam = np.random.beta(alpha, alpha)
                xs.append(lam * x[i] + (1 - lam) * x[j])
                one, two = torch.zeros(10), torch.zeros(10)
                one[y[i]] = 1.0
                two[y[j]] = 1.0
                ys.append(lam * one + (1 - lam) * two)
            return torch.stack(xs).float(), torch.stack(ys).float()

        def mixed_at_once(x, y, alpha=0.4):
            perm = torch.randperm(len(x))
            lam = torch.from_numpy(np.random.beta(alpha, alpha, len(x)).astype("float32"))
            t, wide = nn.functional.one_hot(y, 10).float(), lam[:, None, None, None]
            return x * wide + x[perm] * (1 - wide), t * lam[:, None] + t[perm] * (1 - lam[:, None])
    """,
    sick="""
        for epoch in range(2):
            for x, y in loader:
                x, t = mixup(x, y)
                loss = nn.functional.cross_entropy(net(x), t)
                opt.zero_grad()
                loss.backward()
                opt.step()
    """,
    cured="""
        for epoch in range(2):
            for x, y in loader:
                x, t = mixed_at_once(x, y)
                loss = nn.functional.cross_entropy(net(x), t)
                opt.zero_grad()
                loss.backward()
                opt.step()
    """,
)

DISTILLED = Cell(
    name="student-and-teacher",
    klass="compute",
    healthy=True,
    never=("heavy-evaluation", "eval-with-gradients"),
    before="""
        import torch
        from torch import nn
        from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
        torch.set_num_threads(1)
        torch.manual_seed(0)
        ds = TensorDataset(torch.randn(4000, 128), torch.randint(0, 10, (4000,)))
        loader = DataLoader(ds, batch_size=None, sampler=BatchSampler(RandomSampler(ds), 64, True))
        teacher = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
        teacher.eval().requires_grad_(False)
        student = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 10))
        opt = torch.optim.SGD(student.parameters(), lr=0.05)
        T = 4.0
    """,
    sick="""
        for epoch in range(3):
            for x, y in loader:
                with torch.no_grad():
                    soft = (teacher(x) / T).softmax(1)
                logits = student(x)
                kd = nn.functional.kl_div((logits / T).log_softmax(1), soft, reduction="batchmean") * T * T
                loss = 0.7 * kd + 0.3 * nn.functional.cross_entropy(logits, y)
                opt.zero_grad(); loss.backward(); opt.step()
    """,
)

PENALTY = Cell(
    name="critic-with-a-gradient-penalty",
    klass="compute",
    healthy=True,
    before="""
        import torch
        from torch import nn
        from torch.utils.data import BatchSampler, DataLoader, RandomSampler
        torch.set_num_threads(1)
        torch.manual_seed(0)
        act = nn.LeakyReLU(0.2)
        D = nn.Sequential(nn.Linear(64, 256), act, nn.Linear(256, 256), act, nn.Linear(256, 1))
        G = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 64))
        opt_d = torch.optim.Adam(D.parameters(), 1e-4, fused=True)
        opt_g = torch.optim.Adam(G.parameters(), 1e-4, fused=True)
        rows = torch.randn(8000, 64)
        loader = DataLoader(rows, batch_size=None, sampler=BatchSampler(RandomSampler(rows), 64, True))

        def penalty(D, real, fake):
            a = torch.rand(len(real), 1)
            mix = (a * real + (1 - a) * fake).requires_grad_(True)
            grad = torch.autograd.grad(D(mix).sum(), mix, create_graph=True)[0]
            return ((grad.norm(2, dim=1) - 1) ** 2).mean()
    """,
    sick="""
        for i, x in enumerate(loader):
            fake = G(torch.randn(len(x), 16)).detach()
            loss_d = D(fake).mean() - D(x).mean() + 10 * penalty(D, x, fake)
            opt_d.zero_grad(); loss_d.backward(); opt_d.step()
            if i % 5 == 0:
                loss_g = -D(G(torch.randn(len(x), 16))).mean()
                opt_g.zero_grad(); loss_g.backward(); opt_g.step()
    """,
)

CURRICULUM = Cell(
    name="sequences-that-grow",
    klass="compute",
    healthy=True,
    never=("changing-shapes", "memory-growth"),
    before="""
        import torch
        from torch import nn
        torch.set_num_threads(1)
        torch.manual_seed(0)

        class LM(nn.Module):
            def __init__(self):
                super().__init__()
                self.e, self.r, self.o = nn.Embedding(64, 48), nn.GRU(48, 96, batch_first=True), nn.Linear(96, 64)
            def forward(self, x):
                return self.o(self.r(self.e(x))[0])

        model = LM()
        opt = torch.optim.Adam(model.parameters(), 1e-3)
        data = torch.randint(0, 64, (50000,))
    """,
    sick="""
        for step in range(150):
            n = 8 + step // 4
            starts = torch.randint(0, 50000 - n - 1, (16,))
            chunk = data[starts[:, None] + torch.arange(n + 1)]
            logits = model(chunk[:, :-1])
            loss = nn.functional.cross_entropy(logits.reshape(-1, 64), chunk[:, 1:].reshape(-1))
            opt.zero_grad(); loss.backward(); opt.step()
    """,
)

CELLS = (
    ADJACENCY,
    SECOND_FORWARD,
    MIXUP,
    DISTILLED,
    PENALTY,
    CURRICULUM,
)
