"""Patients whose loss over many classes is put together by hand, and some whose loss only looks so."""

from tests.support.clinic.cell import Cell

WORDS = """
        import torch
        import torch.nn.functional as F
        from torch import nn

        torch.set_num_threads(1)
        torch.manual_seed(2)
        width, vocabulary, steps = 64, 6000, 40

        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding, self.body = nn.Embedding(vocabulary, width), nn.GRU(width, width, batch_first=True)
                self.head = nn.Linear(width, vocabulary)

            def forward(self, ids):
                return self.head(self.body(self.embedding(ids))[0])

        text = torch.randint(0, vocabulary, (steps, 8, 33))
        teacher = torch.softmax(torch.randn(8, 32, vocabulary), -1)
        model = Words()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
TRAINING = """
        for batch in text:
            logits, y = model(batch[:, :-1]), batch[:, 1:]
            {loss}
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
FUSED = TRAINING.format(loss="loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())")
SMOOTH = TRAINING.format(loss="loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), label_smoothing=0.1)")
ONE_HOT = TRAINING.format(
    loss="loss = -(F.one_hot(y, vocabulary).float() * torch.log(torch.softmax(logits, -1) + 1e-9)).sum(-1).mean()"
)
LOG_SOFTMAX = TRAINING.format(
    loss="loss = -(F.one_hot(y, vocabulary).float() * F.log_softmax(logits, -1)).sum(-1).mean()"
)
GATHERED = TRAINING.format(
    loss="loss = F.nll_loss(torch.log(torch.softmax(logits, -1).clamp(min=1e-9)).flatten(0, 1), y.flatten())"
)
SMOOTHED = TRAINING.format(
    loss="target = 0.9 * F.one_hot(y, vocabulary).float() + 0.1 / vocabulary\n"
    "            loss = -(target * F.log_softmax(logits, -1)).sum(-1).mean()"
)
DISTILLED = TRAINING.format(
    loss="loss = F.kl_div(F.log_softmax(logits, -1).flatten(0, 1), teacher.flatten(0, 1), reduction='batchmean')"
)
SEGMENTS = """
        import torch
        import torch.nn.functional as F
        from torch import nn

        torch.set_num_threads(1)
        images, masks = torch.randn(40, 4, 3, 64, 64), torch.randint(0, 24, (40, 4, 64, 64))
        model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 24, 3, padding=1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""
DICE = """
        for x, y in zip(images, masks):
            p, target = torch.softmax(model(x), 1), F.one_hot(y, 24).permute(0, 3, 1, 2).float()
            loss = 1 - (2 * (p * target).sum((2, 3)) / (p + target).sum((2, 3))).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""

CELLS: tuple[Cell, ...] = (
    Cell(
        name="words-with-one-hot-targets-and-the-log-of-a-softmax",
        klass="compute",
        top=("loss-by-hand",),
        before=WORDS,
        sick=ONE_HOT,
        cured=FUSED,
    ),
    Cell(
        name="words-with-one-hot-targets-and-log-softmax",
        klass="compute",
        top=("loss-by-hand",),
        before=WORDS,
        sick=LOG_SOFTMAX,
        cured=FUSED,
    ),
    Cell(
        name="words-with-the-log-of-a-clamped-softmax",
        klass="compute",
        top=("loss-by-hand",),
        before=WORDS,
        sick=GATHERED,
        cured=FUSED,
    ),
    Cell(
        name="words-with-labels-smoothed-by-hand",
        klass="compute",
        top=("loss-by-hand",),
        before=WORDS,
        sick=SMOOTHED,
        cured=SMOOTH,
    ),
    Cell(
        name="words-with-a-fused-loss",
        klass="compute",
        healthy=True,
        never=("loss-by-hand",),
        before=WORDS,
        sick=FUSED,
    ),
    Cell(
        name="words-of-a-teacher",
        klass="compute",
        healthy=True,
        never=("loss-by-hand",),
        before=WORDS,
        sick=DISTILLED,
    ),
    Cell(
        name="segments-with-a-dice-loss",
        klass="compute",
        healthy=True,
        never=("loss-by-hand",),
        before=SEGMENTS,
        sick=DICE,
    ),
)
