import json, os, tempfile, numpy as np, torch, torch.nn as nn, torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
log_path = os.path.join(tempfile.mkdtemp(), "events.jsonl")
real_data = torch.randn(4096, 784, device=device).tanh()
Z, B = 64, 64

G = nn.Sequential(nn.Linear(Z, 256), nn.LeakyReLU(0.2), nn.Linear(256, 512), nn.LeakyReLU(0.2),
                  nn.Linear(512, 784), nn.Tanh()).to(device)
D = nn.Sequential(nn.Linear(784, 512), nn.LeakyReLU(0.2), nn.Linear(512, 256), nn.LeakyReLU(0.2),
                  nn.Linear(256, 1)).to(device)
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))

def log_histograms(step):
    rec = {"step": step}
    for tag, net in (("G", G), ("D", D)):
        for name, p in net.named_parameters():
            for kind, v in (("w", p), ("grad", p.grad)):
                h, edges = np.histogram(v.detach().cpu().numpy(), bins=64)
                rec[f"{tag}/{name}/{kind}"] = [h.tolist(), edges.tolist()]
    with open(log_path, "a") as f:
        f.write(json.dumps(rec) + "\n")

STEPS = 80
for step in range(STEPS):
    real = real_data[torch.randint(0, len(real_data), (B,), device=device)]
    with torch.no_grad():
        fake = G(torch.randn(B, Z, device=device))
    dr, df = D(real), D(fake)
    loss_d = F.softplus(-dr).mean() + F.softplus(df).mean()
    opt_d.zero_grad(set_to_none=True)
    loss_d.backward()
    opt_d.step()

    loss_g = F.softplus(-D(G(torch.randn(B, Z, device=device)))).mean()
    opt_g.zero_grad(set_to_none=True)
    loss_g.backward()
    opt_g.step()
    if (step + 1) % 50 == 0:
        log_histograms(step)
print(f"D {loss_d.item():.3f} G {loss_g.item():.3f}")
