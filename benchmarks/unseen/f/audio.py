# /// truth
# class = "compute"
# causes = ["augmentation-in-loop"]
# timed = "whole"
# unseen = true
# author_class = "compute"
# author_gain = 3.0
# why = """\
# The reverb augmentation convolves the waveforms with long room impulse responses by direct time-domain conv1d \
# (thousands of taps)."""
# cure = "Do the same convolution by FFT."
# ///

# %% diagnosed
"""Keyword spotting on synthetic utterances with reverb and noise augmentation."""

import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
RATE = 16000
CLASSES = 12


def make_utterances(n, seconds=1.0, seed=0):
    """Each class is a short melody of three notes with a few overtones."""
    g = torch.Generator().manual_seed(seed)
    length = int(RATE * seconds)
    notes = 150 + 600 * torch.rand(CLASSES, 3, generator=g)
    labels = torch.randint(CLASSES, (n,), generator=g)
    t = torch.arange(length) / RATE
    part = (torch.arange(length) * 3 // length).expand(n, -1)
    pitch = notes[labels] * (1 + 0.04 * torch.randn(n, 1, generator=g))
    phase = 2 * math.pi * pitch.gather(1, part) * t
    waves = sum(torch.sin(k * phase) / k for k in (1, 2, 3))
    return 0.3 * waves, labels


def make_room_responses(n, taps, seed=1):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(taps) / RATE
    decay = 3 + 25 * torch.rand(n, 1, generator=g)
    rirs = torch.randn(n, taps, generator=g) * torch.exp(-decay * t) * 0.1
    rirs[:, 0] = 1.0
    return rirs / rirs.norm(dim=1, keepdim=True)


class Augment(nn.Module):
    """A random room for each utterance, then white noise at 5 to 25 dB."""

    def __init__(self, rirs):
        super().__init__()
        self.register_buffer("rirs", rirs)

    def reverb(self, wave, rir):
        kernel = rir.flip(1).unsqueeze(1)
        padded = F.pad(wave, (rir.shape[1] - 1, 0)).unsqueeze(0)
        return F.conv1d(padded, kernel, groups=wave.shape[0]).squeeze(0)

    @torch.no_grad()
    def forward(self, wave):
        rir = self.rirs[torch.randint(len(self.rirs), (wave.shape[0],), device=wave.device)]
        wet = self.reverb(wave, rir)
        snr = 5 + 20 * torch.rand(wave.shape[0], 1, device=wave.device)
        level = wet.pow(2).mean(1, keepdim=True).sqrt() * 10 ** (-snr / 20)
        return wet + level * torch.randn_like(wet)


class LogMel(nn.Module):
    def __init__(self, n_fft=512, hop=160, n_mels=40):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))
        top = 2595 * math.log10(1 + RATE / 2 / 700)
        edges = 700 * (10 ** (torch.linspace(0, top, n_mels + 2) / 2595) - 1)
        freqs = torch.linspace(0, RATE / 2, n_fft // 2 + 1)[:, None]
        up = (freqs - edges[:-2]) / (edges[1:-1] - edges[:-2])
        down = (edges[2:] - freqs) / (edges[2:] - edges[1:-1])
        self.register_buffer("mel", torch.minimum(up, down).clamp(min=0).T)

    def forward(self, wave):
        spec = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True)
        return (self.mel @ spec.abs().pow(2) + 1e-6).log()


class Spotter(nn.Module):
    def __init__(self, n_mels=40, width=96):
        super().__init__()
        self.norm = nn.BatchNorm1d(n_mels)
        layers, cin = [], n_mels
        for dilation in (1, 2, 4):
            layers += [
                nn.Conv1d(cin, width, 5, padding=2 * dilation, dilation=dilation),
                nn.BatchNorm1d(width),
                nn.ReLU(),
            ]
            cin = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, feats):
        return self.head(self.body(self.norm(feats)).mean(2))


def main(steps=160, batch=16):
    torch.manual_seed(0)
    waves, labels = (t.to(device) for t in make_utterances(2000))
    augment = Augment(make_room_responses(64, taps=8000)).to(device)
    features, model = LogMel().to(device), Spotter().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    start = time.perf_counter()
    for step in range(steps):
        pick = torch.randint(len(waves), (batch,), device=device)
        with torch.no_grad():
            feats = features(augment(waves[pick]))
        loss = F.cross_entropy(model(feats), labels[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0 or step == steps - 1:
            print(f"step {step} loss {loss.item():.4f}")
    elapsed = time.perf_counter() - start
    print(f"steps={steps} seconds={elapsed:.2f}")
    print(f"samples_per_s={steps * batch / elapsed:.1f}")


if __name__ == "__main__":
    main()
