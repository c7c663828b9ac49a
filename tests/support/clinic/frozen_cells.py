"""Patients whose frozen model computes the same in every epoch; and some whose teacher has something new to say."""

from tests.support.clinic.cell import Cell

TEACHER = """
        import copy
        import torch
        import torch.nn.functional as F
        from torch import nn
        from torch.utils.data import DataLoader, StackDataset, TensorDataset

        torch.set_num_threads(1)
        torch.manual_seed(2)

        def network(width):
            return nn.Sequential(
                nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
                nn.MaxPool2d(2), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
                nn.Flatten(), nn.Linear(16 * width, 10),
            )

        X, Y = torch.rand(640, 1, 24, 24), torch.randint(0, 10, (640,))
        dataset = TensorDataset(X, Y)
        teacher, student = network(48).eval().requires_grad_(False), network(16)
        optimizer = torch.optim.SGD(student.parameters(), lr=0.01)

        def distilled(outputs, wanted, y):
            soft = F.kl_div(F.log_softmax(outputs / 2, 1), F.softmax(wanted / 2, 1), reduction="batchmean")
            return 4 * soft + F.cross_entropy(outputs, y)
"""
LOADED = """
        loader = DataLoader(dataset, batch_size=32, shuffle=True)
        for epoch in range(6):
            for x, y in loader:
                with torch.no_grad():
                    wanted = teacher(x)
                optimizer.zero_grad()
                distilled(student(x), wanted, y).backward()
                optimizer.step()
"""
AUGMENTED = """
        loader = DataLoader(dataset, batch_size=32, shuffle=True)
        for epoch in range(6):
            for x, y in loader:
                shift = torch.randint(-3, 4, (2,)).tolist()
                x = torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x, x.flip(3)).roll(shift, (2, 3))
                with torch.no_grad():
                    wanted = teacher(x)
                optimizer.zero_grad()
                distilled(student(x), wanted, y).backward()
                optimizer.step()
"""
FOLLOWING = """
        teacher = copy.deepcopy(student).requires_grad_(False)
        loader = DataLoader(dataset, batch_size=32, shuffle=True)
        for epoch in range(6):
            for x, y in loader:
                with torch.no_grad():
                    wanted = teacher(x)
                optimizer.zero_grad()
                distilled(student(x), wanted, y).backward()
                optimizer.step()
                for mine, his in zip(teacher.parameters(), student.parameters()):
                    mine.data.mul_(0.999).add_(his.data, alpha=0.001)
"""
PROBE = """
        import torch
        import torch.nn.functional as F
        from torch import nn

        torch.set_num_threads(1)
        torch.manual_seed(4)
        backbone = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.ReLU())
        backbone.requires_grad_(False)
        head = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 5))
        optimizer = torch.optim.SGD(head.parameters(), lr=0.01)
        X, Y = torch.rand(4096, 256), torch.randint(0, 5, (4096,))
"""

# The cures compute the outputs in the first epoch, as the sick loops do: what lies before the first step is not timed.
CELLS: tuple[Cell, ...] = (
    Cell(
        name="a-teacher-of-the-same-samples",
        klass="compute",
        top=("frozen-recomputed",),
        before=TEACHER,
        sick=LOADED,
        cured="""
        known = torch.zeros(len(X), 10)
        loader = DataLoader(StackDataset(dataset, range(len(X))), batch_size=32, shuffle=True)
        for epoch in range(6):
            for (x, y), at in loader:
                if epoch == 0:
                    with torch.no_grad():
                        known[at] = teacher(x)
                optimizer.zero_grad()
                distilled(student(x), known[at], y).backward()
                optimizer.step()
        """,
    ),
    Cell(
        name="a-probe-on-a-frozen-backbone",
        klass="compute",
        top=("frozen-recomputed",),
        before=PROBE,
        sick="""
        for epoch in range(12):
            for at in torch.randperm(len(X)).split(64):
                loss = F.cross_entropy(head(backbone(X[at])), Y[at])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        cured="""
        features = torch.zeros(len(X), 256)
        for epoch in range(12):
            for at in torch.randperm(len(X)).split(64):
                if epoch == 0:
                    features[at] = backbone(X[at])
                loss = F.cross_entropy(head(features[at]), Y[at])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
    ),
    Cell(
        name="a-teacher-of-augmented-samples",
        klass="compute",
        healthy=True,
        never=("frozen-recomputed", "redundant-forward"),
        before=TEACHER,
        sick=AUGMENTED,
    ),
    Cell(
        name="a-teacher-that-follows-its-student",
        klass="compute",
        healthy=True,
        never=("frozen-recomputed", "redundant-forward"),
        before=TEACHER,
        sick=FOLLOWING,
    ),
)
