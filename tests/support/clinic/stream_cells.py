"""Patients that are fed by a stream, a generator, or two loaders at once."""

from tests.support.clinic.cell import Cell

STREAM = Cell(
    name="stream-without-workers",
    klass="input",
    top=("loader-without-workers", "slow-storage"),
    before="""
        EPOCHS = 3
        import time, torch
        from torch import nn
        from torch.utils.data import IterableDataset, DataLoader, get_worker_info
        torch.set_num_threads(1)

        class Lines(IterableDataset):
            def __iter__(self):
                for i in range(16 * 25):
                    time.sleep(0.0015)  # the next line of a remote log
                    yield torch.full((64,), float(i % 7)), float(i % 2)

        model = nn.Linear(64, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    """,
    sick="""
        for epoch in range(EPOCHS):
            for x, y in DataLoader(Lines(), batch_size=16):
                loss = ((model(x).squeeze(1) - y) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    """,
    cured="""
        class Lines(IterableDataset):
            def __iter__(self):
                info = get_worker_info()
                first, every = (info.id, info.num_workers) if info else (0, 1)
                for i in range(first, 16 * 25, every):
                    time.sleep(0.0015)
                    yield torch.full((64,), float(i % 7)), float(i % 2)

        for epoch in range(EPOCHS):
            for x, y in DataLoader(Lines(), batch_size=16, num_workers=8):
                loss = ((model(x).squeeze(1) - y) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    """,
)

GENERATOR = Cell(
    name="generator-without-loader",
    klass="host",
    top=("slow-generator",),
    before="""
        import numpy as np
        import torch
        from torch import nn
        torch.set_num_threads(1)
        series = np.sin(np.arange(20_000) / 7.0) + np.random.default_rng(0).normal(0, 0.1, 20_000)

        def batches(n, size=64, window=48):
            for _ in range(n):
                xs, ys = [], []
                for start in np.random.randint(0, len(series) - window - 1, size):
                    part = series[start : start + window]
                    part = (part - part.mean()) / (part.std() + 1e-6)
                    xs.append([float(v) for v in part])
                    ys.append(series[start + window])
                yield torch.tensor(xs), torch.tensor(ys, dtype=torch.float32)

        model = nn.Sequential(nn.Linear(48, 128), nn.ReLU(), nn.Linear(128, 1))
        optimizer = torch.optim.Adam(model.parameters())
    """,
    sick="""
        for x, y in batches(300):
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    cured="""
        from torch.utils.data import DataLoader, IterableDataset

        class Windows(IterableDataset):
            def __iter__(self):
                return batches(300)

        for x, y in DataLoader(Windows(), batch_size=None, num_workers=1):
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
)

TWO_LOADERS = Cell(
    name="two-loaders-in-a-zip",
    klass="input",
    top=("loader-without-workers", "slow-storage"),
    before="""
        EPOCHS = 3
        import time
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset
        torch.set_num_threads(1)

        class Domain(Dataset):
            def __init__(self, shift): self.shift = shift
            def __len__(self): return 8 * 25
            def __getitem__(self, i):
                time.sleep(0.0015)
                return torch.randn(128) + self.shift, i % 4

        features = nn.Sequential(nn.Linear(128, 256), nn.ReLU())
        classify = nn.Linear(256, 4)
        opt = torch.optim.Adam([*features.parameters(), *classify.parameters()])
    """,
    sick="""
        source = DataLoader(Domain(0.0), batch_size=8, shuffle=True)
        target = DataLoader(Domain(1.0), batch_size=8, shuffle=True)
        for epoch in range(EPOCHS):
            for (xs, ys), (xt, _) in zip(source, target):
                fs, ft = features(xs), features(xt)
                loss = nn.functional.cross_entropy(classify(fs), ys) + (fs.mean(0) - ft.mean(0)).pow(2).sum()
                opt.zero_grad()
                loss.backward()
                opt.step()
    """,
)

DUPLICATED = Cell(
    name="stream-seen-twice",
    klass="compute",
    top=("iterable-duplicated",),
    before="""
        import torch
        from torch import nn
        from torch.utils.data import IterableDataset, DataLoader
        torch.set_num_threads(1)

        records = torch.randn(32 * 40, 256)

        class Records(IterableDataset):
            def __iter__(self):
                return iter(records)

        model = nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 256))
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
    """,
    sick="""
        for x in DataLoader(Records(), batch_size=32, num_workers=2):
            loss = (model(x) - x).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
)

SHARDS = Cell(
    name="shards-fetched-one-after-another",
    klass="host",
    top=("slow-generator",),
    before="""
        import time
        import torch
        from torch import nn
        torch.set_num_threads(1)

        def download(i):
            time.sleep(0.009)  # the bucket answers
            g = torch.Generator().manual_seed(i)
            return torch.randn(32, 512, generator=g), torch.randint(0, 10, (32,), generator=g)

        def batches(n):
            for i in range(n):
                yield download(i)

        mlp = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
        sgd = torch.optim.SGD(mlp.parameters(), lr=0.01)
        ce = nn.CrossEntropyLoss()
    """,
    sick="""
        for x, y in batches(140):
            sgd.zero_grad()
            loss = ce(mlp(x), y)
            loss.backward()
            sgd.step()
    """,
    cured="""
        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                yield from batches(140)
        loader = torch.utils.data.DataLoader(Stream(), batch_size=None, num_workers=1)
        for x, y in loader:
            sgd.zero_grad()
            loss = ce(mlp(x), y)
            loss.backward()
            sgd.step()
    """,
)

CELLS = (
    STREAM,
    GENERATOR,
    TWO_LOADERS,
    DUPLICATED,
    SHARDS,
)
