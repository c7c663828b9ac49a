"""Patients whose training uses all cores, as torch does where nobody says otherwise, and whose fetch computes.

Workers take cores from the training then: how much they gain is the hardest thing to foretell.
"""

from __future__ import annotations

from tests.support.clinic.cell import Cell

TRAIN = """
        loader = DataLoader(data, batch_size=16, shuffle=True)
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
"""

IMPORTS = """
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset
        torch.manual_seed(0)
        LENGTH = 80  # batches
        criterion = nn.CrossEntropyLoss()
"""


def beside(name: str, before: str) -> Cell:
    """A dataset that computes, beside a model that uses all cores; made as `data` and `model` of the cells above."""
    return Cell(
        name=name,
        klass="input",
        top=("loader-without-workers", "slow-getitem"),
        cure={"num_workers": 2},
        most_workers=2,
        before=IMPORTS + before + "\n        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n",
        sick=TRAIN,
    )


UNPACKED = beside(
    "images-unpacked-beside-a-convnet",
    """
        import zlib
        import numpy as np
        rng = np.random.default_rng(0)
        files = [zlib.compress(rng.integers(0, 8, (256, 256, 3), dtype=np.uint8).tobytes()) for _ in range(32)]

        class Images(Dataset):
            def __len__(self): return 16 * LENGTH
            def __getitem__(self, i):
                image = np.frombuffer(zlib.decompress(files[i % 32]), dtype=np.uint8).reshape(256, 256, 3)
                small = image[::8, ::8].astype(np.float32) / 255
                return torch.from_numpy(small.transpose(2, 0, 1).copy()), i % 10

        data = Images()
        model = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10),
        )
    """,
)

SPECTRA = beside(
    "spectra-beside-a-wide-mlp",
    """
        import numpy as np
        waves = np.random.default_rng(0).normal(size=(32, 16000))

        class Speech(Dataset):
            def __len__(self): return 16 * LENGTH
            def __getitem__(self, i):
                frames = np.lib.stride_tricks.sliding_window_view(waves[i % 32], 400)[::160] * np.hanning(400)
                power = np.log1p(np.abs(np.fft.rfft(frames, axis=1)) ** 2)
                return torch.from_numpy(power.mean(0).astype(np.float32)), i % 10

        data = Speech()
        model = nn.Sequential(nn.Linear(201, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    """,
)

WORDS = beside(
    "words-hashed-beside-a-transformer",
    """
        import random
        random.seed(0)
        texts = [" ".join(f"w{random.randrange(900)}," for _ in range(1800)) for _ in range(64)]

        class Reviews(Dataset):
            def __len__(self): return 16 * LENGTH
            def __getitem__(self, i):
                ids = []
                for word in texts[i % 64].split():
                    number = 7
                    for letter in word.strip(",").lower():
                        number = (number * 31 + ord(letter)) % 4093
                    ids.append(number)
                return torch.tensor(ids[:64]), i % 10

        class Classifier(nn.Module):
            def __init__(self):
                super().__init__()
                self.words = nn.Embedding(4093, 64)
                self.layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
                self.out = nn.Linear(64, 10)
            def forward(self, ids):
                return self.out(self.layer(self.words(ids)).mean(1))

        data, model = Reviews(), Classifier()
    """,
)

AUGMENTED = beside(
    "torch-augments-beside-an-mlp",
    """
        pictures = torch.rand(32, 3, 224, 224)

        class Augmented(Dataset):
            def __len__(self): return 16 * LENGTH
            def __getitem__(self, i):
                x = pictures[i % 32]
                if torch.rand(()) < 0.5:
                    x = x.flip(2)
                x = nn.functional.interpolate(x[None], size=(128, 128), mode="bilinear", antialias=True)[0]
                x = (x - x.mean((1, 2), keepdim=True)) / x.std((1, 2), keepdim=True)
                return x[:, ::8, ::8].flatten(), i % 10

        data = Augmented()
        model = nn.Sequential(nn.Linear(768, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10))
    """,
)

ROWS = beside(
    "rows-parsed-beside-an-mlp",
    """
        import json, random
        random.seed(0)
        lines = [json.dumps({f"f{k}": random.random() for k in range(300)}) for _ in range(64)]

        class Rows(Dataset):
            def __len__(self): return 16 * LENGTH
            def __getitem__(self, i):
                row = json.loads(lines[i % 64])
                values = [row[name] for name in sorted(row)]
                mean = sum(values) / len(values)
                spread = sum((one - mean) ** 2 for one in values) ** 0.5
                return torch.tensor([(one - mean) / spread for one in values]), i % 10

        data = Rows()
        model = nn.Sequential(nn.Linear(300, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    """,
)

WALKS = beside(
    "walks-drawn-beside-a-recurrent-net",
    """
        import random
        neighbours = [[random.randrange(500) for _ in range(8)] for _ in range(500)]

        class Walks(Dataset):
            def __len__(self): return 16 * LENGTH
            def __getitem__(self, i):
                walk, node = [], i % 500
                for _ in range(4500):
                    node = random.choice(neighbours[node])
                    walk.append(node)
                return torch.tensor(walk[::225]), i % 10

        class Reader(nn.Module):
            def __init__(self):
                super().__init__()
                self.nodes, self.net = nn.Embedding(500, 64), nn.GRU(64, 64, batch_first=True)
                self.out = nn.Linear(64, 10)
            def forward(self, walks):
                return self.out(self.net(self.nodes(walks))[0][:, -1])

        data, model = Walks(), Reader()
    """,
)

CELLS = (
    UNPACKED,
    SPECTRA,
    WORDS,
    AUGMENTED,
    ROWS,
    WALKS,
)
