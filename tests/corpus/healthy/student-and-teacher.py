# /// truth
# class = "compute"
# never = ["heavy-evaluation", "eval-with-gradients"]
# why = "Distillation: a large teacher without gradients runs on every batch. Written before any rule was tried on it."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
ds = TensorDataset(torch.randn(4000, 128), torch.randint(0, 10, (4000,)))
loader = DataLoader(ds, batch_size=None, sampler=BatchSampler(RandomSampler(ds), 64, True))
teacher = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
teacher.eval().requires_grad_(False)
student = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 10))
opt = torch.optim.SGD(student.parameters(), lr=0.05)
T = 4.0

# %% diagnosed
for epoch in range(3):
    for x, y in loader:
        with torch.no_grad():
            soft = (teacher(x) / T).softmax(1)
        logits = student(x)
        kd = nn.functional.kl_div((logits / T).log_softmax(1), soft, reduction="batchmean") * T * T
        loss = 0.7 * kd + 0.3 * nn.functional.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
