import math, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
SR, N_FFT, HOP, N_MELS = 16000, 512, 160, 64
waves = torch.randn(320, SR)
labels = torch.randint(0, 12, (320,))

def mel_filterbank():
    hz2mel = lambda f: 2595 * math.log10(1 + f / 700)
    mel2hz = lambda m: 700 * (10 ** (m / 2595) - 1)
    top = hz2mel(SR / 2)
    pts = [mel2hz(top * i / (N_MELS + 1)) for i in range(N_MELS + 2)]
    fb = torch.zeros(N_FFT // 2 + 1, N_MELS)
    for m in range(N_MELS):
        lo, mid, hi = pts[m:m + 3]
        for k in range(N_FFT // 2 + 1):
            f = k * SR / N_FFT
            if lo < f < hi:
                fb[k, m] = (f - lo) / (mid - lo) if f <= mid else (hi - f) / (hi - mid)
    return fb


class Commands(Dataset):
    def __len__(self):
        return len(waves)

    def __getitem__(self, i):
        w = waves[i].roll(int(torch.randint(-800, 800, ())))
        window, fb = torch.hann_window(N_FFT), mel_filterbank()
        spec = torch.stft(w, N_FFT, HOP, window=window, return_complex=True).abs().pow(2)
        return torch.log(spec.T @ fb + 1e-6), labels[i]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(),
                                  nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU())
        self.fc = nn.Linear(32, 12)

    def forward(self, x):
        return self.fc(self.conv(x[:, None]).mean((2, 3)))

net = Net().to(device)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
loader = DataLoader(Commands(), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True,
                    pin_memory=(device == "cuda"))
for epoch in range(3):
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.3f}")
