"""Patients that wait for their data because nobody fetches it ahead, or one sample at a time."""

from tests.support.clinic.cell import Cell

SLEEPING = Cell(
    name="sleeping-dataset",
    klass="input",
    top=("loader-without-workers", "slow-storage"),
    cure={"num_workers": 6},
    before="""
        EPOCHS = 3
        import time
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset

        torch.set_num_threads(1)

        class RemoteImages(Dataset):
            # every sample is a request to an object store
            def __len__(self):
                return 16 * 20

            def __getitem__(self, i):
                time.sleep(0.002)
                return torch.randn(3, 32, 32), i % 10

        model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 512), nn.ReLU(), nn.Linear(512, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        criterion = nn.CrossEntropyLoss()
    """,
    sick="""
        loader = DataLoader(RemoteImages(), batch_size=16, shuffle=True)
        for epoch in range(EPOCHS):
            for x, y in loader:
                optimizer.zero_grad()
                loss = criterion(model(x), y)
                loss.backward()
                optimizer.step()
    """,
)

DECODING = Cell(
    name="decoding-in-the-loop",
    klass="input",
    top=("loader-without-workers", "slow-getitem"),
    cure={"num_workers": 1},
    most_workers=2,
    before="""
        LENGTH = 70  # batches
        import zlib
        import numpy as np
        import torch
        import torch.nn as nn
        import torch.nn.functional as F
        from torch.utils.data import Dataset, DataLoader

        torch.set_num_threads(1)  # so that the loader gets a core of its own
        rng = np.random.default_rng(0)
        files = [zlib.compress(rng.integers(0, 8, (224, 224, 3), dtype=np.uint8).tobytes()) for _ in range(64)]

        class Compressed(Dataset):
            def __len__(self):
                return 16 * LENGTH

            def __getitem__(self, i):
                image = np.frombuffer(zlib.decompress(files[i % 64]), dtype=np.uint8).reshape(224, 224, 3)
                image = image[::7, ::7].astype(np.float32) / 255
                return torch.from_numpy(image.transpose(2, 0, 1).copy()), i % 10

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv1 = nn.Conv2d(3, 12, 3)
                self.conv2 = nn.Conv2d(12, 12, 3)
                self.fc = nn.Linear(12 * 7 * 7, 10)

            def forward(self, x):
                x = F.max_pool2d(F.relu(self.conv1(x)), 2)
                x = F.max_pool2d(F.relu(self.conv2(x)), 2)
                x = F.adaptive_avg_pool2d(x, 7)
                return self.fc(x.flatten(1))

        net = Net()
        opt = torch.optim.Adam(net.parameters())
    """,
    sick="""
        train_loader = DataLoader(Compressed(), batch_size=16, shuffle=True)

        running = 0.0
        for batch_idx, (data, target) in enumerate(train_loader):
            opt.zero_grad()
            output = net(data)
            loss = F.cross_entropy(output, target)
            loss.backward()
            opt.step()
            running += loss.item()
            if batch_idx % 50 == 49:
                running = 0.0
    """,
)

TOKENISING = Cell(
    name="tokenising-in-getitem",
    klass="input",
    top=("loader-without-workers", "slow-getitem"),
    most_workers=2,
    before="""
        import re, torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset
        torch.set_num_threads(1)

        REVIEWS = ["It was a truly terrible movie, I wouldn't watch it twice; the plot is thin! " * 6] * 200
        VOCAB = {}

        def tokenize(text):
            text = re.sub(r"<br />", " ", text.lower())
            words = re.findall(r"[a-z']+|[.,!;]", text)
            return [VOCAB.setdefault(w, len(VOCAB) + 1) for w in words]

        class IMDB(Dataset):
            def __init__(self, texts): self.texts = texts
            def __len__(self): return 2400
            def __getitem__(self, i):
                ids = tokenize(self.texts[i % len(self.texts)])[:64]
                ids += [0] * (64 - len(ids))
                return torch.tensor(ids), torch.tensor(float(i % 2))

        class Bag(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = nn.EmbeddingBag(500, 64)
                self.out = nn.Linear(64, 1)
            def forward(self, ids): return self.out(self.emb(ids)).squeeze(1)
    """,
    sick="""
        model = Bag()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        loss_fn = nn.BCEWithLogitsLoss()
        for epoch in range(3):
            for ids, label in DataLoader(IMDB(REVIEWS), batch_size=32, shuffle=True):
                loss = loss_fn(model(ids), label)
                optimizer.zero_grad(); loss.backward(); optimizer.step()
    """,
    cured="""
        TOKENS = [torch.tensor((tokenize(t) + [0] * 64)[:64]) for t in REVIEWS]  # once, not each epoch

        class Ready(Dataset):
            def __len__(self): return 2400
            def __getitem__(self, i): return TOKENS[i % len(TOKENS)], torch.tensor(float(i % 2))

        model = Bag()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        loss_fn = nn.BCEWithLogitsLoss()
        for epoch in range(3):
            for ids, label in DataLoader(Ready(), batch_size=32, shuffle=True):
                loss = loss_fn(model(ids), label)
                optimizer.zero_grad(); loss.backward(); optimizer.step()
    """,
)

SAMPLE_BY_SAMPLE = Cell(
    name="tensors-sample-by-sample",
    klass="input",
    top=("slow-collate", "slow-getitem"),
    most_workers=2,
    before="""
        import torch
        from torch import nn
        from torch.utils.data import TensorDataset, DataLoader, BatchSampler, RandomSampler
        torch.set_num_threads(1)
        X, Y = torch.randn(60_000, 20), torch.randint(0, 2, (60_000,)).float()
        train_ds = TensorDataset(X, Y)
        model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
        opt = torch.optim.Adam(model.parameters())
    """,
    sick="""
        train_dl = DataLoader(train_ds, batch_size=512, shuffle=True)
        for epoch in range(2):
            for xb, yb in train_dl:
                loss = nn.functional.binary_cross_entropy_with_logits(model(xb), yb)
                loss.backward()
                opt.step()
                opt.zero_grad()
    """,
    cured="""
        sampler = BatchSampler(RandomSampler(train_ds), 512, drop_last=False)
        train_dl = DataLoader(train_ds, batch_size=None, sampler=sampler)
        for epoch in range(2):
            for xb, yb in train_dl:
                loss = nn.functional.binary_cross_entropy_with_logits(model(xb), yb)
                loss.backward()
                opt.step()
                opt.zero_grad()
    """,
)

SLOW_COLLATE = Cell(
    name="padding-in-python",
    klass="input",
    top=("slow-collate",),
    before="""
        import random
        import torch
        from torch import nn
        from torch.utils.data import DataLoader
        torch.set_num_threads(1)
        random.seed(1)
        corpus = [[random.randrange(1, 900) for _ in range(random.randrange(40, 120))] for _ in range(64 * 110)]

        def pad(batch):
            longest = max(len(s) for s in batch)
            rows = torch.zeros(len(batch), longest, dtype=torch.long)
            for i, sentence in enumerate(batch):
                for j, token in enumerate(sentence[:60]):
                    rows[i, j] = token
            return rows

        emb = nn.EmbeddingBag(1000, 32)
        head = nn.Linear(32, 1)
        params = list(emb.parameters()) + list(head.parameters())
        optimizer = torch.optim.SGD(params, lr=0.1)
    """,
    sick="""
        loader = DataLoader(corpus, batch_size=64, collate_fn=pad, num_workers=2)
        for rows in loader:
            optimizer.zero_grad()
            loss = head(emb(rows)).pow(2).mean()
            loss.backward()
            optimizer.step()
    """,
    cured="""
        def pad(batch):
            return nn.utils.rnn.pad_sequence([torch.tensor(s[:60]) for s in batch], batch_first=True)

        loader = DataLoader(corpus, batch_size=64, collate_fn=pad, num_workers=2)
        for rows in loader:
            optimizer.zero_grad()
            loss = head(emb(rows)).pow(2).mean()
            loss.backward()
            optimizer.step()
    """,
)

CELLS = (
    SLEEPING,
    DECODING,
    TOKENISING,
    SAMPLE_BY_SAMPLE,
    SLOW_COLLATE,
)
