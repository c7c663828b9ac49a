"""Patients with input as people load it in everyday notebooks: CSV rows, JSON lines, seeks, features on the fly.

Written before the doctor saw any of them, so that its figures on them are those of loops it was not made for.
"""

from tests.support.clinic.cell import Cell

CSV_ROWS = Cell(
    name="csv-parsed-row-by-row",
    klass="input",
    top=("slow-getitem", "loader-without-workers"),
    most_workers=2,
    before="""
        import csv, io, random
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset
        torch.set_num_threads(1)
        random.seed(0)
        table = [",".join(f"{random.gauss(0, 1):.5f}" for _ in range(40)) + f",{i % 3}" for i in range(4000)]

        class Tabular(Dataset):
            def __init__(self, lines):
                self.lines = lines
            def __len__(self):
                return len(self.lines)
            def __getitem__(self, i):
                row = next(csv.reader(io.StringIO(self.lines[i])))
                features = torch.tensor([float(v) for v in row[:-1]])
                return (features - features.mean()) / (features.std() + 1e-6), int(row[-1])

        class Ready(Dataset):
            def __init__(self, lines):
                rows = [[float(v) for v in line.split(",")] for line in lines]
                t = torch.tensor(rows)
                self.y = t[:, -1].long()
                self.x = t[:, :-1]
                self.x = (self.x - self.x.mean(1, keepdim=True)) / (self.x.std(1, keepdim=True) + 1e-6)
            def __len__(self):
                return len(self.y)
            def __getitems__(self, indices):
                return self.x[indices], self.y[indices]

        net = nn.Sequential(nn.Linear(40, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 3))
        opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        lossf = nn.CrossEntropyLoss()
    """,
    sick="""
        data = DataLoader(Tabular(table), batch_size=32, shuffle=True)
        for epoch in range(1):
            total = 0.0
            for xb, yb in data:
                pred = net(xb)
                loss = lossf(pred, yb)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                opt.step()
                total += loss.item() * len(yb)
    """,
    cured="""
        data = DataLoader(Ready(table), batch_size=32, shuffle=True, collate_fn=lambda batch: batch)
        for epoch in range(1):
            total = 0.0
            for xb, yb in data:
                pred = net(xb)
                loss = lossf(pred, yb)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                opt.step()
                total += loss.item() * len(yb)
    """,
)

SEEKS = Cell(
    name="records-behind-a-slow-lock",
    klass="input",
    top=("loader-without-workers", "slow-storage"),
    cure={"num_workers": 4},
    before="""
        EPOCHS = 2
        import os, tempfile, time
        import numpy as np
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset
        torch.set_num_threads(1)
        path = os.path.join(tempfile.gettempdir(), "clinic-records.bin")
        np.random.default_rng(0).standard_normal((512, 2048), dtype=np.float32).tofile(path)

        class Chunked(Dataset):
            # opens lazily and seeks; the file system behind it answers after a while
            def __init__(self):
                self.file = None
            def __len__(self):
                return 512
            def __getitem__(self, i):
                if self.file is None:
                    self.file = open(path, "rb")
                self.file.seek(i * 2048 * 4)
                raw = self.file.read(2048 * 4)
                time.sleep(0.0012)
                return {"x": torch.from_numpy(np.frombuffer(raw, dtype=np.float32).copy()), "y": i % 5}

        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Linear(2048, 384), nn.GELU(), nn.LayerNorm(384),
                                          nn.Linear(384, 384), nn.GELU())
                self.head = nn.Linear(384, 5)
            def forward(self, x):
                return self.head(self.body(x))

        enc = Encoder()
        opt = torch.optim.AdamW(enc.parameters(), lr=1e-3, fused=True)
    """,
    sick="""
        dl = DataLoader(Chunked(), batch_size=8, shuffle=True, drop_last=True)
        for epoch in range(EPOCHS):
            for i, batch in enumerate(dl):
                out = enc(batch["x"])
                loss = nn.functional.cross_entropy(out, batch["y"])
                loss.backward()
                opt.step()
                opt.zero_grad()
    """,
)

JSON_LINES = Cell(
    name="json-lines-in-a-collate",
    klass="input",
    top=("slow-collate", "loader-without-workers"),
    most_workers=2,
    before="""
        import json, random
        import torch
        from torch import nn
        from torch.nn.utils.rnn import pad_sequence
        from torch.utils.data import DataLoader
        torch.set_num_threads(1)
        random.seed(1)
        lines = [json.dumps({"id": i, "tokens": [random.randrange(1, 800) for _ in range(random.randrange(40, 120))],
                             "meta": {"tags": ["a", "b", "c"] * 10}, "label": i % 4}) for i in range(2400)]

        def collate(batch):
            records = [json.loads(line) for line in batch]
            tokens = pad_sequence([torch.tensor(r["tokens"]) for r in records], batch_first=True)
            return {"tokens": tokens, "mask": tokens != 0, "labels": torch.tensor([r["label"] for r in records])}

        parsed = []
        def collate_parsed(batch):
            tokens = pad_sequence([t for t, _ in batch], batch_first=True)
            return {"tokens": tokens, "mask": tokens != 0, "labels": torch.tensor([label for _, label in batch])}

        class Bag(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = nn.Embedding(800, 32, padding_idx=0)
                self.out = nn.Linear(32, 4)
            def forward(self, tokens, mask):
                h = self.emb(tokens) * mask[..., None]
                return self.out(h.sum(1) / mask.sum(1, keepdim=True))

        model = Bag()
        optim = torch.optim.Adagrad(model.parameters(), lr=0.1)
    """,
    sick="""
        loader = DataLoader(lines, batch_size=16, shuffle=True, collate_fn=collate)
        model.train()
        for batch in loader:
            optim.zero_grad()
            logits = model(batch["tokens"], batch["mask"])
            loss = nn.functional.cross_entropy(logits, batch["labels"])
            loss.backward()
            optim.step()
    """,
    cured="""
        for line in lines:
            record = json.loads(line)
            parsed.append((torch.tensor(record["tokens"]), record["label"]))
        loader = DataLoader(parsed, batch_size=16, shuffle=True, collate_fn=collate_parsed)
        model.train()
        for batch in loader:
            optim.zero_grad()
            logits = model(batch["tokens"], batch["mask"])
            loss = nn.functional.cross_entropy(logits, batch["labels"])
            loss.backward()
            optim.step()
    """,
)

FEATURES = Cell(
    name="spectra-computed-on-the-fly",
    klass="input",
    top=("slow-getitem", "loader-without-workers"),
    most_workers=2,
    before="""
        import torch
        import torch.nn as nn
        from torch.utils.data import DataLoader, Dataset
        torch.set_num_threads(1)
        WINDOW = torch.hann_window(256)

        class Keywords(Dataset):
            def __init__(self, n):
                self.waves = torch.randn(64, 8000)
                self.n = n
            def __len__(self):
                return self.n
            def __getitem__(self, i):
                wave = self.waves[i % 64]
                wave = torch.roll(wave, int(torch.randint(0, 800, (1,))))
                wave = wave + 0.01 * torch.randn_like(wave)
                spec = torch.stft(wave, 256, hop_length=128, window=WINDOW, return_complex=True).abs()
                return torch.log1p(spec), i % 12

        class Cnn(nn.Module):
            def __init__(self):
                super().__init__()
                self.c1 = nn.Conv2d(1, 8, 3, stride=2)
                self.c2 = nn.Conv2d(8, 16, 3, stride=2)
                self.fc = nn.Linear(16, 12)
            def forward(self, x):
                x = torch.relu(self.c1(x[:, None]))
                x = torch.relu(self.c2(x))
                return self.fc(x.mean((2, 3)))

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        net = Cnn().to(device)
        opt = torch.optim.Adam(net.parameters(), lr=3e-4, fused=True)
        ce = nn.CrossEntropyLoss()
    """,
    sick="""
        loader = DataLoader(Keywords(2400), batch_size=16, shuffle=True)
        net.train()
        for spec, label in loader:
            spec, label = spec.to(device), label.to(device)
            opt.zero_grad()
            loss = ce(net(spec), label)
            loss.backward()
            opt.step()
    """,
    cured="""
        class Ready(Dataset):
            # a new shift each time, but of spectra computed once
            def __init__(self, n):
                self.n = n
                waves = torch.randn(64, 8000)
                self.spec = torch.log1p(torch.stft(waves, 256, 128, window=WINDOW, return_complex=True).abs())
            def __len__(self):
                return self.n
            def __getitem__(self, i):
                return self.spec[i % 64].roll(int(torch.randint(0, 6, (1,))), 1), i % 12

        loader = DataLoader(Ready(2400), batch_size=16, shuffle=True)
        net.train()
        for spec, label in loader:
            spec, label = spec.to(device), label.to(device)
            opt.zero_grad()
            loss = ce(net(spec), label)
            loss.backward()
            opt.step()
    """,
)

CELLS = (CSV_ROWS, SEEKS, JSON_LINES, FEATURES)
