"""WGAN-GP: several critic updates per generator update, gradient penalty on interpolates."""
import time
import torch
import torch.nn as nn

torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
device = "cuda" if torch.cuda.is_available() else "cpu"
W, BATCH = (256, 512) if device == "cuda" else (16, 16)
STEPS, Z, N_CRITIC, LAMBDA = 60, 64, 3, 10.0

yy, xx = torch.meshgrid(torch.linspace(-1, 1, 32), torch.linspace(-1, 1, 32), indexing="ij")
centre = torch.rand(1024, 2, 1, 1) - 0.5
images = torch.exp(-8 * ((xx - centre[:, :1]) ** 2 + (yy - centre[:, 1:]) ** 2)) * 2 - 1
images = images.expand(-1, 3, -1, -1).contiguous().to(device)

G = nn.Sequential(nn.Linear(Z, 4 * W * 16), nn.Unflatten(1, (4 * W, 4, 4)), nn.ReLU(),
                  nn.ConvTranspose2d(4 * W, 2 * W, 4, 2, 1), nn.BatchNorm2d(2 * W), nn.ReLU(),
                  nn.ConvTranspose2d(2 * W, W, 4, 2, 1), nn.BatchNorm2d(W), nn.ReLU(),
                  nn.ConvTranspose2d(W, 3, 4, 2, 1), nn.Tanh()).to(device)
D = nn.Sequential(nn.Conv2d(3, W, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(W, 2 * W, 4, 2, 1), nn.LeakyReLU(0.2),
                  nn.Conv2d(2 * W, 4 * W, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(4 * W * 16, 1)).to(device)
G.to(memory_format=torch.channels_last)
D.to(memory_format=torch.channels_last)
fused = device == "cuda"
opt_g = torch.optim.Adam(G.parameters(), 1e-4, betas=(0.0, 0.9), fused=fused)
opt_d = torch.optim.Adam(D.parameters(), 1e-4, betas=(0.0, 0.9), fused=fused)


def penalty(real, fake):
    mix = torch.lerp(real, fake, torch.rand(len(real), 1, 1, 1, device=device)).requires_grad_(True)
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        out = D(mix)
    grad, = torch.autograd.grad(out.sum(), mix, create_graph=True)
    return ((grad.float().flatten(1).norm(dim=1) - 1) ** 2).mean()


t0 = time.time()
for step in range(STEPS):
    for _ in range(N_CRITIC):
        real = images[torch.randint(len(images), (BATCH,), device=device)]
        with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            fake = G(torch.randn(BATCH, Z, device=device))
        fake = fake.float()
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            score_fake, score_real = D(torch.cat([fake, real])).chunk(2)
        d_loss = score_fake.float().mean() - score_real.float().mean() + LAMBDA * penalty(real, fake)
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()

    D.requires_grad_(False)
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        g_loss = -D(G(torch.randn(BATCH, Z, device=device))).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    D.requires_grad_(True)
    if step % 10 == 9:
        print(f"step {step + 1} d {d_loss.item():.4f} g {g_loss.item():.4f}")
print(f"training took {time.time() - t0:.2f}s")
