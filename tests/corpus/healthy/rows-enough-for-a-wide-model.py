# /// truth
# class = "compute"
# never = ["launch-bound"]
# why = "Batches large enough for the model, whose operations compute."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)

LENGTH = 2400
rows = TensorDataset(torch.randn(LENGTH, 32), torch.randint(0, 4, (LENGTH,)))


class Tabular(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.first = nn.Linear(32, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
            for _ in range(depth)
        )
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


lossf = nn.CrossEntropyLoss()
model = Tabular(512, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.01)

# %% diagnosed
loader = DataLoader(rows, batch_size=16, shuffle=True)
for x, y in loader:
    opt.zero_grad()
    loss = lossf(model(x), y)
    loss.backward()
    opt.step()
