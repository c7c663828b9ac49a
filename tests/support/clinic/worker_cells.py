"""Patients that have workers, too few, too many, or ones that do not help; and patients that read files."""

from tests.support.clinic.cell import Cell

TOO_FEW = Cell(
    name="two-workers-for-a-slow-store",
    klass="input",
    top=("too-few-workers", "slow-storage"),
    cure={"num_workers": 8},
    before="""
        LENGTH = 50  # batches
        import time, torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset
        torch.set_num_threads(1)

        class Archive(Dataset):
            def __len__(self): return 16 * LENGTH
            def __getitem__(self, i):
                time.sleep(0.004)
                return torch.randn(256), torch.randint(0, 10, ())
    """,
    sick="""
        model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
        train_loader = DataLoader(Archive(), batch_size=16, shuffle=True, num_workers=2)
        model.train()
        for images, labels in train_loader:
            logits = model(images)
            loss = nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
    """,
)

BURSTS = Cell(
    name="bursts-of-four-workers",
    klass="input",
    top=("too-few-workers", "slow-storage"),
    cure={"num_workers": 12},
    before="""
        LENGTH = 100  # batches
        import time, torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset
        torch.set_num_threads(1)

        class Shards(Dataset):
            def __len__(self): return 8 * LENGTH
            def __getitem__(self, i):
                time.sleep(0.008)
                return torch.randn(64), torch.randn(1)
    """,
    sick="""
        # four workers that start together deliver together: most waits are 0, every fourth is long
        model = nn.Linear(64, 1)
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for x, y in DataLoader(Shards(), batch_size=8, num_workers=4):
            opt.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            opt.step()
    """,
)

CORES_USED = Cell(
    name="computing-dataset-on-all-cores",
    klass="input",
    top=("slow-getitem",),
    never=("too-few-workers",),
    most_workers=2,
    before="""
        import numpy as np, torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset
        torch.set_num_threads(1)
        signals = np.random.default_rng(0).normal(size=(64, 8192))

        def spectrogram(wave):
            frames = np.lib.stride_tricks.sliding_window_view(wave, 256)[::64] * np.hanning(256)
            return np.log1p(np.abs(np.fft.rfft(frames, axis=1))).astype(np.float32)

        class Speech(Dataset):
            def __len__(self): return 16 * 110
            def __getitem__(self, i):
                return torch.from_numpy(spectrogram(signals[i % 64])).mean(0), i % 5

        model = nn.Sequential(nn.Linear(129, 64), nn.ReLU(), nn.Linear(64, 5))
        optimizer = torch.optim.Adam(model.parameters())
    """,
    sick="""
        loader = DataLoader(Speech(), batch_size=16, num_workers=2)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    cured="""
        cache = torch.stack([torch.from_numpy(spectrogram(s)).mean(0) for s in signals])

        class Cached(Dataset):
            def __len__(self): return 16 * 110
            def __getitem__(self, i): return cache[i % 64], i % 5

        loader = DataLoader(Cached(), batch_size=16, num_workers=2)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
)

UNEVEN = Cell(
    name="a-few-long-documents",
    klass="input",
    top=("uneven-batches",),
    cure={"prefetch_factor": 16},
    before="""
        LENGTH = 130  # batches
        import time, torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset
        torch.set_num_threads(1)

        class Documents(Dataset):
            def __len__(self): return 4 * LENGTH
            def __getitem__(self, i):
                time.sleep(0.240 if i % 60 == 59 else 0.001)  # one in sixty is a book
                return torch.randn(512)

        model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
    """,
    sick="""
        loader = DataLoader(Documents(), batch_size=4, num_workers=2)
        for x in loader:
            crops = x.repeat(16, 1) + 0.1 * torch.randn(64, 512)
            loss = (model(crops) - crops).pow(2).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
    """,
)

COLD_SHARD = Cell(
    name="a-cold-shard-each-fifteen-batches",
    klass="input",
    top=("uneven-batches",),
    before="""
        COLD_S = 0.060
        import time, torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset
        torch.set_num_threads(1)

        class Shards(Dataset):
            def __len__(self): return 8 * 150
            def __getitem__(self, i):
                if i % 120 == 119:  # a shard is downloaded with its last batch
                    time.sleep(COLD_S)
                return torch.randn(256)

        model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
    """,
    sick="""
        for x in DataLoader(Shards(), batch_size=8):
            loss = (model(x) - x).pow(2).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
    """,
    cured="""
        COLD_S = 0.0005  # all shards lie on the local disk
        for x in DataLoader(Shards(), batch_size=8):
            loss = (model(x) - x).pow(2).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
    """,
)

CLOSURE = Cell(
    name="long-steps-of-lbfgs-over-a-loader",
    klass="input",
    few=True,
    top=("loader-without-workers", "slow-getitem"),
    before="""
        import numpy as np, torch, zlib
        from torch import nn
        from torch.utils.data import DataLoader, Dataset
        torch.set_num_threads(1)
        rng = np.random.default_rng(0)
        files = [zlib.compress(rng.integers(0, 8, 60_000, dtype=np.uint8).tobytes()) for _ in range(128)]

        def decoded(i):
            return torch.from_numpy(np.frombuffer(zlib.decompress(files[i]), dtype=np.uint8)[:256] / np.float32(8))

        class Compressed(Dataset):
            def __len__(self): return 128
            def __getitem__(self, i): return decoded(i)

        model = nn.Sequential(nn.Linear(256, 200), nn.Tanh(), nn.Linear(200, 256))
        opt = torch.optim.LBFGS(model.parameters(), max_iter=10)
    """,
    sick="""
        loader = DataLoader(Compressed(), batch_size=32)
        def closure():
            opt.zero_grad()
            total = 0.0
            for x in loader:
                loss = (model(x) - x).pow(2).mean()
                loss.backward()
                total += loss.item()
            return total
        for step in range(4):
            opt.step(closure)
    """,
    cured="""
        rows = torch.stack([decoded(i) for i in range(128)])
        def closure():
            opt.zero_grad()
            total = 0.0
            for x in rows.split(32):
                loss = (model(x) - x).pow(2).mean()
                loss.backward()
                total += loss.item()
            return total
        for step in range(4):
            opt.step(closure)
    """,
)

RESTARTS = Cell(
    name="short-epochs-restart-workers",
    klass="input",
    top=("workers-restart-each-epoch",),
    cure={"persistent_workers": True},
    before="""
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        torch.set_num_threads(1)
        data = TensorDataset(torch.randn(320, 784), torch.randint(0, 10, (320,)))
        model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    """,
    sick="""
        loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=2)
        for epoch in range(16):
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
    """,
)

TOO_MANY = Cell(
    name="sixteen-workers-on-two-cores",
    klass="input",
    top=("too-many-workers", "slow-getitem"),
    never=("too-few-workers",),
    most_workers=16,
    before="""
        import hashlib, torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset
        torch.set_num_threads(1)

        class Hashed(Dataset):
            def __len__(self): return 16 * 120
            def __getitem__(self, i):
                digest = hashlib.pbkdf2_hmac("sha256", b"feature", str(i).encode(), 1500)
                return torch.frombuffer(bytearray(digest), dtype=torch.uint8).float(), i % 2

        model = nn.Linear(32, 2)
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
    """,
    sick="""
        for x, y in DataLoader(Hashed(), batch_size=16, num_workers=16):
            opt.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            opt.step()
    """,
    cured="""
        ready = [Hashed()[i] for i in range(64)]

        class Ready(Dataset):
            def __len__(self): return 16 * 120
            def __getitem__(self, i): return ready[i % 64]

        for x, y in DataLoader(Ready(), batch_size=16, num_workers=2):
            opt.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            opt.step()
    """,
)

FILES = """
        LENGTH = %d
        import os, tempfile, numpy as np, torch
        from pathlib import Path
        from torch import nn
        from torch.utils.data import DataLoader, Dataset
        torch.set_num_threads(1)
        folder = Path(tempfile.gettempdir()) / "clinic-slices"
        folder.mkdir(exist_ok=True)
        for i in range(96):
            if not (folder / f"{i}.npy").exists():
                np.save(folder / f"{i}.npy", np.random.default_rng(i).normal(size=(256, 1024)).astype(np.float32))

        class Slices(Dataset):
            def __init__(self, cold): self.cold = cold
            def __len__(self): return 8 * LENGTH
            def __getitem__(self, i):
                path = folder / f"{i %% 96}.npy"
                if self.cold:  # a data set larger than the memory: never in the page cache
                    fd = os.open(path, os.O_RDONLY)
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                    os.close(fd)
                return torch.from_numpy(np.load(path)).mean(0), i %% 3

        model = nn.Sequential(nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 3))
        optimizer = torch.optim.Adam(model.parameters())
"""

COLD_FILES = Cell(
    name="files-never-cached",
    klass="input",
    top=("slow-storage", "loader-without-workers"),
    before=FILES % 80,
    cure={"num_workers": 4},
    sick="""
        os.sync()
        loader = DataLoader(Slices(cold=True), batch_size=8, shuffle=True)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    """,
)

WARM_FILES = Cell(
    name="files-in-the-page-cache",
    klass="input",
    top=("loader-without-workers", "slow-getitem"),
    never=("slow-storage",),
    most_workers=2,
    before=FILES % 150,
    cure={"num_workers": 2},
    sick="""
        loader = DataLoader(Slices(cold=False), batch_size=8, shuffle=True)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    """,
)

CELLS = (
    TOO_FEW,
    BURSTS,
    CORES_USED,
    UNEVEN,
    COLD_SHARD,
    CLOSURE,
    RESTARTS,
    TOO_MANY,
    COLD_FILES,
    WARM_FILES,
)
