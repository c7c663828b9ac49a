"""Kinds of training cells as people write them: earlier cells, and the cell under trial."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One notebook: `setup` ran before, `cell` is tried. `before` runs of the cell came first."""

    setup: str
    cell: str
    before: int = 1


START = """
import collections, copy, dataclasses, itertools, random, time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset, RandomSampler, WeightedRandomSampler
torch.manual_seed(0); np.random.seed(0); random.seed(0)
xs, ys = torch.randn(96, 6), torch.randint(0, 3, (96,))
"""

_NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.drop, self.b = nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(0.3), nn.Linear(12, 3)
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        return self.b(self.drop(F.relu(self.norm(self.a(x)))))
net = Net()
loader = DataLoader(TensorDataset(xs, ys), batch_size=4, shuffle=True)
"""

KINDS: dict[str, Kind] = {
    "plain SGD": Kind(
        START + _NET + "opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)\n",
        """
for epoch in range(3):
    for x, y in loader:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
print(loss)
""",
    ),
    "everything made in the cell": Kind(
        START,
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
    ),
    "Adam, OneCycleLR, a scaler that is off": Kind(
        START
        + _NET
        + """
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
    scaler.step(opt); scaler.update(); sched.step()
""",
    ),
    "AdamW, cosine restarts, a scaler that is on": Kind(
        START
        + _NET
        + """
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
    "EMA by deepcopy and AveragedModel": Kind(
        START
        + _NET
        + """
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
    "metrics: own class, list, deque, defaultdict, Counter": Kind(
        START
        + _NET
        + """
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
class Metric:
    best = float("inf")
    registry = []
    def __init__(self): self.reset()
    def reset(self): self.total, self.n, self.confusion = 0.0, 0, np.zeros((3, 3), int)
    def update(self, loss, out, y):
        self.total += loss; self.n += 1
        for t, p in zip(y.tolist(), out.argmax(1).tolist()): self.confusion[t, p] += 1
        Metric.best = min(Metric.best, loss); Metric.registry.append(loss)
    @property
    def mean(self): return self.total / self.n
metric, losses, recent = Metric(), [], collections.deque(maxlen=5)
history, counts, seen = collections.defaultdict(list), collections.Counter(), {"a"}
best = {"loss": 9.0, "state": None}
""",
        """
metric.reset()
for i, (x, y) in enumerate(loader):
    out = net(x); loss = F.cross_entropy(out, y)
    opt.zero_grad(); loss.backward(); opt.step()
    metric.update(loss.item(), out, y); losses.append(loss); recent.append(loss.detach())
    history["loss"].append(loss.item()); history[f"step{i}"].append(i); counts.update(y.tolist())
    seen.add(f"s{len(losses)}")
    if loss.item() < best["loss"]:
        best["loss"], best["state"] = loss.item(), copy.deepcopy(net.state_dict())
""",
    ),
    "metrics of torchmetrics, in the notebook and on the model": Kind(
        START
        + """
import torchmetrics
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC, MulticlassConfusionMatrix
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 12), nn.Linear(12, 3)
        self.accuracy, self.mean = MulticlassAccuracy(num_classes=3), torchmetrics.MeanMetric()
    def forward(self, x):
        return self.b(F.relu(self.a(x)))
net = Net()
opt = torch.optim.Adam(net.parameters(), 1e-3)
loader = DataLoader(TensorDataset(xs, ys), batch_size=4, shuffle=True)
auroc, losses = MulticlassAUROC(num_classes=3), torchmetrics.CatMetric()
metrics = torchmetrics.MetricCollection({"acc": MulticlassAccuracy(num_classes=3, average=None),
    "confusion": MulticlassConfusionMatrix(num_classes=3)}, prefix="train/")
tracker = torchmetrics.wrappers.MetricTracker(torchmetrics.MeanSquaredError())
boot = torchmetrics.wrappers.BootStrapper(torchmetrics.MeanMetric(), num_bootstraps=2)
kept, epochs = metrics.clone(prefix="kept/"), []
""",
        """
for epoch in range(2):
    metrics.reset(); tracker.increment()
    for x, y in loader:
        out = net(x); loss = F.cross_entropy(out, y)
        opt.zero_grad(); loss.backward(); opt.step()
        net.accuracy(out, y); net.mean.update(loss.detach(), weight=len(x)); metrics.update(out.detach(), y)
        auroc.update(out.detach().softmax(1), y); losses.update(loss.detach()); boot.update(out.detach().flatten())
        tracker.update(out.argmax(1).float().detach(), y.float())
    epochs.append({**metrics.compute(), "auroc": auroc.compute(), "acc": net.accuracy.compute()})
    net.accuracy.reset(); net.mean = torchmetrics.MeanMetric()
""",
    ),
    "GAN with two optimizers": Kind(
        START
        + """
G = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6)); D = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 1))
optG = torch.optim.Adam(G.parameters(), 2e-4, betas=(0.5, 0.99))
optD = torch.optim.Adam(D.parameters(), 2e-4, betas=(0.5, 0.99))
fixed = torch.randn(3, 4); images = []
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
    with torch.no_grad(): images.append(G(fixed))
""",
    ),
    "LBFGS": Kind(
        START + "lin = nn.Linear(6, 3)\nlbfgs = torch.optim.LBFGS(lin.parameters(), lr=0.5, max_iter=4)\n",
        """
def closure():
    lbfgs.zero_grad()
    loss = F.cross_entropy(lin(xs), ys)
    loss.backward()
    return loss
for turn in range(12):
    lbfgs.step(closure)
""",
    ),
    "a trainer class that holds everything": Kind(
        START
        + _NET
        + """
class Callback:
    __slots__ = ("history", "best")
    def __init__(self): self.history = []
    def __call__(self, loss): self.history.append(loss); self.best = min(getattr(self, "best", 9e9), loss)
class Trainer:
    def __init__(self, model):
        self.model, self.opt = model, torch.optim.Adam(model.parameters(), 1e-3)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda e: 0.9 ** e)
        self.step, self.callbacks, self.ema = 0, [Callback()], {k: v.clone() for k, v in model.state_dict().items()}
    def fit(self, loader, epochs=1):
        self.model.train()
        for self.epoch in range(epochs):
            for self.batch in loader:
                x, y = self.batch
                self.loss = F.cross_entropy(self.model(x), y)
                self.opt.zero_grad(); self.loss.backward(); self.opt.step(); self.step += 1
                for c in self.callbacks: c(self.loss.item())
                for k, v in self.model.state_dict().items(): self.ema[k] = 0.9 * self.ema[k] + 0.1 * v
            self.sched.step()
trainer = Trainer(net)
""",
        "trainer.fit(loader, 2)\n",
    ),
    "functions of earlier cells that change globals": Kind(
        START
        + _NET
        + """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
step, lr, log, cache, START_EPOCH = 0, 0.1, [], {}, 3
def lr_at(i):
    global lr
    lr = 0.1 * 0.99 ** i
    return lr
def train_step(x, y, *, seen=[]):
    global step, last_loss, net
    for g in opt.param_groups: g["lr"] = lr_at(step)
    opt.zero_grad(); loss = F.cross_entropy(net(x), y); loss.backward(); opt.step()
    step += 1; last_loss = loss; seen.append(step); cache[step] = x; train_step.calls = step
    return loss.item()
def counter():
    n = 0
    def up():
        nonlocal n
        n += 1
        return n
    return up
up = counter()
""",
        """
del START_EPOCH, counter
xs = xs * 2
extra, Thing = [net], type("Thing", (), {})
for epoch in range(2):
    net = copy.deepcopy(net).eval() if epoch else net
    for x, y in loader:
        log.append(train_step(x, y)); up()
        if len(log) == 2: del cache[1]; ys = None
""",
        before=0,
    ),
    "a generator, and persistent workers alive from an earlier run": Kind(
        START
        + _NET
        + """
class Noisy(Dataset):
    def __init__(self): self.served = 0
    def __len__(self): return 96
    def __getitem__(self, i):
        self.served += 1
        return xs[i] + 0.1 * torch.randn(6), ys[i]
g = torch.Generator().manual_seed(3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
workers = DataLoader(Noisy(), 4, shuffle=True, generator=g, num_workers=1, persistent_workers=True)
""",
        """
for x, y in workers:
    opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
""",
    ),
    "samplers and seeds of many makes": Kind(
        START
        + _NET
        + """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
weights = torch.rand(96)
wg = torch.Generator().manual_seed(1)
weighted = DataLoader(TensorDataset(xs, ys), 4, sampler=WeightedRandomSampler(weights, 96, generator=wg))
rng, old, dice = np.random.default_rng(5), np.random.RandomState(6), random.Random(7)
philox = np.random.Generator(np.random.Philox(8))
""",
        """
for x, y in weighted:
    x = x + float(rng.normal() + old.rand() + dice.random() + np.random.rand() + random.random() + philox.normal())
    rng.shuffle(weights.numpy())
    opt.zero_grad(); F.cross_entropy(net(x + torch.rand(6)), y).backward(); opt.step()
""",
    ),
    "a sparse embedding with SparseAdam, gradients accumulated": Kind(
        START
        + """
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
    ),
    "tied, weight-normed and spectral-normed weights": Kind(
        START
        + """
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
    ),
    "a model with hooks, frozen layers, lazy layers": Kind(
        START
        + """
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
    ),
    "dataclasses, enums, paths, an open log, a database": Kind(
        START
        + _NET
        + """
import enum, sqlite3, pathlib
@dataclasses.dataclass(frozen=True)
class Config:
    lr: float = 0.1
    tags: list = dataclasses.field(default_factory=list)
@dataclasses.dataclass(slots=True)
class State:
    step: int = 0
    best: float = 9.0
    losses: list = dataclasses.field(default_factory=list)
class Phase(enum.Enum):
    TRAIN = 1
cfg, state, phase, place = Config(), State(), Phase.TRAIN, pathlib.Path("runs")
handle = open(LOG, "a")
db = sqlite3.connect(":memory:"); db.execute("create table losses (v)")
opt = torch.optim.SGD(net.parameters(), lr=cfg.lr)
""",
        """
for x, y in loader:
    opt.zero_grad(); loss = F.cross_entropy(net(x), y); loss.backward(); opt.step()
    state.step += 1; state.losses.append(loss.item()); state.best = min(state.best, state.losses[-1])
    cfg.tags.append(str(state.step)); phase = None
""",
    ),
    "files: a log that is appended to, a checkpoint over an old one, one deleted, one renamed": Kind(
        START
        + _NET
        + """
import os, pathlib, shutil
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.save(net.state_dict(), "best.pt"); torch.save(opt.state_dict(), "old.pt")
pathlib.Path("log.csv").write_text("loss\\n")
os.makedirs("runs/1", exist_ok=True); pathlib.Path("runs/1/kept.txt").write_text("kept"); os.chmod("log.csv", 0o640)
""",
        """
for i, (x, y) in enumerate(loader):
    opt.zero_grad(); loss = F.cross_entropy(net(x), y); loss.backward(); opt.step()
    with open("log.csv", "a") as f: f.write(f"{loss.item()}\\n")
    if i == 1:
        torch.save(net.state_dict(), "best.pt"); torch.save(net.state_dict(), "tmp.pt"); os.replace("tmp.pt", "last.pt")
        os.path.exists("old.pt") and os.remove("old.pt")
        if os.path.isdir("runs"): os.rename("runs", "runs-before")
        os.makedirs(f"made/{i}", exist_ok=True); np.save(f"made/{i}/x.npy", x.numpy())
    if i == 2 and os.path.isdir("runs-before"): shutil.rmtree("runs-before")
""",
        before=0,
    ),
    "files: a database, a log, a checkpoint that it resumes from": Kind(
        START
        + _NET
        + """
import os, sqlite3, logging
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.save({"net": net.state_dict(), "step": 0}, "last.pt")
with sqlite3.connect("runs.db") as made: made.executescript("drop table if exists losses; create table losses (v)")
made.close(); del made
with open("train.log", "w", buffering=1) as handle: handle.write("begun\\n")
del handle
""",
        """
handle, db = open("train.log", "a"), sqlite3.connect("runs.db")
state = torch.load("last.pt"); net.load_state_dict(state["net"]); step = state["step"]
for i, (x, y) in enumerate(loader):
    opt.zero_grad(); loss = F.cross_entropy(net(x), y); loss.backward(); opt.step()
    step += 1; handle.write(f"{loss.item()}\\n")
    db.execute("insert into losses values (?)", (loss.item(),)); db.commit()
    torch.save({"net": net.state_dict(), "step": step}, "last.pt")
    with sqlite3.connect("more.db") as more: more.execute("create table if not exists t (v)")
    more.close(); del more
handle.close(); db.close(); del handle, db
""",
    ),
    "files: arrays mapped from a file, written by the loader's workers too": Kind(
        START
        + _NET
        + """
import os, pathlib
opt = torch.optim.SGD(net.parameters(), lr=0.1)
np.arange(64, dtype=np.float32).tofile("mapped.bin")
mapped = np.memmap("mapped.bin", dtype=np.float32, mode="c")
class Caching(Dataset):
    def __len__(self): return 96
    def __getitem__(self, i):
        pathlib.Path(f"cache-{i % 3}.txt").write_text(str(i))
        return xs[i], ys[i]
workers = DataLoader(Caching(), 4, num_workers=1)
pathlib.Path("cache-1.txt").write_text("there before")
""",
        """
for x, y in workers:
    opt.zero_grad(); loss = F.cross_entropy(net(x), y); loss.backward(); opt.step()
    mapped[:4] += loss.item(); mapped.flush()
    other = np.memmap("mapped.bin", dtype=np.float32, mode="r+"); other[8:] = 0; other.flush()
""",
        before=0,
    ),
    "a replay buffer and a target network": Kind(
        START
        + """
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
    ),
    "functional: parameters as a dict of tensors, momentum by hand": Kind(
        START
        + """
W, b = torch.randn(6, 3, requires_grad=True), torch.zeros(3, requires_grad=True)
opt = torch.optim.SGD([W, b], lr=0.1)
params = {"W": W, "b": b}
velocity = {k: torch.zeros_like(v) for k, v in params.items()}
total = torch.zeros(()); means = torch.zeros(3)
spare, other, third = torch.ones(5), torch.ones(6), torch.ones(7)
""",
        """
for i in range(0, 96, 4):
    loss = F.cross_entropy(xs[i:i + 4] @ params["W"] + params["b"], ys[i:i + 4])
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        for k, p in params.items(): velocity[k].mul_(0.9).add_(p.grad)
    total = total + loss; means += F.one_hot(ys[i:i + 4], 3).sum(0)
    if i == 4: spare.data = torch.zeros(2, 2); other.resize_(70).zero_(); third.set_(torch.ones(3).untyped_storage())
""",
        before=0,
    ),
    "a seed helper, switches of torch, the environment": Kind(
        START
        + _NET
        + """
import os
def seed_everything(seed):
    random.seed(seed); np.random.seed(seed); torch.manual_seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed); os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True, warn_only=True); torch.backends.cudnn.benchmark = True
    torch.autograd.set_detect_anomaly(True); torch.set_float32_matmul_precision("high")
opt = torch.optim.SGD(net.parameters(), lr=0.1)
here = os.getcwd()
""",
        """
seed_everything(7)
os.chdir("/")
for x, y in loader:
    opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
""",
        before=0,
    ),
    "a training module of one's own, imported": Kind(
        START
        + _NET
        + """
import sys, pathlib
folder = pathlib.Path(LOG).parent
(folder / "my_training.py").write_text("STEP, history, model = 0, [], None\\n"
    "def tick(loss):\\n    global STEP, best\\n    STEP += 1; best = loss; history.append(loss)\\n")
sys.path.insert(0, str(folder)); sys.modules.pop("my_training", None)
import my_training
from my_training import tick
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def state(): return dict(vars(my_training))
probe = {"of": my_training.history}
""",
        """
my_training.model = net
for x, y in loader:
    opt.zero_grad(); loss = F.cross_entropy(net(x), y); loss.backward(); opt.step(); tick(loss.item())
""",
        before=0,
    ),
}

PICTURES = Kind(
    START
    + """
conv = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Linear(8, 3))
opt = torch.optim.Adam(conv.parameters(), 1e-3)
loader = DataLoader(TensorDataset(torch.randn(96, 3, 8, 8), ys), 4, shuffle=True)
""",
    """
for x, y in loader:
    opt.zero_grad()
    F.cross_entropy(conv(x), y).backward()
    opt.step()
""",
)
"""Convolutions, for the one knob that is about them; the other kinds have none."""
