"""Patients whose model, optimizer or evaluation computes more than it need; and one that keeps every graph."""

from tests.support.clinic.cell import Cell
from tests.support.clinic.host_cells import digits

EVALUATION = """
        val_X, val_Y = torch.randn(%d, 784), torch.randint(0, 10, (%d,))

        def accuracy(batch=64):
            right = 0
            model.eval()
            with torch.no_grad():
                for i in range(0, len(val_X), batch):
                    right += (model(val_X[i : i + batch]).argmax(1) == val_Y[i : i + batch]).sum().item()
            model.train()
            return right / len(val_X)
"""

TRAIN_AND_EVALUATE = """
        for epoch in range(20):
            for x, y in loader:
                optimizer.zero_grad()
                loss = criterion(model(x), y)
                loss.backward()
                optimizer.step()
            %s
"""

HEAVY_EVALUATION = Cell(
    name="evaluation-longer-than-training",
    klass="compute",
    top=("heavy-evaluation",),
    tail=True,
    before=digits(6) + EVALUATION % (1024, 1024),
    sick=TRAIN_AND_EVALUATE % "print(f'epoch {epoch}: {accuracy():.3f}')",
    cured=TRAIN_AND_EVALUATE % "if epoch % 2 == 1: print(f'epoch {epoch}: {accuracy():.3f}')",
)

EVALUATION_EVERY_FIVE = Cell(
    name="evaluation-every-five-steps",
    klass="compute",
    top=("heavy-evaluation",),
    never=("loader-without-workers", "slow-getitem", "slow-collate", "slow-python"),
    before=digits(100) + EVALUATION % (1024, 1024),
    sick="""
        step = 0
        best = 0
        while step < 100:
            for x, y in loader:
                optimizer.zero_grad()
                loss = criterion(model(x), y)
                loss.backward()
                optimizer.step()
                step += 1
                if step % 5 == 0:
                    best = max(best, accuracy())
    """,
    cured="""
        step = 0
        best = 0
        while step < 100:
            for x, y in loader:
                optimizer.zero_grad()
                loss = criterion(model(x), y)
                loss.backward()
                optimizer.step()
                step += 1
                if step % 10 == 0:
                    best = max(best, accuracy())
    """,
)

WITH_GRADIENTS = Cell(
    name="validation-with-gradients",
    klass="compute",
    top=("eval-with-gradients", "heavy-evaluation"),
    tail=True,
    before=digits(14)
    + """
        val = [(torch.randn(64, 784), torch.randint(0, 10, (64,))) for _ in range(40)]
        layers = [m for _ in range(40) for m in (nn.Linear(32, 32), nn.Tanh())]
        deep = nn.Sequential(nn.Linear(784, 32), *layers, nn.Linear(32, 10))
        optimizer = torch.optim.SGD(deep.parameters(), lr=0.05)
    """,
    sick="""
        for epoch in range(4):
            deep.train()
            for x, y in loader:
                optimizer.zero_grad()
                criterion(deep(x), y).backward()
                optimizer.step()
            deep.eval()
            losses = []
            for x, y in val:
                losses.append(criterion(deep(x), y).item())
            val_loss = sum(losses) / len(losses)
    """,
    cured="""
        for epoch in range(4):
            deep.train()
            for x, y in loader:
                optimizer.zero_grad()
                criterion(deep(x), y).backward()
                optimizer.step()
            deep.eval()
            losses = []
            with torch.inference_mode():
                for x, y in val:
                    losses.append(criterion(deep(x), y).item())
            val_loss = sum(losses) / len(losses)
    """,
)

UNFUSED = Cell(
    name="adam-tensor-by-tensor",
    klass="compute",
    top=("unfused-optimizer",),
    cure={"fused_optimizer": True},
    before="""
        import torch
        from torch import nn
        torch.set_num_threads(1)

        class Block(nn.Module):
            def __init__(self, d):
                super().__init__()
                self.norm = nn.LayerNorm(d)
                self.a, self.b = nn.Linear(d, d), nn.Linear(d, d)
            def forward(self, x):
                return x + self.b(torch.relu(self.a(self.norm(x))))

        model = nn.Sequential(*[Block(48) for _ in range(50)], nn.Linear(48, 2))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
        data = [(torch.randn(8, 48), torch.randint(0, 2, (8,))) for _ in range(80)]
    """,
    sick="""
        for x, y in data:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
    """,
)

LARGE_EMBEDDING = Cell(
    name="adam-on-a-large-embedding",
    klass="compute",
    top=("unfused-optimizer", "dense-embedding-gradients"),
    cure={"fused_optimizer": True},
    before="""
        import torch
        from torch import nn
        torch.set_num_threads(1)
        vocab = 20_000
        model = nn.Sequential(nn.Embedding(vocab, 64), nn.Flatten(), nn.Linear(64 * 8, 64))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        batches = torch.randint(0, vocab, (70, 32, 8))
    """,
    sick="""
        for ids in batches:
            out = model(ids)
            loss = out.pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
)

USERS = Cell(
    name="sgd-on-a-table-of-users",
    klass="compute",
    top=("dense-embedding-gradients",),
    before="""
        import torch
        from torch import nn
        torch.set_num_threads(1)
        n_users = 300_000

        class Ratings(nn.Module):
            def __init__(self, sparse=False):
                super().__init__()
                self.users = nn.Embedding(n_users, 32, sparse=sparse)
                self.score = nn.Linear(32, 1)

            def forward(self, ids):
                return self.score(self.users(ids)).squeeze(1)

        batches = torch.randint(0, n_users, (120, 128))
        ratings = torch.rand(120, 128)
    """,
    sick="""
        model = Ratings()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for ids, rating in zip(batches, ratings):
            loss = (model(ids) - rating).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    cured="""
        model = Ratings(sparse=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for ids, rating in zip(batches, ratings):
            loss = (model(ids) - rating).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
)

KEPT_GRAPHS = Cell(
    name="losses-keep-their-graphs",
    klass="compute",
    top=("memory-growth",),
    before="""
        import torch
        from torch import nn
        torch.set_num_threads(1)
        model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 21, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        images = [(torch.rand(4, 3, 80, 80), torch.randint(0, 21, (4, 80, 80))) for _ in range(12)]
    """,
    sick="""
        outputs, losses = [], []
        for epoch in range(150):  # some seconds: memory is read about once a second on two cores
            for image, mask in images:
                logits = model(image)
                loss = nn.functional.cross_entropy(logits, mask)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                outputs.append(logits)  # for the metrics at the end
                losses.append(loss)
        mean = torch.stack(losses).mean().item()
    """,
)

KEPT_ELSEWHERE = Cell(
    name="a-logger-keeps-losses-of-small-graphs",
    klass="compute",
    top=("memory-growth",),
    before="""
        import torch
        from torch import nn
        torch.set_num_threads(1)

        class Logger:
            def __init__(self):
                self.seen = []

            def log(self, value):
                self.seen.append(value)

        logger = Logger()
        layers = [layer for _ in range(40) for layer in (nn.Linear(16, 16), nn.ReLU())]
        model = nn.Sequential(*layers, nn.Linear(16, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        rows = [(torch.randn(8, 16), torch.randn(8, 1)) for _ in range(40)]
    """,
    sick="""
        for epoch in range(50):  # some seconds: memory is read twice a second
            for x, y in rows:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                logger.log(loss)
    """,
)

HEAD_ONLY = Cell(
    name="a-head-on-a-backbone-that-was-not-frozen",
    klass="compute",
    top=("unused-gradients",),
    before="""
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        torch.set_num_threads(1)
        backbone = nn.Sequential(*[layer for _ in range(5) for layer in (nn.Linear(256, 256), nn.ReLU())])  # pretrained
        head = nn.Linear(256, 10)
        features = torch.randn(64 * 150, 256)
        labels = torch.randint(0, 10, (64 * 150,))
        loader = [(features[i : i + 64], labels[i : i + 64]) for i in range(0, len(features), 64)]
        criterion = nn.CrossEntropyLoss()
    """,
    sick="""
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1)  # only the head learns
        model = nn.Sequential(backbone, head)
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
    """,
    cured="""
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1)  # only the head learns
        backbone.requires_grad_(False)
        model = nn.Sequential(backbone, head)
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
    """,
)

DOUBLES = Cell(
    name="a-model-made-double-for-numpy",
    klass="compute",
    top=("double-precision",),
    before="""
        import numpy as np
        import torch
        from torch import nn

        torch.set_num_threads(1)
        X = np.random.rand(64 * 100, 512)  # float64, as NumPy makes it
        y = np.random.rand(64 * 100, 1)
        model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
    """,
    sick="""
        model = model.double()  # RuntimeError: mat1 and mat2 must have the same dtype
        inputs, targets = torch.from_numpy(X), torch.from_numpy(y)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for i in range(0, len(inputs), 64):
            loss = ((model(inputs[i : i + 64]) - targets[i : i + 64]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    cured="""
        inputs, targets = torch.from_numpy(X).float(), torch.from_numpy(y).float()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for i in range(0, len(inputs), 64):
            loss = ((model(inputs[i : i + 64]) - targets[i : i + 64]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
)

CELLS = (
    HEAVY_EVALUATION,
    EVALUATION_EVERY_FIVE,
    WITH_GRADIENTS,
    UNFUSED,
    LARGE_EMBEDDING,
    USERS,
    HEAD_ONLY,
    DOUBLES,
    KEPT_GRAPHS,
    KEPT_ELSEWHERE,
)
