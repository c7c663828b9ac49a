# /// truth
# class = "compute"
# causes = ["recompiles"]
# never = ["debug-mode-on", "changing-shapes"]
# why = "The compiled forward reads the epoch's number, so that it is compiled anew in each epoch."
# ///

# %%
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class Scheduled(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
        self.epoch = 0
        self.register_buffer("weight", torch.tensor(1.0))

    def forward(self, x):
        return self.body(x) / (1 + self.epoch) * self.weight


net = Scheduled()
net.compile(backend="aot_eager")
opt = torch.optim.SGD(net.parameters(), 1e-3)
data = torch.randn(64, 128, 64)

# %% diagnosed
for epoch in range(8):
    net.epoch = epoch
    for x in data:
        loss = (net(x) - x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
