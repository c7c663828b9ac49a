# /// truth
# class = "compute"
# why = "A gradient penalty takes a second backward, as its method needs it. Written before any rule was tried on it."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

torch.set_num_threads(1)
torch.manual_seed(0)
act = nn.LeakyReLU(0.2)
D = nn.Sequential(nn.Linear(64, 256), act, nn.Linear(256, 256), act, nn.Linear(256, 1))
G = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 64))
opt_d = torch.optim.Adam(D.parameters(), 1e-4, fused=True)
opt_g = torch.optim.Adam(G.parameters(), 1e-4, fused=True)
rows = torch.randn(8000, 64)
loader = DataLoader(rows, batch_size=None, sampler=BatchSampler(RandomSampler(rows), 64, True))


def penalty(D, real, fake):
    a = torch.rand(len(real), 1)
    mix = (a * real + (1 - a) * fake).requires_grad_(True)
    grad = torch.autograd.grad(D(mix).sum(), mix, create_graph=True)[0]
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


# %% diagnosed
for i, x in enumerate(loader):
    fake = G(torch.randn(len(x), 16)).detach()
    loss_d = D(fake).mean() - D(x).mean() + 10 * penalty(D, x, fake)
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()
    if i % 5 == 0:
        loss_g = -D(G(torch.randn(len(x), 16))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
