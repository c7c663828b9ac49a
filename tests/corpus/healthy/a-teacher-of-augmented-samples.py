# /// truth
# class = "compute"
# never = ["frozen-recomputed", "redundant-forward"]
# why = "The teacher sees other samples in every epoch, for they are augmented."
# ///

# %%
import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, StackDataset, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(2)


def network(width):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(16 * width, 10),
    )


X, Y = torch.rand(640, 1, 24, 24), torch.randint(0, 10, (640,))
dataset = TensorDataset(X, Y)
teacher, student = network(48).eval().requires_grad_(False), network(16)
optimizer = torch.optim.SGD(student.parameters(), lr=0.01)


def distilled(outputs, wanted, y):
    soft = F.kl_div(F.log_softmax(outputs / 2, 1), F.softmax(wanted / 2, 1), reduction="batchmean")
    return 4 * soft + F.cross_entropy(outputs, y)


# %% diagnosed
loader = DataLoader(dataset, batch_size=32, shuffle=True)
for epoch in range(6):
    for x, y in loader:
        shift = torch.randint(-3, 4, (2,)).tolist()
        x = torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x, x.flip(3)).roll(shift, (2, 3))
        with torch.no_grad():
            wanted = teacher(x)
        optimizer.zero_grad()
        distilled(student(x), wanted, y).backward()
        optimizer.step()
