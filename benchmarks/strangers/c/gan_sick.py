"""Vanilla GAN on 28x28 digits-like blobs, resumable run."""
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

LATENT, BATCH, STEPS, SAVE_EVERY = 100, 32, 150, 1
out_dir = tempfile.TemporaryDirectory()


def make_images(n):
    yy, xx = torch.meshgrid(torch.arange(28.0), torch.arange(28.0), indexing="ij")
    c = 8 + 12 * torch.rand(n, 2, 1, 1)
    r = 2 + 4 * torch.rand(n, 1, 1)
    img = torch.exp(-((xx - c[:, 0]) ** 2 + (yy - c[:, 1]) ** 2) / (2 * r ** 2))
    return (img * 2 - 1).flatten(1)


G = nn.Sequential(
    nn.Linear(LATENT, 256), nn.LeakyReLU(0.2),
    nn.Linear(256, 512), nn.LeakyReLU(0.2),
    nn.Linear(512, 1024), nn.LeakyReLU(0.2),
    nn.Linear(1024, 784), nn.Tanh(),
).to(device)
D = nn.Sequential(
    nn.Linear(784, 512), nn.LeakyReLU(0.2),
    nn.Linear(512, 256), nn.LeakyReLU(0.2),
    nn.Linear(256, 1),
).to(device)
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))


def save_checkpoint(step):
    path = os.path.join(out_dir.name, "last.pt")
    torch.save({
        "step": step,
        "G": G.state_dict(),
        "D": D.state_dict(),
        "opt_g": opt_g.state_dict(),
        "opt_d": opt_d.state_dict(),
    }, path + ".tmp")
    os.replace(path + ".tmp", path)


images = make_images(4000).to(device)
ones = torch.ones(BATCH, 1, device=device)
zeros = torch.zeros(BATCH, 1, device=device)

start = time.time()
for step in range(1, STEPS + 1):
    real = images[torch.randint(len(images), (BATCH,), device=device)]
    fake = G(torch.randn(BATCH, LATENT, device=device))

    d_loss = (F.binary_cross_entropy_with_logits(D(real), ones)
              + F.binary_cross_entropy_with_logits(D(fake.detach()), zeros))
    opt_d.zero_grad(set_to_none=True)
    d_loss.backward()
    opt_d.step()

    D.requires_grad_(False)
    g_loss = F.binary_cross_entropy_with_logits(D(fake), ones)
    opt_g.zero_grad(set_to_none=True)
    g_loss.backward()
    opt_g.step()
    D.requires_grad_(True)

    if step % 25 == 0:
        print(f"step {step}: d {d_loss.item():.4f} g {g_loss.item():.4f}")
    if step % SAVE_EVERY == 0:
        save_checkpoint(step)
print(f"train time {time.time() - start:.2f}s")
