"""Keyword spotting on log-spectrograms of synthetic tones."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
rng = np.random.default_rng(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

CLIPS, CLASSES, SR, NFFT, HOP = 320, 6, 8000, 256, 128
BATCH, EPOCHS = 16, 6


def log_spec(wave):
    frames = np.lib.stride_tricks.sliding_window_view(wave, NFFT)[::HOP] * np.hanning(NFFT)
    mag = np.abs(np.fft.rfft(frames, axis=1)).T[:64]
    return np.log(mag + 1e-6)


class Keywords(Dataset):
    def __init__(self):
        t = np.arange(SR) / SR
        self.labels = rng.integers(0, CLASSES, CLIPS)
        specs = []
        for c in self.labels:
            f = 300 + 250 * c + rng.normal(0, 15)
            wave = np.sin(2 * np.pi * f * t + 3 * np.sin(2 * np.pi * 5 * t)) + rng.normal(0, 0.8, SR)
            specs.append(log_spec(wave))
        specs = np.stack(specs)
        self.specs = (specs - specs.mean()) / specs.std()

    def __len__(self):
        return CLIPS

    def __getitem__(self, i):
        return torch.from_numpy(self.specs[i]), int(self.labels[i])


class KWS(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(64, 96, 5, padding=2), nn.BatchNorm1d(96), nn.ReLU(),
            nn.Conv1d(96, 128, 5, padding=2), nn.BatchNorm1d(128), nn.ReLU(),
            nn.Conv1d(128, 128, 5, padding=2), nn.BatchNorm1d(128), nn.ReLU(),
        )
        self.fc = nn.Linear(128, CLASSES)

    def forward(self, x):
        return self.fc(self.net(x).mean(-1))


loader = DataLoader(Keywords(), batch_size=BATCH, shuffle=True, pin_memory=(device == "cuda"))
model = KWS().double().to(device)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)

start = time.time()
for epoch in range(EPOCHS):
    running = torch.zeros((), device=device)
    for spec, label in loader:
        spec, label = spec.to(device, non_blocking=True), label.to(device, non_blocking=True)
        loss = F.cross_entropy(model(spec), label)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        running += loss.detach()
    print(f"epoch {epoch}: loss {running.item() / len(loader):.4f}")
print(f"train time {time.time() - start:.2f}s")
