# Denoising autoencoder on sensor windows
import time
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import TensorDataset, DataLoader, BatchSampler, RandomSampler, SequentialSampler

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

n, length = 6144, 512
t = torch.linspace(0, 1, length)
freq = torch.rand(n, 3, 1) * 20 + 1
amp = torch.rand(n, 3, 1)
signals = (amp * torch.sin(2 * torch.pi * freq * t)).sum(1)
train_set, val_set = TensorDataset(signals[:5632]), TensorDataset(signals[5632:])


def make_loader(ds, batch_size, shuffle):
    # in-memory tensors: index a whole batch at once instead of collating rows
    sampler = RandomSampler(ds) if shuffle else SequentialSampler(ds)
    return DataLoader(ds, sampler=BatchSampler(sampler, batch_size, drop_last=shuffle), batch_size=None,
                      pin_memory=torch.cuda.is_available())


train_loader, val_loader = make_loader(train_set, 256, True), make_loader(val_set, 512, False)


class DenoisingAE(nn.Module):
    def __init__(self, hidden=1024, code=128):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(length, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                     nn.Linear(hidden, code))
        self.decoder = nn.Sequential(nn.Linear(code, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                     nn.Linear(hidden, length))

    def forward(self, x):
        return self.decoder(self.encoder(x))


model = DenoisingAE().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
epochs = 5
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=epochs * len(train_loader))


@torch.inference_mode()
def evaluate():
    model.eval()
    total = torch.zeros((), device=device)
    for (x,) in val_loader:
        x = x.to(device, non_blocking=True)
        total += F.mse_loss(model(x), x, reduction="sum")
    return total.item() / (len(val_set) * length)


start = time.time()
for epoch in range(1, epochs + 1):
    model.train()
    train_loss = torch.zeros((), device=device)
    for (x,) in train_loader:
        x = x.to(device, non_blocking=True)
        noisy = x + 0.2 * torch.randn_like(x)
        loss = F.mse_loss(model(noisy), x)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        train_loss += loss.detach()
    print(f"epoch {epoch}: train mse {train_loss.item() / len(train_loader):.4f}  val mse {evaluate():.4f}")
print(f"done in {time.time() - start:.2f}s")
