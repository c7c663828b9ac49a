"""Patients that compare all pairs of rows in one large tensor, and some that broadcast where no product could do it."""

from tests.support.clinic.cell import Cell

VIEWS = """
        import torch
        import torch.nn.functional as F
        from torch import nn

        torch.set_num_threads(1)
        torch.manual_seed(5)
        views = torch.rand(40, 2, {rows}, 64)
        other = torch.arange(2 * {rows}).roll({rows})
        model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 64))
        prototypes = nn.Parameter(torch.randn(96, 64))
        scores = nn.Linear(64, 1)
        optimizer = torch.optim.SGD([*model.parameters(), *scores.parameters(), prototypes], lr=0.01)
"""
MANY = VIEWS.format(rows=64)
FEW = VIEWS.format(rows=4)
TRAINING = """
        for batch in views:
            z = model(batch.flatten(0, 1))
            {loss}
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
CONTRASTED = (
    "similar = {similar}\n"
    "            similar = similar.masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)\n"
    "            loss = F.cross_entropy(similar / 0.2, other[: len(z)])"
)
COSINES = CONTRASTED.format(similar="F.cosine_similarity(z[:, None], z[None], dim=-1)")
BY_PRODUCT = CONTRASTED.format(similar="F.normalize(z, dim=-1) @ F.normalize(z, dim=-1).T")
SQUARES = "loss = torch.exp(-0.01 * ((z[:, None] - prototypes[None]) ** 2).sum(-1)).mean()"
CDIST = "loss = torch.exp(-0.01 * torch.cdist(z, prototypes).square()).mean()"
PRODUCTS = "loss = F.softmax((z[:, None] * prototypes[None]).sum(-1), -1)[:, 0].mean()"
MATRIX = "loss = F.softmax(z @ prototypes.T, -1)[:, 0].mean()"
ADDED = "loss = scores(torch.tanh(z[:, None] + prototypes[None]))[..., 0].softmax(-1)[:, 0].mean()"


def training(loss: str) -> str:
    """The loop with one of these losses."""
    return TRAINING.format(loss=loss)


CELLS: tuple[Cell, ...] = (
    Cell(
        name="views-with-broadcast-cosines",
        klass="compute",
        top=("broadcast-similarity",),
        before=MANY,
        sick=training(COSINES),
        cured=training(BY_PRODUCT),
    ),
    Cell(
        name="prototypes-with-broadcast-distances",
        klass="compute",
        top=("broadcast-similarity",),
        before=MANY,
        sick=training(SQUARES),
        cured=training(CDIST),
    ),
    Cell(
        name="prototypes-with-broadcast-products",
        klass="compute",
        top=("broadcast-similarity",),
        before=MANY,
        sick=training(PRODUCTS),
        cured=training(MATRIX),
    ),
    Cell(
        name="views-compared-by-a-matrix-product",
        klass="compute",
        healthy=True,
        never=("broadcast-similarity",),
        before=MANY,
        sick=training(BY_PRODUCT),
    ),
    Cell(
        name="few-views-with-broadcast-cosines",
        klass="compute",
        healthy=True,
        never=("broadcast-similarity",),
        before=FEW,
        sick=training(COSINES),
    ),
    Cell(
        name="prototypes-with-additive-attention",
        klass="compute",
        healthy=True,
        never=("broadcast-similarity",),
        before=MANY,
        sick=training(ADDED),
    ),
)
