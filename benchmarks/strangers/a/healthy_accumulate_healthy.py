import random, time, numpy as np, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_float32_matmul_precision("high")
torch.manual_seed(0)
D, T, B = (1024, 512, 32) if device == "cuda" else (128, 96, 8)

class Windows(Dataset):
    """random windows of one long numpy array: cheap, so no workers are needed"""
    def __init__(self):
        self.series = np.cumsum(np.random.default_rng(0).standard_normal((200_000, 16), dtype=np.float32), 0) * 0.01

    def __len__(self):
        return 120 * B

    def __getitem__(self, i):
        s = random.randrange(len(self.series) - T - 1)
        return torch.from_numpy(self.series[s:s + T + 1])

enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 4, 4 * D, 0.0, batch_first=True, norm_first=True), 3,
                            enable_nested_tensor=False)
model = nn.ModuleDict({"inp": nn.Linear(16, D), "enc": enc, "out": nn.Linear(D, 16)}).to(device)
mask = nn.Transformer.generate_square_subsequent_mask(T, device=device)
opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
loader = DataLoader(Windows(), batch_size=B, num_workers=0, pin_memory=(device == "cuda"))
ACCUM, history, t0 = 4, [], time.time()

for step, w in enumerate(loader):                 # 120 micro batches, 30 optimizer steps
    w = w.to(device, non_blocking=True)
    with torch.autocast(device, dtype=torch.bfloat16, enabled=(device == "cuda")):
        pred = model["out"](model["enc"](model["inp"](w[:, :-1]), mask=mask, is_causal=True))
        loss = F.mse_loss(pred.float(), w[:, 1:]) / ACCUM
    loss.backward()
    if (step + 1) % ACCUM == 0:
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
    if (step + 1) % 20 == 0:                      # now and then, look at the numbers
        history.append((step, loss.item() * ACCUM, norm.item(), time.time() - t0))
        torch.save({"history": history}, "/dev/null")
print(f"loss {history[-1][1]:.4f}")
