# /// truth
# class = "compute"
# timed = "whole"
# unseen = true
# why = """\
# A Python loop over time steps with a GRU cell looks like a hand-rolled RNN, but the scheduled sampling feeds \
# each prediction back into the next step, so the loop is necessary; the encoder uses nn.GRU, everything hoistable \
# is outside of the loop, outputs are stacked once and the loss is computed once."""
# ///

# %% diagnosed
"""Reverse-and-shift toy translation: GRU encoder, GRU-cell decoder with scheduled sampling."""

import time

import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
VOCAB, LENGTH, START = 48, 12, 0


def make_pairs(n, seed=0):
    g = torch.Generator().manual_seed(seed)
    source = torch.randint(1, VOCAB, (n, LENGTH), generator=g)
    target = (source.flip(1) + 6) % (VOCAB - 1) + 1
    return source, target


class Encoder(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.gru = nn.GRU(dim, hidden, batch_first=True)

    def forward(self, source):
        return self.gru(self.embed(source))


class Decoder(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.cell = nn.GRUCell(dim + hidden, hidden)
        self.keys = nn.Linear(hidden, hidden, bias=False)
        self.out = nn.Linear(2 * hidden, VOCAB)

    def forward(self, memory, hidden, target, sampling):
        keys = self.keys(memory)
        # which positions get the model's own last word: drawn once for the whole sequence
        own = torch.rand(target.shape, device=target.device) < sampling
        token = torch.full_like(target[:, 0], START)
        context = memory.mean(1)
        logits = []
        for t in range(target.shape[1]):
            hidden = self.cell(torch.cat([self.embed(token), context], 1), hidden)
            weights = torch.bmm(keys, hidden.unsqueeze(2)).softmax(1)
            context = (weights * memory).sum(1)
            logits.append(self.out(torch.cat([hidden, context], 1)))
            token = torch.where(own[:, t], logits[-1].detach().argmax(1), target[:, t])
        return torch.stack(logits, 1)


class Translator(nn.Module):
    def __init__(self, dim=64, hidden=256):
        super().__init__()
        self.encoder, self.decoder = Encoder(dim, hidden), Decoder(dim, hidden)

    def forward(self, source, target, sampling):
        memory, last = self.encoder(source)
        return self.decoder(memory, last[0], target, sampling)


@torch.no_grad()
def exact_tokens(model, source, target):
    model.eval()
    guess = model(source, target, sampling=1.0).argmax(2)
    model.train()
    return (guess == target).float().mean()


def main(steps=150, batch=128):
    torch.manual_seed(0)
    source, target = (t.to(device) for t in make_pairs(20_000))
    held_source, held_target = (t.to(device) for t in make_pairs(256, seed=1))
    model = Translator().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    start = time.perf_counter()
    for step in range(1, steps + 1):
        pick = torch.randint(len(source), (batch,), device=device)
        logits = model(source[pick], target[pick], sampling=0.5 * step / steps)
        loss = F.cross_entropy(logits.flatten(0, 1), target[pick].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            held = exact_tokens(model, held_source, held_target)
            print(f"step {step} loss {loss.item():.4f} held-out tokens right {held.item():.3f}")
    elapsed = time.perf_counter() - start
    print(f"steps={steps} seconds={elapsed:.2f}")
    print(f"samples_per_s={steps * batch / elapsed:.1f}")


if __name__ == "__main__":
    main()
