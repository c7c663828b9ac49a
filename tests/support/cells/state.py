"""Cells that change more than a model: metrics, trainers, modules, files and the process."""

from __future__ import annotations

from typing import Final

from tests.support.cells.cell import Cell

CELLS: Final[dict[str, Cell]] = {
    "metrics: own class, list, deque, defaultdict, Counter": Cell(
        """
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
    "metrics of torchmetrics, in the notebook and on the model": Cell(
        """
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
        net=False,
    ),
    "a trainer class that holds everything": Cell(
        """
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
    "functions of earlier cells that change globals": Cell(
        """
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
    "dataclasses, enums, paths, an open log, a database": Cell(
        """
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
    "files: a log that is appended to, a checkpoint over an old one, one deleted, one renamed": Cell(
        """
import gc, os, pathlib, shutil
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
    torch.save(list(net.parameters()), "old-form.pt", _use_new_zipfile_serialization=False); gc.collect(0)
""",
        before=0,
        faults=True,
    ),
    "files: a database, a log, a checkpoint that it resumes from": Cell(
        """
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
    "files: arrays mapped from a file, written by the loader's workers too": Cell(
        """
import os, pathlib
opt = torch.optim.SGD(net.parameters(), lr=0.1)
np.arange(64, dtype=np.float32).tofile("mapped.bin")
mapped = np.memmap("mapped.bin", dtype=np.float32, mode="c")
class Caching(Dataset):
    def __len__(self): return ROWS
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
    "a seed helper, switches of torch, the environment": Cell(
        """
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
    "a training module of one's own, imported": Cell(
        """
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
