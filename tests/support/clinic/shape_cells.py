"""Patients whose time goes into what happens once: the begin of an epoch, the first step with an input's shape."""

from tests.support.clinic.cell import Cell

PERMUTED = Cell(
    name="millions-permuted-for-forty-batches",
    klass="input",
    top=("slow-epoch-start",),
    before="""
        EPOCHS = 6
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, RandomSampler, TensorDataset

        torch.set_num_threads(1)
        ratings = TensorDataset(torch.randn(1_000_000, 16), torch.randn(1_000_000))
        model = nn.Linear(16, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    """,
    sick="""
        loader = DataLoader(ratings, batch_size=32, shuffle=True)
        for epoch in range(EPOCHS):
            for step, (x, y) in enumerate(loader):
                if step == 40:  # enough for an epoch of so large a data set
                    break
                loss = ((model(x).squeeze(1) - y) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    """,
    cured="""
        sampler = RandomSampler(ratings, replacement=True, num_samples=32 * 40)
        loader = DataLoader(ratings, batch_size=32, sampler=sampler)
        for epoch in range(EPOCHS):
            for x, y in loader:
                loss = ((model(x).squeeze(1) - y) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    """,
)

CLIPS = Cell(
    name="clips-of-every-length",
    klass="compute",
    top=("changing-shapes",),
    before="""
        import random
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset

        torch.set_num_threads(1)

        class Clips(Dataset):
            # two batches of each length, as a bucketing script left them
            def __init__(self):
                self.lengths = random.sample(range(100, 700), 60) * 2  # torch keeps the kernels of a run
                self.clips = torch.randn(4, 8, 704)

            def __len__(self):
                return len(self.lengths)

            def __getitem__(self, i):
                return self.clips[:, :, : self.lengths[i]]

        model = nn.Sequential(
            nn.Conv1d(8, 16, 5), nn.ReLU(), nn.Conv1d(16, 16, 5), nn.ReLU(), nn.Conv1d(16, 16, 5), nn.ReLU(),
            nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 4),
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    """,
    sick="""
        loader = DataLoader(Clips(), batch_size=None, shuffle=True)
        for x in loader:
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    cured="""
        loader = DataLoader(Clips(), batch_size=None, shuffle=True)
        for x in loader:
            x = nn.functional.pad(x, (0, -x.shape[2] % 64))
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
)

BUCKETS = Cell(
    name="buckets-of-few-lengths",
    klass="compute",
    healthy=True,
    never=("changing-shapes",),
    before="""
        import random
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset

        torch.set_num_threads(1)
        LENGTHS = [16, 24, 32, 48, 64, 96, 128, 192, 256, 384]

        class Texts(Dataset):
            def __len__(self):
                return 100_000

            def __getitem__(self, length):
                return torch.randint(0, 100, (length,))

        class Budget:
            # as many tokens in every batch, and long texts are rare
            def __iter__(self):
                dice = random.Random(1)
                for _ in range(150):
                    length = LENGTHS[min(int(dice.expovariate(0.5)), 9)]
                    yield [length] * (3072 // length)

            def __len__(self):
                return 150

        class Reader(nn.Module):
            def __init__(self):
                super().__init__()
                self.words = nn.Embedding(100, 48)
                self.layer = nn.TransformerEncoderLayer(48, 2, 96, batch_first=True, dropout=0.0)
                self.out = nn.Linear(48, 4)

            def forward(self, x):
                return self.out(self.layer(self.words(x)).mean(1))

        model = Reader()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    """,
    sick="""
        loader = DataLoader(Texts(), batch_sampler=Budget())
        for x in loader:
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
)

CELLS = (PERMUTED, CLIPS, BUCKETS)
