"""Cells that train in different ways: optimizers, schedules, steps and models."""

from __future__ import annotations

from typing import Final

from tests.support.cells.cell import LOOP, SGD, Cell

CELLS: Final[dict[str, Cell]] = {
    "plain SGD": Cell(
        "opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)\n",
        """
for epoch in range(3):
    for x, y in loader:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
print(loss)
""",
        knobs=True,
        faults=True,
    ),
    "everything made in the cell": Cell(
        "",
        """
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
dl = DataLoader(TensorDataset(xs, ys), 4, shuffle=True)
history = []
for x, y in dl:
    optimizer.zero_grad(set_to_none=False)
    loss = F.cross_entropy(model(x), y); loss.backward(); optimizer.step()
    history.append(loss.item())
""",
        before=0,
        net=False,
    ),
    "Adam, OneCycleLR, a scaler that is off": Cell(
        """
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=2000)
scaler = torch.amp.GradScaler("cpu", enabled=False)
""",
        """
for x, y in loader:
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(net(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    nn.utils.clip_grad_value_(net.parameters(), 0.1)
    scaler.step(opt); scaler.update(); sched.step()
""",
        knobs=True,
        refuses={"amp=bf16": "enters autocast itself", "amp=fp16": "enters autocast itself"},
        faults=True,
    ),
    "AdamW, cosine restarts, a scaler that is on": Cell(
        """
opt = torch.optim.AdamW([{"params": net.a.parameters(), "lr": 1e-4}, {"params": net.b.parameters()}], lr=1e-3)
sched = torch.optim.lr_scheduler.SequentialLR(opt, [torch.optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=10),
    torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 20)], milestones=[10])
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=1)
scaler = torch.amp.GradScaler("cpu", growth_interval=3)
""",
        """
for x, y in loader:
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    scaler.scale(loss).backward()
    scaler.step(opt); scaler.update(); sched.step(); plateau.step(loss)
""",
    ),
    "EMA by deepcopy and AveragedModel": Cell(
        """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
ema = copy.deepcopy(net).requires_grad_(False)
from torch.optim.swa_utils import AveragedModel, SWALR, get_ema_multi_avg_fn
averaged = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
swa = SWALR(opt, swa_lr=0.05)
""",
        """
for x, y in loader:
    opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step(); swa.step()
    averaged.update_parameters(net)
    with torch.no_grad():
        for e, p in zip(ema.parameters(), net.parameters()):
            e.mul_(0.99).add_(p, alpha=0.01)
""",
    ),
    "GAN with two optimizers": Cell(
        """
G = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6)); D = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 1))
optG = torch.optim.Adam(G.parameters(), 2e-4, betas=(0.5, 0.99))
optD = torch.optim.Adam(D.parameters(), 2e-4, betas=(0.5, 0.99))
images = []
data = DataLoader(TensorDataset(xs), 4, shuffle=True)
""",
        """
for i, (real,) in enumerate(data):
    fake = G(torch.randn(len(real), 4))
    optD.zero_grad()
    lossD = F.softplus(-D(real)).mean() + F.softplus(D(fake.detach())).mean()
    lossD.backward()
    optD.step()
    optG.zero_grad()
    lossG = F.softplus(-D(fake)).mean()
    lossG.backward()
    optG.step()
    images.append(fake.detach())
""",
        net=False,
        knobs=True,
        refuses={"amp=fp16": "one optimizer.step()"},
    ),
    "LBFGS": Cell(
        "opt = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=4)\n",
        """
for x, y in loader:
    def closure():
        called("closure")
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        return loss
    losses.append(float(opt.step(closure)))
""",
        knobs=True,
        refuses={"fused_optimizer": "no fused update for LBFGS", "amp=fp16": "without a closure"},
        faults=True,
    ),
    "a sparse embedding with SparseAdam, gradients accumulated": Cell(
        """
emb = nn.EmbeddingBag(50, 8, sparse=True, mode="sum"); head = nn.Linear(8, 3)
sparse = torch.optim.SparseAdam(list(emb.parameters())); dense = torch.optim.Adagrad(head.parameters())
words = torch.randint(0, 50, (96, 5))
dl = DataLoader(TensorDataset(words, ys), 4)
""",
        """
for i, (w, y) in enumerate(dl):
    (F.cross_entropy(head(emb(w)), y) / 2).backward()
    if i % 2:
        sparse.step(); dense.step(); sparse.zero_grad(); dense.zero_grad()
""",
        net=False,
    ),
    "tied, weight-normed and spectral-normed weights": Cell(
        """
from torch.nn.utils.parametrizations import weight_norm, spectral_norm
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.out = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
        self.mid, self.side = weight_norm(nn.Linear(8, 8)), spectral_norm(nn.Linear(8, 8))
        self.out.weight = self.emb.weight
        self.lstm = nn.LSTM(8, 8, batch_first=True)
    def forward(self, t):
        h, self.hidden = self.lstm(self.side(self.mid(self.emb(t))))
        return self.out(h)
lm = LM(); opt = torch.optim.NAdam(lm.parameters())
tokens = torch.randint(0, 20, (96, 5))
dl = DataLoader(tokens, 4, shuffle=True)
""",
        """
for t in dl:
    opt.zero_grad(); F.cross_entropy(lm(t).flatten(0, 1), t.flatten()).backward(); opt.step()
    if len(lm.mid._forward_hooks) < 2: lm.mid.register_forward_hook(lambda m, i, o: o)
nn.utils.parametrize.remove_parametrizations(lm.mid, "weight")
""",
        before=0,
        net=False,
    ),
    "a model with hooks, frozen layers, lazy layers": Cell(
        """
acts, norms = {}, []
body = nn.Sequential(nn.LazyLinear(12), nn.LazyBatchNorm1d(), nn.ReLU(), nn.Linear(12, 3))
body[2].register_forward_hook(lambda m, i, o: acts.__setitem__("relu", o.detach()))
body.register_full_backward_hook(lambda m, gi, go: norms.append(go[0].norm()))
body[3].weight.register_hook(lambda grad: norms.append(grad.norm()))
body[3].bias.requires_grad_(False)
loader = DataLoader(TensorDataset(xs, ys), batch_size=4, shuffle=True, drop_last=True)
""",
        """
body(xs[:2])
opt = torch.optim.SGD([p for p in body.parameters() if p.requires_grad], lr=0.1)
for i, (x, y) in enumerate(loader):
    if i == 5:
        body[3].bias.requires_grad_(True); opt.add_param_group({"params": [body[3].bias]})
    opt.zero_grad(); F.cross_entropy(body(x), y).backward(); opt.step()
""",
        before=0,
        net=False,
    ),
    "a replay buffer and a target network": Cell(
        """
q = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)); target = copy.deepcopy(q)
opt = torch.optim.Adam(q.parameters(), 1e-3)
memory = collections.deque(maxlen=64)
buffer = {"s": np.zeros((64, 6), np.float32), "a": np.zeros(64, int), "at": 0}
epsilon = 1.0; s = torch.randn(6)
""",
        """
for t in range(40):
    a = random.randrange(3) if random.random() < epsilon else int(q(s).argmax())
    s2 = torch.randn(6); memory.append((s, a, random.random(), s2)); buffer["s"][buffer["at"]] = s.numpy()
    buffer["a"][buffer["at"]] = a; buffer["at"] = (buffer["at"] + 1) % 64; s = s2; epsilon *= 0.99
    if len(memory) >= 8:
        states, acts, rewards, nexts = zip(*random.sample(list(memory), 8))
        with torch.no_grad(): goal = torch.tensor(rewards) + 0.9 * target(torch.stack(nexts)).max(1).values
        loss = F.mse_loss(q(torch.stack(states)).gather(1, torch.tensor(acts)[:, None])[:, 0], goal)
        opt.zero_grad(); loss.backward(); opt.step()
        if t % 10 == 0: target.load_state_dict(q.state_dict())
""",
        net=False,
    ),
    "functional: parameters as a dict of tensors, momentum by hand": Cell(
        """
W, b = torch.randn(6, 3, requires_grad=True), torch.zeros(3, requires_grad=True)
opt = torch.optim.SGD([W, b], lr=0.1)
params = {"W": W, "b": b}
velocity = {k: torch.zeros_like(v) for k, v in params.items()}
total = torch.zeros(()); means = torch.zeros(3)
spare, other, third = torch.ones(5), torch.ones(6), torch.ones(7)
""",
        """
for i in range(0, ROWS, 4):
    loss = F.cross_entropy(xs[i:i + 4] @ params["W"] + params["b"], ys[i:i + 4])
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        for k, p in params.items(): velocity[k].mul_(0.9).add_(p.grad)
    total = total + loss; means += F.one_hot(ys[i:i + 4], 3).sum(0)
    if i == 4: spare.data = torch.zeros(2, 2); other.resize_(70).zero_(); third.set_(torch.ones(3).untyped_storage())
""",
        before=0,
        net=False,
        faults=True,
    ),
    "clipped and accumulated": Cell(
        SGD,
        """
for i, (x, y) in enumerate(loader):
    loss = F.cross_entropy(net(x), y) / 2
    loss.backward()
    losses.append(loss.item())
    if i % 2:
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
""",
        restored=False,
        knobs=True,
        faults=True,
    ),
    "a schedule over len(loader)": Cell(
        SGD,
        """
schedule = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, epochs=2, steps_per_epoch=len(loader))
for epoch in range(2):
    for x, y in loader:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        schedule.step()
""",
        restored=False,
        knobs=True,
    ),
    "evaluations, one without no_grad": Cell(
        SGD + "held_out = DataLoader(Items(xs, ys), batch_size=8)\n",
        """
for epoch in range(3):
    net.train()
    for x, y in loader:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
    net.eval()
    with torch.set_grad_enabled(epoch % 2 == 1):
        for x, y in held_out: losses.append(F.cross_entropy(net(x), y).item())
""",
        restored=False,
        faults=True,
    ),
    "updates by hand": Cell(
        "",
        """
for x, y in itertools.chain(loader, loader):
    net.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    with torch.no_grad():
        for p in net.parameters():
            if p.grad is not None: p.sub_(0.05 * p.grad)
    losses.append(loss.item())
""",
        restored=False,
        faults=True,
    ),
    "gradients by torch.autograd.grad": Cell(
        "",
        """
for x, y in itertools.chain(loader, loader):
    loss = F.cross_entropy(net(x), y)
    gradients = torch.autograd.grad(loss, list(net.parameters()))
    with torch.no_grad():
        for p, gradient in zip(net.parameters(), gradients): p.sub_(0.05 * gradient)
    losses.append(loss.item())
""",
        restored=False,
        faults=True,
    ),
    "layers that are computed again in the backward": Cell(
        """
from torch.utils.checkpoint import checkpoint
def forward(self, x):
    called("forward")
    x = checkpoint(self.a, x, use_reentrant=False)
    return self.b(checkpoint(nn.Sequential(self.norm, self.drop), x, use_reentrant=True))
Net.forward = forward
"""
        + SGD,
        LOOP,
        restored=False,
        faults=True,
    ),
    "an optimizer around another": Cell(
        SGD
        + """
class Halved(torch.optim.Optimizer):  # as libraries have them: torch's hooks do not see its step
    def __init__(self, inner):
        self.inner, self.param_groups, self.state = inner, inner.param_groups, inner.state
        self.defaults = inner.defaults
    def zero_grad(self, set_to_none=True): self.inner.zero_grad(set_to_none)
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None: p.grad.mul_(0.5)
        self.inner.step()
opt = Halved(opt)
""",
        LOOP,
        restored=False,
        faults=True,
    ),
    "a model called in parts, one past torch's own call": Cell(
        """
class Box(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Net(), Net()
net = Box()
"""
        + SGD,
        LOOP.replace("net(x)", "net.first(x) + net.second.forward(x)"),
        restored=False,
        faults=True,
    ),
    "a model without parts, called by its forward": Cell(
        """
class Direct(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((6, 3), 0.1))
    def forward(self, x):
        called("forward")
        return x @ self.weight
net = Direct()
"""
        + SGD,
        LOOP.replace("net(x)", "net.forward(x)"),
        restored=False,
        faults=True,
    ),
    "copies, pickles and scripts of the model": Cell(
        """
import io
net, one = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)), torch.ones(1, 6)
"""
        + SGD,
        LOOP
        + """
net.eval()
file = io.BytesIO()
torch.save(net, file); file.seek(0)
again, twin = torch.load(file, weights_only=False), copy.deepcopy(net)
made = [twin, again, torch.jit.script(net), torch.jit.trace(again, one)]
with torch.no_grad(): losses += [each(one).tolist() for each in made]
del made
net.train()
"""
        + LOOP,
        restored=False,
        faults=True,
    ),
    "a model on the device, values that are waited for": Cell(
        SGD,
        """
net.to("cuda")
for x, y in loader:
    there = x.to("cuda")
    losses.append(there.sum().item())
    losses += there.flatten().tolist()
    losses.append(float(there.cpu().sum()))
    opt.zero_grad()
    loss = F.cross_entropy(net(there), y.to("cuda"))
    loss.backward()
    opt.step()
    losses.append(loss.item())
del x, y, there, loss
""",
        restored=False,
        faults=True,
        on_gpu=True,
    ),
    "Lightning's Trainer, with validation and accumulation": Cell(
        """
import logging, warnings
import lightning
for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
    logging.getLogger(name).setLevel(logging.ERROR)
class Lit(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net
    def training_step(self, batch, index):
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss); losses.append(loss.item())
        return loss
    def validation_step(self, batch, index):
        losses.append(F.cross_entropy(self.net(batch[0]), batch[1]).item())
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.05)
lit = Lit()
held_out = DataLoader(Items(xs, ys), batch_size=8)
def fit():
    warnings.simplefilter("ignore")
    lightning.Trainer(max_epochs=2, accumulate_grad_batches=2, gradient_clip_val=0.5, accelerator="cpu", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=1,
    ).fit(lit, loader, held_out)
""",
        "fit()\nlit._trainer = None  # which knows the time of day\n",
        restored=False,
        faults=True,
    ),
    "a loss of probabilities": Cell(
        """
net = nn.Sequential(nn.Linear(6, 1), nn.Sigmoid())
opt = torch.optim.AdamW(net.parameters())
""",
        """
for x, y in loader:
    opt.zero_grad()
    loss = nn.BCELoss()(net(x), (y > 1).float()[:, None])
    loss.backward()
    opt.step()
    loss.detach().numpy()
""",
        restored=False,
        knobs=True,
    ),
    "a model that returns a dict": Cell(
        """
class Named(Net):
    def forward(self, x): return {"out": super().forward(x), "input": [x]}
net = Named()
opt = torch.optim.Adam(net.parameters())
""",
        LOOP.replace("net(x)", 'net(x)["out"]'),
        restored=False,
        knobs=True,
    ),
    "a model that returns a tuple": Cell(
        """
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.LSTM(6, 4, batch_first=True), nn.Linear(4, 3)
    def forward(self, x):
        out, state = self.body(x.unsqueeze(1))
        return self.head(out[:, 0]), state
net = Recurrent()
opt = torch.optim.Adam(net.parameters())
""",
        LOOP.replace("net(x)", "net(x)[0]"),
        restored=False,
        knobs=True,
    ),
    "an output as Hugging Face's": Cell(
        """
from transformers.utils import ModelOutput
@dataclasses.dataclass
class Output(ModelOutput):
    loss: torch.Tensor = None
    logits: torch.Tensor = None
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)
    def forward(self, x, labels):
        logits = self.head(x)
        return Output(loss=F.cross_entropy(logits, labels), logits=logits)
net = Classifier()
opt = torch.optim.AdamW(net.parameters())
""",
        """
for x, y in loader:
    opt.zero_grad()
    out = net(x, labels=y)
    out.loss.backward()
    opt.step()
    out["logits"].detach().numpy(), out[1], out.to_tuple()
""",
        restored=False,
        knobs=True,
    ),
}
