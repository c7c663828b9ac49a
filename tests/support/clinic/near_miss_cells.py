"""Patients that look ill and are not: workers that hide a slow store, a slow first step, a stream shared out."""

from tests.support.clinic.cell import Cell
from tests.support.clinic.healthy_cells import LOADER_RULES
from tests.support.clinic.host_cells import digits

SLEEP_HIDDEN = Cell(
    name="slow-store-hidden-by-workers",
    klass="compute",
    healthy=True,
    never=LOADER_RULES,
    before="""
        import time, torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset
        torch.set_num_threads(1)

        class Remote(Dataset):
            def __len__(self): return 8 * 90
            def __getitem__(self, i):
                time.sleep(0.004)
                return torch.randn(256), i % 10

        model = nn.Sequential(nn.Linear(256, 1600), nn.ReLU(), nn.Linear(1600, 1600), nn.ReLU(), nn.Linear(1600, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    """,
    sick="""
        loader = DataLoader(Remote(), batch_size=8, shuffle=True, num_workers=6)
        for x, y in loader:
            x, y = x.repeat(8, 1), y.repeat(8)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    """,
)

WARM_UP = Cell(
    name="slow-first-step",
    klass="compute",
    healthy=True,
    never=LOADER_RULES,
    before=digits(120)
    + """
        class Lazy(nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.ready = model, False
            def forward(self, x):
                if not self.ready:
                    import time
                    time.sleep(0.8)  # compiles, tunes, downloads
                    self.ready = True
                return self.net(x)

        lazy = Lazy()
    """,
    sick="""
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(lazy(x), y)
            loss.backward()
            optimizer.step()
    """,
)

SHARDED_STREAM = Cell(
    name="stream-sharded-by-worker",
    klass="compute",
    healthy=True,
    never=("iterable-duplicated", *LOADER_RULES),
    before="""
        import time, torch
        from torch import nn
        from torch.utils.data import DataLoader, IterableDataset, get_worker_info
        torch.set_num_threads(1)

        class Shards(IterableDataset):
            def __iter__(self):
                info = get_worker_info()
                for i in range(info.id if info else 0, 32 * 90, info.num_workers if info else 1):
                    if i % 8 < 2:
                        time.sleep(0.0005)
                    yield torch.randn(256)

        model = nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 256))
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
    """,
    sick="""
        for x in DataLoader(Shards(), batch_size=32, num_workers=2):
            loss = (model(x) - x).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
)

STAYING_WORKERS = Cell(
    name="workers-that-stay-over-epochs",
    klass="compute",
    healthy=True,
    never=("workers-restart-each-epoch", *LOADER_RULES),
    before="""
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        torch.set_num_threads(1)
        data = TensorDataset(torch.randn(16 * 30, 784), torch.randint(0, 10, (16 * 30,)))
        model = nn.Sequential(nn.Linear(784, 1600), nn.ReLU(), nn.Linear(1600, 1600), nn.ReLU(), nn.Linear(1600, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    """,
    sick="""
        loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=1, persistent_workers=True)
        for epoch in range(4):
            for x, y in loader:
                x, y = x.repeat(4, 1), y.repeat(4)
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
    """,
)

CONVNET = Cell(
    name="convnet-with-augmentation-in-workers",
    klass="compute",
    healthy=True,
    never=LOADER_RULES,
    before="""
        import torch, torch.nn as nn, torch.nn.functional as F
        from torch.utils.data import DataLoader, Dataset
        torch.set_num_threads(1)

        class Augmented(Dataset):
            def __init__(self, n): self.images, self.labels = torch.rand(n, 3, 32, 32), torch.randint(0, 10, (n,))
            def __len__(self): return len(self.images)
            def __getitem__(self, i):
                image = F.pad(self.images[i], (4, 4, 4, 4))
                top, left = torch.randint(0, 9, (2,)).tolist()
                image = image[:, top : top + 32, left : left + 32]
                return image.flip(2) if torch.rand(()) < 0.5 else image, self.labels[i]

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.c1, self.c2 = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)
                self.fc = nn.Linear(32 * 8 * 8, 10)
            def forward(self, x):
                x = F.max_pool2d(F.relu(self.c1(x)), 2)
                x = F.max_pool2d(F.relu(self.c2(x)), 2)
                return self.fc(x.flatten(1))
    """,
    sick="""
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        net = Net().to(device)
        opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
        sched = torch.optim.lr_scheduler.StepLR(opt, 1, 0.9)
        trainloader = DataLoader(Augmented(16 * 80), batch_size=16, shuffle=True, num_workers=1)
        for data in trainloader:
            inputs, labels = data[0].to(device), data[1].to(device)
            opt.zero_grad()
            outputs = net(inputs)
            loss = F.cross_entropy(outputs, labels)
            loss.backward()
            opt.step()
        sched.step()
    """,
)

CELLS = (
    SLEEP_HIDDEN,
    WARM_UP,
    SHARDED_STREAM,
    STAYING_WORKERS,
    CONVNET,
)
