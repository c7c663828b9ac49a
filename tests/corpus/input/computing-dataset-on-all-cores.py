# /// truth
# class = "input"
# causes = ["slow-getitem"]
# never = ["too-few-workers"]
# most_workers = 2
# why = """
# Two workers on two cores compute the same few spectrograms again and again: more workers would not help, a cache \
# does."""
# ///

# %%
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
signals = np.random.default_rng(0).normal(size=(64, 8192))


def spectrogram(wave):
    frames = np.lib.stride_tricks.sliding_window_view(wave, 256)[::64] * np.hanning(256)
    return np.log1p(np.abs(np.fft.rfft(frames, axis=1))).astype(np.float32)


class Speech(Dataset):
    def __len__(self):
        return 16 * 110

    def __getitem__(self, i):
        return torch.from_numpy(spectrogram(signals[i % 64])).mean(0), i % 5


model = nn.Sequential(nn.Linear(129, 64), nn.ReLU(), nn.Linear(64, 5))
optimizer = torch.optim.Adam(model.parameters())

# %% diagnosed
loader = DataLoader(Speech(), batch_size=16, num_workers=2)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
