"""Patients that pay for attention: a small language model as tutorials write it, and one whose attention is fused.

The recordings are of a GPU: not yet run on one.
"""

from dataclasses import replace

from gpu_doctor.recording.setup import AttentionCalls, ModelFacts
from tests.support.clinic.card_cells import BUSY, read
from tests.support.clinic.cell import Cell, Patient, Recorded
from tests.support.recordings import Loop

LANGUAGE_MODEL = """
        import math
        import torch
        import torch.nn.functional as F
        from torch import nn

        torch.set_num_threads(1)
        width, heads, tokens, vocabulary = 64, 4, 256, 96

        class SelfAttention(nn.Module):
            def __init__(self):
                super().__init__()
                self.qkv = nn.Linear(width, 3 * width)
                self.out = nn.Linear(width, width)
                self.register_buffer("mask", torch.tril(torch.ones(tokens, tokens, dtype=torch.bool)))

            def forward(self, x):
                b, t, c = x.shape
                q, k, v = (part.view(b, t, heads, c // heads).transpose(1, 2) for part in self.qkv(x).split(c, 2))
                %s
                return self.out(y.transpose(1, 2).reshape(b, t, c))

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.attention, self.one, self.two = SelfAttention(), nn.LayerNorm(width), nn.LayerNorm(width)
                self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

            def forward(self, x):
                x = x + self.attention(self.one(x))
                return x + self.mlp(self.two(x))

        class GPT(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
                self.blocks = nn.Sequential(Block(), Block())
                self.head = nn.Linear(width, vocabulary)

            def forward(self, ids):
                x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
                return self.head(self.blocks(x))

        text = torch.randint(0, vocabulary, (50, 4, tokens + 1))
"""
BY_HAND = (
    "scores = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))\n"
    "                y = F.softmax(scores.masked_fill(~self.mask[:t, :t], float('-inf')), dim=-1) @ v"
)
FUSED = "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)"
DROPPED = "y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1 * self.training)"
MASKED = "y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask[:t, :t])"
TRAINING = """
        model = GPT()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for batch in text:
            logits = model(batch[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
FLASH = AttentionCalls("fused", 24, 8, 16, 4096, 4096, 64, "bfloat16")


def on_card(calls: AttentionCalls) -> Loop:
    """A language model of width 1024 on a card that is kept busy."""
    model = ModelFacts({"cuda:0": 1400 << 20})
    return BUSY.but(setup={"autocast": "bfloat16", "model": model, "attention_calls": (calls,)})


CELLS: tuple[Patient, ...] = (
    Cell(
        name="gpt-with-attention-by-hand",
        klass="compute",
        top=("attention",),
        before=LANGUAGE_MODEL % BY_HAND,
        sick=TRAINING,
        cured=(LANGUAGE_MODEL % FUSED).split("text = ")[0] + TRAINING,
    ),
    Cell(
        name="gpt-with-fused-attention",
        klass="compute",
        healthy=True,
        never=("attention",),
        before=LANGUAGE_MODEL % FUSED,
        sick=TRAINING,
    ),
    Cell(
        name="gpt-with-dropout-inside-its-attention",
        klass="compute",
        top=("attention",),
        before=LANGUAGE_MODEL % DROPPED,
        sick=TRAINING,
        cured=(LANGUAGE_MODEL % FUSED).split("text = ")[0] + TRAINING,
    ),
    Cell(
        name="gpt-with-a-mask-on-a-cpu",
        klass="compute",
        healthy=True,
        never=("attention",),
        before=LANGUAGE_MODEL % MASKED,
        sick=TRAINING,
    ),
    Recorded(
        "card-whose-attention-is-by-hand",
        "compute",
        ("attention",),
        play=read(on_card(replace(FLASH, kernel="by hand"))),
    ),
    Recorded(
        "card-whose-attention-is-flash",
        "compute",
        healthy=True,
        never=("attention",),
        play=read(on_card(FLASH)),
    ),
)
