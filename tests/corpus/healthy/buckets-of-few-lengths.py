# /// truth
# class = "compute"
# never = ["changing-shapes"]
# why = "Batches have one of ten lengths, and each is met often."
# ///

# %%
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
LENGTHS = [16, 24, 32, 48, 64, 96, 128, 192, 256, 384]


class Texts(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, length):
        return torch.randint(0, 100, (length,))


class Budget:
    # as many tokens in every batch, and long texts are rare
    def __iter__(self):
        dice = random.Random(1)
        for _ in range(150):
            length = LENGTHS[min(int(dice.expovariate(0.5)), 9)]
            yield [length] * (3072 // length)

    def __len__(self):
        return 150


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(100, 48)
        self.layer = nn.TransformerEncoderLayer(48, 2, 96, batch_first=True, dropout=0.0)
        self.out = nn.Linear(48, 4)

    def forward(self, x):
        return self.out(self.layer(self.words(x)).mean(1))


model = Reader()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

# %% diagnosed
loader = DataLoader(Texts(), batch_sampler=Budget())
for x in loader:
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
