# /// truth
# class = "input"
# causes = ["slow-collate", "loader-without-workers"]
# most_workers = 2
# holdout = true
# why = "The collate function parses the JSON lines of its batch. Written before any rule was tried on it."
# ///

# %%
import json
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

torch.set_num_threads(1)
random.seed(1)
lines = [
    json.dumps(
        {
            "id": i,
            "tokens": [random.randrange(1, 800) for _ in range(random.randrange(40, 120))],
            "meta": {"tags": ["a", "b", "c"] * 10},
            "label": i % 4,
        }
    )
    for i in range(2400)
]


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

# %% diagnosed
loader = DataLoader(lines, batch_size=16, shuffle=True, collate_fn=collate)
model.train()
for batch in loader:
    optim.zero_grad()
    logits = model(batch["tokens"], batch["mask"])
    loss = nn.functional.cross_entropy(logits, batch["labels"])
    loss.backward()
    optim.step()
