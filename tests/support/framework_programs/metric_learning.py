"""A loop of one's own with a loss and a miner of pytorch-metric-learning, as its manual shows it."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from tests.support.programs import Net, Plan, Slow

distances = importlib.import_module("pytorch_metric_learning.distances")
losses = importlib.import_module("pytorch_metric_learning.losses")
miners = importlib.import_module("pytorch_metric_learning.miners")


def embeddings_of(model: torch.nn.Module, held_out: Any) -> torch.Tensor:
    """Embeddings of all held-out samples."""
    model.eval()
    with torch.no_grad():
        found = torch.cat([model(x) for x, _ in held_out])
    model.train()
    return found


def program(plan: Plan) -> torch.nn.Module:
    """Everything in one function."""
    torch.manual_seed(3)
    model = Net(plan.hand)
    optimizer = Slow(model.parameters(), plan.hand)
    mined, loss_of, distance = miners.MultiSimilarityMiner(), losses.ContrastiveLoss(), distances.CosineSimilarity()
    loader, held_out = plan.loader(), plan.held_out()
    for _ in range(plan.epochs):
        for number, (x, y) in enumerate(loader, 1):
            embeddings = model(x)
            loss_of(embeddings, y, mined(embeddings, y)).backward()
            if number % plan.every == 0 or number == len(loader):
                optimizer.step()
                optimizer.zero_grad()
        with plan.hand.evaluation():
            distance(embeddings_of(model, held_out))
    return model
