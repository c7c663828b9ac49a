"""WGAN with weight clipping on 32x32 blobs."""
import time
import torch
import torch.nn as nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
STEPS, BATCH, Z, N_CRITIC = 40, 12, 64, 5

yy, xx = torch.meshgrid(torch.linspace(-1, 1, 32), torch.linspace(-1, 1, 32), indexing="ij")
centre = torch.rand(1024, 2, 1, 1) - 0.5
images = torch.exp(-8 * ((xx - centre[:, :1]) ** 2 + (yy - centre[:, 1:]) ** 2)) * 2 - 1
images = images.expand(-1, 3, -1, -1).contiguous().to(device)


def up(i, o):
    return nn.Sequential(nn.ConvTranspose2d(i, o, 4, 2, 1), nn.BatchNorm2d(o), nn.ReLU())


G = nn.Sequential(nn.Linear(Z, 128 * 16), nn.Unflatten(1, (128, 4, 4)), up(128, 64), up(64, 48), nn.ConvTranspose2d(48, 32, 4, 2, 1),
                  nn.ReLU(), nn.Conv2d(32, 3, 3, padding=1), nn.Tanh()).to(device)
D = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 32, 4, 2, 1), nn.LeakyReLU(0.2),
                  nn.Conv2d(32, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(32 * 16, 1)).to(device)
opt_g = torch.optim.RMSprop(G.parameters(), 5e-5)
opt_d = torch.optim.RMSprop(D.parameters(), 5e-5)

t0 = time.time()
for step in range(STEPS):
    for _ in range(N_CRITIC):
        real = images[torch.randint(len(images), (BATCH,), device=device)]
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            fake = G(torch.randn(BATCH, Z, device=device))
            d_loss = D(fake).mean() - D(real).mean()
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
        with torch.no_grad():
            for p in D.parameters():
                p.clamp_(-0.02, 0.02)

    for p in D.parameters():
        p.requires_grad_(False)
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        g_loss = -D(G(torch.randn(BATCH, Z, device=device))).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    for p in D.parameters():
        p.requires_grad_(True)
    if step % 10 == 0:
        print(f"step {step} d {d_loss.item():.4f} g {g_loss.item():.4f}")
print(f"training took {time.time() - t0:.2f}s")
