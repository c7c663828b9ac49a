import torch, torch.nn as nn, torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
real_data = torch.rand(1024, 3, 32, 32, device=device) * 2 - 1
Z, B = 64, 8

G = nn.Sequential(
    nn.ConvTranspose2d(Z, 128, 4), nn.BatchNorm2d(128), nn.ReLU(),
    nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(),
    nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
    nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh()).to(device)
D = nn.Sequential(
    nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(0.2),
    nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(0.2),
    nn.Conv2d(32, 64, 4, 2, 1), nn.LeakyReLU(0.2),
    nn.Conv2d(64, 1, 4)).to(device)
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
N_CRITIC = 4

for step in range(60):
    # critic steps
    for _ in range(N_CRITIC):
        real = real_data[torch.randint(0, len(real_data), (B,), device=device)]
        z = torch.randn(B, Z, 1, 1, device=device)
        fake = G(z)
        loss_d = F.relu(1 - D(real)).mean() + F.relu(1 + D(fake)).mean()
        opt_d.zero_grad(set_to_none=True)
        loss_d.backward()
        opt_d.step()

    # generator step
    for p in D.parameters():
        p.requires_grad_(False)
    z = torch.randn(B, Z, 1, 1, device=device)
    loss_g = -D(G(z)).mean()
    opt_g.zero_grad(set_to_none=True)
    loss_g.backward()
    opt_g.step()
    for p in D.parameters():
        p.requires_grad_(True)
print(f"D {loss_d.item():.3f} G {loss_g.item():.3f}")
