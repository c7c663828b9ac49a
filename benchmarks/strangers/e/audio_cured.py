# Audio tagging on random 1 s crops of long recordings
import time, wave, tempfile
from pathlib import Path
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
rng = np.random.default_rng(0)
SR, CLIP, N_FILES, SECONDS, N_CLASSES = 44100, 44100, 16, 12, 4

folder = Path(tempfile.mkdtemp(prefix="recordings_"))
meta = []
for i in range(N_FILES):
    label = i % N_CLASSES
    t = np.arange(SR * SECONDS, dtype=np.float32) / SR
    tone = np.sin(2 * np.pi * (220 * (label + 1)) * t)
    left = tone * 6000 + rng.standard_normal(t.size, dtype=np.float32) * 2000
    pcm = np.stack([left, left * 0.8], axis=1).astype("<i2")
    path = folder / f"rec_{i:02d}.wav"
    with wave.open(str(path), "wb") as w:
        w.setnchannels(2); w.setsampwidth(2); w.setframerate(SR)
        w.writeframes(pcm.tobytes())
    meta.append((str(path), label))


def pcm_to_mono(raw):
    x = np.frombuffer(raw, dtype="<i2").astype(np.float32) / 32768.0
    return x.reshape(-1, 2).mean(axis=1)


class RecordingDataset(Dataset):
    """each item: a random 1 s crop of one of the recordings"""

    def __init__(self, meta, crops_per_file):
        self.items = meta * crops_per_file

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        path, label = self.items[index]
        with wave.open(path, "rb") as w:
            n = w.getnframes()
            start = int(torch.randint(0, n - CLIP, ()))
            w.setpos(start)
            clip = pcm_to_mono(w.readframes(CLIP))
        return torch.from_numpy(clip), label


class LogSpec(nn.Module):
    def __init__(self, n_fft=1024, hop=512, bands=64):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("win", torch.hann_window(n_fft))
        edges = torch.logspace(1, np.log10(n_fft // 2), bands + 1).long()
        fb = torch.zeros(n_fft // 2 + 1, bands)
        for b in range(bands):
            lo, hi = int(edges[b]), max(int(edges[b]) + 1, int(edges[b + 1]))
            fb[lo:hi, b] = 1.0 / (hi - lo)
        self.register_buffer("fb", fb)

    def forward(self, x):
        spec = torch.stft(x, self.n_fft, self.hop, window=self.win, return_complex=True).abs().pow(2)
        return torch.log(spec.transpose(1, 2) @ self.fb + 1e-6).unsqueeze(1)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.spec = LogSpec()
        self.net = nn.Sequential(
            nn.BatchNorm2d(1), nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32),
            nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, N_CLASSES))

    def forward(self, wav):
        return self.net(self.spec(wav))


loader = DataLoader(RecordingDataset(meta, crops_per_file=32), batch_size=16, shuffle=True, num_workers=2,
                    pin_memory=(device == "cuda"), persistent_workers=True, prefetch_factor=4)
model = Tagger().to(device)
optim = torch.optim.Adam(model.parameters(), lr=2e-3)
loss_fn = nn.CrossEntropyLoss()

begin = time.time()
step = 0
for epoch in range(2):
    for wav, label in loader:
        wav, label = wav.to(device, non_blocking=True), label.to(device, non_blocking=True)
        optim.zero_grad()
        loss = loss_fn(model(wav), label)
        loss.backward()
        optim.step()
        if step % 16 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
        step += 1
print(f"trained {step} steps in {time.time() - begin:.2f}s")
