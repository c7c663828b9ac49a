# /// truth
# class = "compute"
# never = ["python-in-forward"]
# why = "Masks and tables that depend on the batch or on a parameter, and thus are new each time."
# ///

# %%
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.levels = 10
        self.embed = nn.Embedding(500, 128)
        self.frequencies = nn.Parameter(torch.randn(64))
        self.body = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 128))
        self.head = nn.Linear(128, self.levels)

    def positions(self, n):
        angles = torch.arange(n)[:, None] * self.frequencies.exp()
        return torch.cat((angles.sin(), angles.cos()), 1)

    def mask(self, lengths, n):
        return torch.tensor([[i < length for i in range(n)] for length in lengths.tolist()])

    def forward(self, tokens, lengths):
        n = tokens.size(1)
        h = self.embed(tokens) + self.positions(n)
        h = h * (self.mask(lengths, n) & (torch.rand(n) < 0.9))[..., None]
        return self.head(self.body(h).mean(1)) + 0.1 * torch.arange(self.levels)


model = Reader()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
ends = [40 + step % 24 for step in range(160)]
batches = [(torch.randint(0, 500, (16, n)), torch.randint(n - 2, n + 1, (16,))) for n in ends]
Y = torch.randint(0, 10, (160, 16))

# %% diagnosed
for (tokens, lengths), y in zip(batches, Y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(tokens, lengths), y)
    loss.backward()
    optimizer.step()
