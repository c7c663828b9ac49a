"""1-D CNN classifies random windows of recordings kept in one compressed archive."""
import os, tempfile, time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
rng = np.random.default_rng(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
CLIPS, LENGTH, WINDOW, BATCH, EPOCHS = 256, 32_000, 4096, 32, 12

path = os.path.join(tempfile.mkdtemp(), "recordings.npz")
labels = np.arange(CLIPS) % 4
tt = np.arange(LENGTH) / 16_000
wave = np.sin(2 * np.pi * (200 + 150 * labels[:, None]) * tt) * 8000 + rng.integers(-2000, 2000, (CLIPS, LENGTH))
np.savez_compressed(path, wave=wave.astype(np.int16), labels=labels)
del wave


class Windows(Dataset):
    def __init__(self, path):
        self.path = path
        self.wave = None

    def __len__(self):
        return CLIPS

    def __getitem__(self, i):
        if self.wave is None:  # opened inside the worker
            with np.load(self.path) as z:
                self.wave, self.labels = z["wave"], z["labels"]
        s = int(torch.randint(0, LENGTH - WINDOW, (1,)))
        x = self.wave[i, s:s + WINDOW].astype(np.float32) / 32768
        return torch.from_numpy(x)[None], int(self.labels[i])


loader = DataLoader(Windows(path), batch_size=BATCH, shuffle=True, num_workers=2, pin_memory=device == "cuda")
model = nn.Sequential(
    nn.Conv1d(1, 16, 64, 8), nn.BatchNorm1d(16), nn.ReLU(),
    nn.Conv1d(16, 32, 8, 4), nn.BatchNorm1d(32), nn.ReLU(),
    nn.Conv1d(32, 64, 4, 2), nn.BatchNorm1d(64), nn.ReLU(),
    nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 4)).to(device)
opt = torch.optim.AdamW(model.parameters(), 1e-3)

t0 = time.time()
for epoch in range(EPOCHS):
    total = torch.zeros((), device=device)
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.detach()
    print(f"epoch {epoch} loss {total.item() / len(loader):.4f}")
print(f"training took {time.time() - t0:.2f}s")
