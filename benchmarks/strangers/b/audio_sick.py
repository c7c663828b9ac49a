import os, tempfile, torch, torch.nn as nn, torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
ckpt_dir = tempfile.mkdtemp()
N_MELS, FRAMES, H, VOCAB = 40, 28, 256, 32
feats = torch.randn(256, FRAMES, N_MELS, device=device)
texts = torch.randint(1, VOCAB, (256, 6), device=device)

class CTCNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Conv1d(N_MELS, 128, 3, 2, 1)
        self.rnn = nn.GRU(128, H, 2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * H, VOCAB)

    def forward(self, x):
        h = F.relu(self.front(x.transpose(1, 2))).transpose(1, 2)
        return self.out(self.rnn(h)[0]).log_softmax(-1)

net = CTCNet().to(device)
opt = torch.optim.Adam(net.parameters(), lr=3e-4)
B, STEPS = 8, 60
SAVE_EVERY = 1
for step in range(1, STEPS + 1):
    i = torch.randint(0, len(feats), (B,), device=device)
    logp = net(feats[i]).transpose(0, 1)
    in_len = torch.full((B,), logp.shape[0], dtype=torch.long)
    tgt_len = torch.full((B,), texts.shape[1], dtype=torch.long)
    loss = F.ctc_loss(logp, texts[i], in_len, tgt_len, zero_infinity=True)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    opt.step()
    if step % SAVE_EVERY == 0:
        path = os.path.join(ckpt_dir, "last.pt")
        torch.save({"step": step, "model": net.state_dict(), "opt": opt.state_dict()}, path + ".tmp")
        os.replace(path + ".tmp", path)
print(f"ctc loss {loss.item():.3f}")
