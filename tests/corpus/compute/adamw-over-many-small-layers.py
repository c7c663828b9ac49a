# /// truth
# class = "compute"
# causes = ["unfused-optimizer"]
# settings = { fused_optimizer = true }
# why = "AdamW updates many small tensors one by one. Written before any rule was tried on it."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(3)
N = 120
images, labels = torch.randn(N * 32, 256), torch.randint(0, 5, (N * 32,))
dataset = TensorDataset(images, labels)
train_dl = DataLoader(dataset, batch_size=None, sampler=BatchSampler(RandomSampler(dataset), 32, True))


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(d), nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(self.norm(x))))


net = nn.Sequential(nn.Linear(256, 64), *[Block(64) for _ in range(16)], nn.Linear(64, 5))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1)
ce = nn.CrossEntropyLoss()

# %% diagnosed
for x, y in train_dl:
    loss = ce(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
