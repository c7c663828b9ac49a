# /// truth
# class = "input"
# causes = ["too-many-workers"]
# settings = { num_workers = 0 }
# why = """
# Workers pass rows on that lie in memory: taking them costs less than passing them on. Written before any rule was \
# tried on it."""
# ///

# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
ds = TensorDataset(torch.randn(16000, 20), torch.randn(16000, 1))
net = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 1))
opt = torch.optim.SGD(net.parameters(), lr=1e-2)

# %% diagnosed
loader = DataLoader(ds, batch_size=16, shuffle=True, num_workers=4)
for x, y in loader:
    opt.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    opt.step()
