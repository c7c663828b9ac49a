"""Patients that compute logits at positions which their loss leaves out, and some that lose little by it."""

from tests.support.clinic.cell import Cell

WORDS = """
        import torch
        import torch.nn.functional as F
        from torch import nn

        torch.set_num_threads(1)
        torch.manual_seed(3)
        width, vocabulary, steps = 64, {vocabulary}, 40

        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding = nn.Embedding(vocabulary, width)
                self.body = nn.GRU(width, width, num_layers={layers}, batch_first=True)
                self.head = nn.Linear(width, vocabulary)

            def forward(self, ids):
                return self.body(self.embedding(ids))[0]

        text = torch.randint(0, vocabulary, (steps, 8, 32))
        masks = torch.rand(text.shape) < 0.15
        prompts = (torch.arange(32) < torch.randint(20, 28, (steps, 8, 1))).expand(text.shape)
        padding = (torch.arange(32) >= torch.randint(28, 33, (steps, 8, 1))).expand(text.shape)
        model = Words()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LARGE = WORDS.format(vocabulary=6000, layers=1)
SMALL = WORDS.format(vocabulary=60, layers=2)
TRAINING = """
        for batch, left_out in zip(text, {left_out}):
            hidden = model(batch)
            {loss}
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
IGNORED = (
    "labels = batch.masked_fill(left_out, -100)\n"
    "            loss = F.cross_entropy(model.head(hidden).flatten(0, 1), labels.flatten())"
)
MULTIPLIED = (
    "each = F.cross_entropy(model.head(hidden).transpose(1, 2), batch, reduction='none')\n"
    "            loss = (each * ~left_out).sum() / (~left_out).sum()"
)
PICKED_LATE = "loss = F.cross_entropy(model.head(hidden)[~left_out], batch[~left_out])"
PICKED = "loss = F.cross_entropy(model.head(hidden[~left_out]), batch[~left_out])"
LAST = "loss = F.cross_entropy(model.head(hidden)[:, -1], batch[:, -1])"
LAST_ALONE = "loss = F.cross_entropy(model.head(hidden[:, -1]), batch[:, -1])"


def training(left_out: str, loss: str) -> str:
    """The loop with one of these losses."""
    return TRAINING.format(left_out=left_out, loss=loss)


CELLS: tuple[Cell, ...] = (
    Cell(
        name="masked-words-with-ignored-targets",
        klass="compute",
        top=("unused-logits",),
        before=LARGE,
        sick=training("~masks", IGNORED),
        cured=training("~masks", PICKED),
    ),
    Cell(
        name="answers-whose-prompts-are-multiplied-by-zero",
        klass="compute",
        top=("unused-logits",),
        before=LARGE,
        sick=training("prompts", MULTIPLIED),
        cured=training("prompts", PICKED),
    ),
    Cell(
        name="masked-words-picked-from-the-logits",
        klass="compute",
        top=("unused-logits",),
        before=LARGE,
        sick=training("~masks", PICKED_LATE),
        cured=training("~masks", PICKED),
    ),
    Cell(
        name="a-last-word-picked-from-the-logits",
        klass="compute",
        top=("unused-logits",),
        before=LARGE,
        sick=training("masks", LAST),
        cured=training("masks", LAST_ALONE),
    ),
    Cell(
        name="words-of-which-a-few-are-padding",
        klass="compute",
        healthy=True,
        never=("unused-logits",),
        before=LARGE,
        sick=training("padding", IGNORED),
    ),
    Cell(
        name="masked-words-of-a-small-vocabulary",
        klass="compute",
        healthy=True,
        never=("unused-logits",),
        before=SMALL,
        sick=training("~masks", IGNORED),
    ),
    Cell(
        name="masked-words-picked-before-the-logits",
        klass="compute",
        healthy=True,
        never=("unused-logits",),
        before=LARGE,
        sick=training("~masks", PICKED),
    ),
)
