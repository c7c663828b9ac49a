"""Makes the recording of this folder: `python notebooks/recordings/make.py`, on a machine that does little else.

It is what `gpu_doctor.replay` shows where there is no loop: a small training of images that lie on a slow drive, half a
minute on a CPU.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Final

import gpu_doctor

HERE: Final = Path(__file__).parent
MACHINE: Final = "a virtual machine with two cores"
"""What the recording calls it."""
CELL: Final = """import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ImagesOnADrive(Dataset):
    def __init__(self, samples, size=64):
        numbers = np.random.default_rng(0)
        self.size = size
        self.labels = numbers.integers(0, 10, samples)
        tiles = [np.kron(numbers.integers(0, 255, (8, 8, 3)), np.ones((8, 8, 1))) for _ in range(samples)]
        self.images = [zlib.compress(one.astype(np.uint8).tobytes(), 9) for one in tiles]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        time.sleep(0.002)  # stands for reading the file from a network drive
        pixels = np.frombuffer(zlib.decompress(self.images[index]), np.uint8)
        image = pixels.reshape(self.size, self.size, 3).astype(np.float32) / 255
        if np.random.random() < 0.5:
            image = image[:, ::-1]
        return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))), int(self.labels[index])


torch.manual_seed(0)
torch.set_num_threads(1)  # for so small a model
train_loader = DataLoader(ImagesOnADrive(3200), batch_size=32, shuffle=True)
test_loader = DataLoader(ImagesOnADrive(320), batch_size=32)
layers = nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten()
model = nn.Sequential(*layers, nn.Linear(1568, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(3):
    model.train()
    for images, labels in train_loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in test_loader)
"""


def main() -> None:
    """Runs the cell once, watched, and saves what it left."""
    namespace: dict[str, Any] = {}
    recording = gpu_doctor.case(CELL, namespace).run()
    setup = dataclasses.replace(recording.setup, host=MACHINE)
    saved = dataclasses.replace(recording, name="images on a CPU", setup=setup).save(HERE / "images-on-a-cpu.npz")
    size = saved.stat().st_size
    assert size < 100_000, size


if __name__ == "__main__":
    main()
