# /// truth
# class = "compute"
# never = ["loader-without-workers", "too-few-workers", "slow-getitem", "slow-collate", "uneven-batches", "slow-python"]
# why = "Two models and two optimizers take turns."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
X, Y = torch.randn(3840, 784), torch.randint(0, 10, (3840,))
train = TensorDataset(X, Y)
loader = DataLoader(train, batch_size=None, sampler=BatchSampler(RandomSampler(train), 64, True))
model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.CrossEntropyLoss()

maker = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 784), nn.Tanh())
judge = nn.Sequential(nn.Linear(784, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1))
opt_g = torch.optim.SGD(maker.parameters(), lr=2e-4)
opt_d = torch.optim.SGD(judge.parameters(), lr=2e-4)
bce = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)

# %% diagnosed
for real, _ in loader:
    fake = maker(torch.randn(64, 64))
    opt_d.zero_grad()
    loss_d = bce(judge(real), ones) + bce(judge(fake.detach()), zeros)
    loss_d.backward()
    opt_d.step()

    opt_g.zero_grad()
    loss_g = bce(judge(fake), ones)
    loss_g.backward()
    opt_g.step()
