"""Patients whose batches pass through other hands: workers that are in the way, queues, generators that wait, samplers.

Written before the doctor saw any of them, so that its figures on them are those of loops it was not made for.
"""

from tests.support.clinic.cell import Cell

ROWS_IN_MEMORY = Cell(
    name="four-workers-for-rows-in-memory",
    klass="input",
    top=("too-many-workers",),
    before="""
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        torch.set_num_threads(1)
        torch.manual_seed(0)
        ds = TensorDataset(torch.randn(16000, 20), torch.randn(16000, 1))
        net = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 1))
        opt = torch.optim.SGD(net.parameters(), lr=1e-2)
    """,
    sick="""
        loader = DataLoader(ds, batch_size=16, shuffle=True, num_workers=4)
        for x, y in loader:
            opt.zero_grad()
            loss = ((net(x) - y) ** 2).mean()
            loss.backward()
            opt.step()
    """,
    cure={"num_workers": 0},
)

IMAGES_IN_MEMORY = Cell(
    name="two-workers-for-images-in-memory",
    klass="input",
    top=("too-many-workers",),
    before="""
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset
        torch.set_num_threads(1)
        torch.manual_seed(0)
        images = torch.randint(0, 255, (9600, 3, 32, 32), dtype=torch.uint8)

        class Images(Dataset):
            def __len__(self):
                return len(images)
            def __getitem__(self, i):
                return images[i].float() / 255, i % 4

        net = nn.Sequential(nn.Flatten(), nn.Linear(3072, 16), nn.ReLU(), nn.Linear(16, 4))
        opt = torch.optim.SGD(net.parameters(), 0.05)
    """,
    sick="""
        for x, y in DataLoader(Images(), batch_size=32, shuffle=True, num_workers=2):
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
    cure={"num_workers": 0},
)

REPEATED_ROWS = Cell(
    name="rows-repeated-by-two-workers",
    klass="input",
    top=("iterable-duplicated",),
    never=("too-many-workers",),
    before="""
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, IterableDataset
        torch.set_num_threads(1)
        torch.manual_seed(0)

        class Rows(IterableDataset):
            def __init__(self, n):
                self.n = n
            def __iter__(self):
                for i in range(self.n):
                    yield torch.full((32,), float(i % 7)), i % 4
            def __len__(self):
                return self.n

        net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
        opt = torch.optim.SGD(net.parameters(), 0.05)
    """,
    sick="""
        for x, y in DataLoader(Rows(9600), batch_size=64, num_workers=2):
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
)

OWN_QUEUE = Cell(
    name="own-thread-and-queue",
    klass="host",
    top=("slow-python",),
    before="""
        import queue, threading, time
        import numpy as np, torch
        from torch import nn
        torch.set_num_threads(1)
        rng = np.random.default_rng(0)

        def read_shard(i):
            time.sleep(0.03)  # the network drive
            return rng.normal(size=(64, 32)).astype("float32"), rng.integers(0, 4, 64)

        def producer(q, ids):
            for i in ids:
                q.put(read_shard(i))
            q.put(None)

        net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
        opt = torch.optim.Adam(net.parameters())
        READERS = 8
    """,
    sick="""
        q = queue.Queue(maxsize=8)
        threading.Thread(target=producer, args=(q, range(80)), daemon=True).start()
        while True:
            item = q.get()
            if item is None:
                break
            xb, yb = torch.from_numpy(item[0]), torch.from_numpy(item[1])
            loss = nn.functional.cross_entropy(net(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
    cured="""
        q = queue.Queue(maxsize=8)
        for r in range(READERS):
            threading.Thread(target=producer, args=(q, range(r, 400, READERS)), daemon=True).start()
        ended = 0
        while ended < READERS:
            item = q.get()
            if item is None:
                ended += 1
                continue
            xb, yb = torch.from_numpy(item[0]), torch.from_numpy(item[1])
            loss = nn.functional.cross_entropy(net(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
)

DOWNLOADS = Cell(
    name="generator-that-downloads",
    klass="host",
    top=("slow-generator",),
    before="""
        import time
        import numpy as np, torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset
        torch.set_num_threads(1)
        torch.manual_seed(0)
        LENGTH = 100

        def download(i):
            time.sleep(0.03)
            g = np.random.default_rng(i)
            return torch.from_numpy(g.normal(size=(64, 32)).astype("float32")), torch.from_numpy(g.integers(0, 4, 64))

        def batches(n):
            for i in range(n):
                yield download(i)

        class Remote(Dataset):
            def __len__(self):
                return LENGTH
            def __getitem__(self, i):
                return download(i)

        net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
        opt = torch.optim.SGD(net.parameters(), 0.05)
    """,
    sick="""
        for x, y in batches(LENGTH):
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
    cured="""
        for x, y in DataLoader(Remote(), batch_size=None):
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
)

WEIGHTED = Cell(
    name="all-weighted-draws-for-twenty-batches",
    klass="input",
    top=("slow-epoch-start",),
    before="""
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler
        torch.set_num_threads(1)
        torch.manual_seed(0)
        N = 600_000
        X, y = torch.randn(N, 16), (torch.rand(N) < 0.03).long()
        weights = (1.0 / torch.bincount(y).float())[y]
        ds = TensorDataset(X, y)
        net = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))
        opt = torch.optim.SGD(net.parameters(), 0.05)
        STEPS_PER_EPOCH = 20
    """,
    sick="""
        sampler = WeightedRandomSampler(weights, num_samples=len(weights), replacement=True)
        loader = DataLoader(ds, batch_size=64, sampler=sampler)
        for epoch in range(10):
            for step, (xb, yb) in enumerate(loader):
                if step == STEPS_PER_EPOCH:
                    break
                opt.zero_grad()
                loss = nn.functional.cross_entropy(net(xb), yb)
                loss.backward()
                opt.step()
            print(epoch, loss.item())
    """,
    cured="""
        sampler = WeightedRandomSampler(weights, num_samples=64 * STEPS_PER_EPOCH, replacement=True)
        loader = DataLoader(ds, batch_size=64, sampler=sampler)
        for epoch in range(10):
            for step, (xb, yb) in enumerate(loader):
                opt.zero_grad()
                loss = nn.functional.cross_entropy(net(xb), yb)
                loss.backward()
                opt.step()
            print(epoch, loss.item())
    """,
)

CELLS = (
    ROWS_IN_MEMORY,
    IMAGES_IN_MEMORY,
    REPEATED_ROWS,
    OWN_QUEUE,
    DOWNLOADS,
    WEIGHTED,
)
