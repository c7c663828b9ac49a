# /// truth
# class = "compute"
# never = ["loader-without-workers", "too-few-workers", "slow-getitem", "slow-collate", "uneven-batches"]
# why = "A worker augments images while the model computes."
# ///

# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Augmented(Dataset):
    def __init__(self, n):
        self.images, self.labels = torch.rand(n, 3, 32, 32), torch.randint(0, 10, (n,))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = F.pad(self.images[i], (4, 4, 4, 4))
        top, left = torch.randint(0, 9, (2,)).tolist()
        image = image[:, top : top + 32, left : left + 32]
        return image.flip(2) if torch.rand(()) < 0.5 else image, self.labels[i]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)
        self.fc = nn.Linear(32 * 8 * 8, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.c2(x)), 2)
        return self.fc(x.flatten(1))


# %% diagnosed
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = Net().to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
sched = torch.optim.lr_scheduler.StepLR(opt, 1, 0.9)
trainloader = DataLoader(Augmented(16 * 80), batch_size=16, shuffle=True, num_workers=1)
for data in trainloader:
    inputs, labels = data[0].to(device), data[1].to(device)
    opt.zero_grad()
    outputs = net(inputs)
    loss = F.cross_entropy(outputs, labels)
    loss.backward()
    opt.step()
sched.step()
