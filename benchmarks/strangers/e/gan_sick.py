import os
import time
import tempfile
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image

torch.manual_seed(42)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
out_dir = tempfile.mkdtemp(prefix="dcgan_samples_")

nz, ngf, ndf, batch_size, n_iters = 64, 24, 16, 32, 80

# synthetic "sprites": coloured discs on a plain background
yy, xx = torch.meshgrid(torch.linspace(-1, 1, 32), torch.linspace(-1, 1, 32), indexing="ij")
n = 2048
centre = torch.rand(n, 2, 1, 1) - 0.5
radius = torch.rand(n, 1, 1) * 0.4 + 0.2
mask = (((xx - centre[:, 0]) ** 2 + (yy - centre[:, 1]) ** 2).sqrt() < radius).float().unsqueeze(1)
real_images = (mask * torch.rand(n, 3, 1, 1) + (1 - mask) * torch.rand(n, 3, 1, 1)) * 2 - 1
real_images = real_images.to(device)


def weights_init(m):
    name = m.__class__.__name__
    if "Conv" in name:
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif "BatchNorm" in name:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


netG = nn.Sequential(
    nn.ConvTranspose2d(nz, ngf * 4, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf * 4), nn.ReLU(True),
    nn.ConvTranspose2d(ngf * 4, ngf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf * 2), nn.ReLU(True),
    nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf), nn.ReLU(True),
    nn.ConvTranspose2d(ngf, 3, 4, 2, 1, bias=False), nn.Tanh(),
).to(device)
netD = nn.Sequential(
    nn.Conv2d(3, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True),
    nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 2), nn.LeakyReLU(0.2, True),
    nn.Conv2d(ndf * 2, ndf * 4, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 4), nn.LeakyReLU(0.2, True),
    nn.Conv2d(ndf * 4, 1, 4, 1, 0, bias=False), nn.Flatten(0),
).to(device)
netG.apply(weights_init)
netD.apply(weights_init)

optG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
optD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
fixed_noise = torch.randn(64, nz, 1, 1, device=device)


@torch.no_grad()
def save_samples(path, nrow=8, scale=2):
    """8x8 grid of samples from the fixed noise, to follow how training goes"""
    netG.eval()
    fake = netG(fixed_noise)
    netG.train()
    grid = fake.view(nrow, nrow, 3, 32, 32).permute(0, 3, 1, 4, 2).reshape(nrow * 32, nrow * 32, 3)
    grid = ((grid + 1) * 127.5).clamp(0, 255).byte().cpu().numpy()
    im = Image.fromarray(grid)
    im.resize((im.width * scale, im.height * scale), Image.BICUBIC).save(path)


d_hist, g_hist = [], []
tic = time.time()
for it in range(n_iters):
    real = real_images[torch.randint(0, n, (batch_size,), device=device)]
    noise = torch.randn(batch_size, nz, 1, 1, device=device)

    # (1) update D
    optD.zero_grad()
    fake = netG(noise)
    lossD = F.softplus(-netD(real)).mean() + F.softplus(netD(fake.detach())).mean()
    lossD.backward()
    optD.step()

    # (2) update G
    optG.zero_grad()
    for p in netD.parameters():
        p.requires_grad_(False)
    lossG = F.softplus(-netD(fake)).mean()
    lossG.backward()
    for p in netD.parameters():
        p.requires_grad_(True)
    optG.step()

    d_hist.append(lossD.detach())
    g_hist.append(lossG.detach())
    save_samples(os.path.join(out_dir, f"sample_{it:06d}.png"))
    if it % 20 == 0:
        print(f"[{it}/{n_iters}] Loss_D: {lossD.item():.4f} Loss_G: {lossG.item():.4f}")

print("mean D loss %.4f, mean G loss %.4f" % (torch.stack(d_hist).mean(), torch.stack(g_hist).mean()))
print("Total time: %.2fs" % (time.time() - tic))
