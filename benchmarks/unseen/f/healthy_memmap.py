# /// truth
# class = "compute"
# timed = "whole"
# unseen = true
# why = """\
# No loader workers, memory-mapped file, micro-batch accumulation, a Python loop and periodic checkpoints all look \
# suspicious, but whole batches are read in one vectorised slice, the micro-batches are large, metrics are read \
# out rarely and checkpoints are small and rare: nearly all the time is necessary forward/backward compute."""
# ///

# %% diagnosed
"""Event classifier on a memory-mapped recording, big batches by gradient accumulation."""

import copy
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
CHANNELS, WINDOW, CLASSES = 16, 96, 6


def record(path, windows, seed=0):
    """Writes (windows, CHANNELS, WINDOW) float32; the class sets the rhythm of each window."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, size=windows)
    out = np.memmap(path, dtype=np.float32, mode="w+", shape=(windows, CHANNELS, WINDOW))
    t = np.arange(WINDOW, dtype=np.float32)
    for lo in range(0, windows, 1024):
        y = labels[lo : lo + 1024, None, None]
        phase = rng.uniform(0, 6.28, size=(len(y), CHANNELS, 1))
        out[lo : lo + 1024] = np.sin(t * (0.2 + 0.12 * y) + phase) + rng.normal(0, 1, size=(len(y), CHANNELS, WINDOW))
    out.flush()
    return labels


class BlockReader:
    """Random blocks of consecutive windows, copied straight from the map."""

    def __init__(self, path, labels, micro, rng):
        self.map = np.memmap(path, dtype=np.float32, mode="r", shape=(len(labels), CHANNELS, WINDOW))
        self.labels, self.micro, self.rng = torch.from_numpy(labels), micro, rng

    def __iter__(self):
        for block in self.rng.permutation(len(self.labels) // self.micro):
            part = slice(block * self.micro, (block + 1) * self.micro)
            yield torch.from_numpy(np.array(self.map[part])).to(device), self.labels[part].to(device)


class TimeNet(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(CHANNELS, width, 7, padding=3),
            nn.GroupNorm(8, width),
            nn.GELU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.GroupNorm(8, width),
            nn.GELU(),
            nn.Conv1d(width, 2 * width, 5, stride=2, padding=2),
            nn.GroupNorm(8, 2 * width),
            nn.GELU(),
        )
        self.head = nn.Linear(2 * width, CLASSES)

    def forward(self, x):
        return self.head(self.body(x).mean(2))


def main(micro=64, accumulate=4, epochs=3, windows=8192):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "recording.f32")
        reader = BlockReader(path, record(path, windows), micro, np.random.default_rng(1))
        model = TimeNet().to(device)
        average = copy.deepcopy(model).requires_grad_(False)
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

        seen = step = micro_step = 0
        running = torch.zeros((), device=device)
        start = time.perf_counter()
        for epoch in range(epochs):
            for x, y in reader:
                loss = F.cross_entropy(model(x), y)
                (loss / accumulate).backward()
                running += loss.detach()
                seen += len(y)
                micro_step += 1
                if micro_step % accumulate:
                    continue
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                step += 1
                with torch.no_grad():
                    for slow, fast in zip(average.parameters(), model.parameters()):
                        slow.lerp_(fast, 0.05)
                if step % 20 == 0:
                    print(f"epoch {epoch} step {step} loss {running.item() / (20 * accumulate):.4f}")
                    running.zero_()
            torch.save(average.state_dict(), os.path.join(folder, f"epoch{epoch}.pt"))
        elapsed = time.perf_counter() - start
        del reader
    print(f"steps={step} seconds={elapsed:.2f}")
    print(f"samples_per_s={seen / elapsed:.1f}")


if __name__ == "__main__":
    main()
