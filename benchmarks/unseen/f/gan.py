# /// truth
# class = ["host", "compute"]
# causes = ["loss-in-a-loop"]
# timed = "whole"
# unseen = true
# author_class = "host"
# author_gain = 4.1
# why = """\
# The WGAN gradient penalty calls autograd.grad once per sample in a Python loop (each a create_graph backward \
# pass through the whole batch), keeping one row each time."""
# cure = "One autograd.grad call on the sum of the critic's scores gives all per-sample gradients at once."
# ///

# %% diagnosed
"""WGAN-GP on little synthetic blobs (20x20 grey images)."""

import time

import torch
import torch.nn as nn

device = "cuda" if torch.cuda.is_available() else "cpu"

SIZE = 20
LATENT = 64
BATCH = 32
N_CRITIC = 2
ITERATIONS = 300
LAMBDA_GP = 10.0


def make_blobs(n, generator):
    """Two gaussian bumps at random places, values in [-1, 1]."""
    grid = torch.linspace(-1, 1, SIZE)
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    centres = torch.rand(n, 2, 2, generator=generator) * 1.4 - 0.7
    widths = torch.rand(n, 2, generator=generator) * 0.15 + 0.1
    images = torch.zeros(n, SIZE, SIZE)
    for k in range(2):
        d2 = (yy - centres[:, k, 0, None, None]) ** 2 + (xx - centres[:, k, 1, None, None]) ** 2
        images += torch.exp(-d2 / (2 * widths[:, k, None, None] ** 2))
    return (images.clamp(0, 1) * 2 - 1).flatten(1)


class Generator(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(LATENT, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, SIZE * SIZE),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(SIZE * SIZE, hidden),
            nn.LeakyReLU(0.2),
            nn.Linear(hidden, hidden),
            nn.LeakyReLU(0.2),
            nn.Linear(hidden, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def gradient_penalty(critic, real, fake):
    eps = torch.rand(real.shape[0], 1, device=real.device)
    mixed = (eps * real + (1 - eps) * fake).requires_grad_(True)
    scores = critic(mixed)
    # norm of d score / d input for each of the interpolated images
    norms = []
    for i in range(mixed.shape[0]):
        (grad,) = torch.autograd.grad(scores[i], mixed, create_graph=True)
        norms.append(grad[i].norm(2))
    return ((torch.stack(norms) - 1) ** 2).mean()


def critic_step(generator, critic, optimizer, real):
    with torch.no_grad():
        fake = generator(torch.randn(real.shape[0], LATENT, device=device))
    wasserstein = critic(real).mean() - critic(fake).mean()
    loss = -wasserstein + LAMBDA_GP * gradient_penalty(critic, real, fake)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return wasserstein.detach()


def generator_step(generator, critic, optimizer):
    critic.requires_grad_(False)
    loss = -critic(generator(torch.randn(BATCH, LATENT, device=device))).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    critic.requires_grad_(True)
    return loss.detach()


def main():
    torch.manual_seed(0)
    data = make_blobs(8192, torch.Generator().manual_seed(1)).to(device)
    generator, critic = Generator().to(device), Critic().to(device)
    opt_g = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))

    seen = 0
    start = time.perf_counter()
    for it in range(ITERATIONS):
        for _ in range(N_CRITIC):
            real = data[torch.randint(len(data), (BATCH,), device=device)]
            w = critic_step(generator, critic, opt_c, real)
            seen += BATCH
        g = generator_step(generator, critic, opt_g)
        if it % 20 == 0 or it == ITERATIONS - 1:
            print(f"iter {it:4d}  wasserstein loss {w.item():.4f}  generator loss {g.item():.4f}")
    elapsed = time.perf_counter() - start
    print(f"steps={ITERATIONS} seconds={elapsed:.2f}")
    print(f"samples_per_s={seen / elapsed:.1f}")


if __name__ == "__main__":
    main()
