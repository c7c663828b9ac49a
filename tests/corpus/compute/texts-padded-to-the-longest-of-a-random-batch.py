# /// truth
# class = "compute"
# causes = ["wasted-padding"]
# holdout = true
# why = "Batches are drawn at random, so that most texts are padded to a longer one."
# ///

# %%
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

torch.set_num_threads(1)
random.seed(3)
width, vocabulary, longest = 64, 500, 192


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 4)

    def forward(self, input_ids, attention_mask):
        x = self.words(input_ids) + self.places.weight[: input_ids.shape[1]]
        x = self.encoder(x, src_key_padding_mask=attention_mask == 0)
        weights = attention_mask[:, :, None].float()
        return self.head((x * weights).sum(1) / weights.sum(1))


lengths = [random.randint(10, 70) for _ in range(800)]
texts = [(torch.randint(0, vocabulary, (n,)), n % 4) for n in lengths]


def batch_of(items, length):
    ids = torch.zeros(len(items), length, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, (text, _) in enumerate(items):
        ids[row, : len(text)], mask[row, : len(text)] = text, 1
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([y for _, y in items])}


model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

# %% diagnosed
collate = lambda items: batch_of(items, max(len(text) for text, _ in items))

loader = DataLoader(texts, batch_size=16, shuffle=True, collate_fn=collate)

for batch in loader:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(batch["input_ids"], batch["attention_mask"]), batch["labels"])
    loss.backward()
    optimizer.step()
