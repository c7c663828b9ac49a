"""Cells that train from different loaders: samplers, streams, workers and datasets."""

from __future__ import annotations

from typing import Final

from tests.support.cells.cell import LOOP, SGD, Cell

CELLS: Final[dict[str, Cell]] = {
    "a generator, and persistent workers alive from an earlier run": Cell(
        """
class Noisy(Dataset):
    def __init__(self): self.served = 0
    def __len__(self): return ROWS
    def __getitem__(self, i):
        self.served += 1
        return xs[i] + 0.1 * torch.randn(6), ys[i]
g = torch.Generator().manual_seed(3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
workers = DataLoader(Noisy(), 4, shuffle=True, generator=g, num_workers=1, persistent_workers=True)
""",
        """
for epoch in range(2):
    for x, y in workers:
        opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
""",
        faults=True,
        workers=True,
        loader_alone=True,
    ),
    "samplers and seeds of many makes": Cell(
        """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
weights = torch.rand(ROWS)
wg = torch.Generator().manual_seed(1)
weighted = DataLoader(TensorDataset(xs, ys), 4, sampler=WeightedRandomSampler(weights, ROWS, generator=wg))
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
    "a subclass with another __init__": Cell(
        SGD
        + """
class Pairs(DataLoader):
    def __init__(self, rows, size, *, note):
        super().__init__(rows, size, shuffle=True)
        self.note = note
    def __iter__(self):
        for x, y in super().__iter__():
            yield x, y
loader = Pairs(Items(xs, ys), 4, note="mine")
""",
        LOOP,
        restored=False,
        knobs=True,
    ),
    "a batch sampler of one's own": Cell(
        SGD
        + """
from torch.utils.data import Sampler
class Halves(Sampler):
    def __iter__(self): return iter([list(range(i, i + 4)) for i in range(0, ROWS, 4)])
    def __len__(self): return ROWS // 4
loader = DataLoader(Items(xs, ys), batch_sampler=Halves())
""",
        LOOP,
        restored=False,
        knobs=True,
        refuses={"batch_size": "batch_sampler (Halves) decides the batch size"},
    ),
    "torch's batch sampler": Cell(
        SGD
        + """
from torch.utils.data import BatchSampler
loader = DataLoader(Items(xs, ys), batch_sampler=BatchSampler(RandomSampler(xs), 4, False))
""",
        LOOP,
        restored=False,
        knobs=True,
    ),
    "a weighted sampler with a generator": Cell(
        SGD
        + """
generator = torch.Generator().manual_seed(3)
sampler = WeightedRandomSampler(torch.rand(ROWS), ROWS, generator=generator)
loader = DataLoader(Items(xs, ys), 4, sampler=sampler, generator=generator)
""",
        LOOP,
        restored=False,
        knobs=True,
    ),
    "a stream that shards": Cell(
        SGD
        + """
from torch.utils.data import get_worker_info
class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return ((xs[i], ys[i]) for i in range(first, ROWS, step))
loader = DataLoader(Stream(), batch_size=4)
""",
        LOOP,
        restored=False,
        knobs=True,
    ),
    "a stream that does not shard": Cell(
        SGD
        + """
class Stream(IterableDataset):
    def __iter__(self): return iter(zip(xs, ys))
loader = DataLoader(Stream(), batch_size=4)
""",
        LOOP,
        restored=False,
        knobs=True,
        refuses={
            "num_workers": "every worker would deliver all items again",
            **dict.fromkeys(("prefetch_factor", "persistent_workers"), "set num_workers above 0 first"),
        },
    ),
    "two loaders zipped": Cell(
        SGD + "others = DataLoader(TensorDataset(torch.randn(2 * ROWS, 6)), batch_size=8)\n",
        """
for (x, y), (other,) in zip(loader, others):
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y) + net(other).square().mean()
    loss.backward()
    opt.step()
""",
        restored=False,
        knobs=True,
    ),
    "batches that a thread of the user's own pulls": Cell(
        SGD
        + """
import queue, threading
def pulled(batches):
    def pull():
        for batch in loader: batches.put(batch)
        batches.put(None)
    puller = threading.Thread(target=pull, name="prefetch")
    puller.start()
    yield from iter(batches.get, None)
    puller.join()
""",
        LOOP.replace("in loader", "in pulled(queue.Queue(2))") * 2,
        restored=False,
        faults=True,
    ),
    "two forked workers": Cell(
        SGD
        + """
loader = DataLoader(Items(xs, ys), 4, shuffle=True, num_workers=2, multiprocessing_context="fork")
""",
        LOOP * 2,
        restored=False,
        faults=True,
        workers=True,
    ),
    "a stream of two forked workers": Cell(
        SGD
        + """
from tests.support.faults import Streamed
loader = DataLoader(Streamed(xs, ys), 4, num_workers=2, multiprocessing_context="fork")
""",
        LOOP * 2,
        restored=False,
        faults=True,
        workers=True,
        loader_alone=True,
    ),
    "two spawned workers": Cell(
        SGD
        + """
from tests.support.faults import Numbered
loader = DataLoader(Numbered(xs, ys), 4, shuffle=True, num_workers=2, multiprocessing_context="spawn")
""",
        LOOP,
        restored=False,
        faults=True,
        workers=True,
        loader_alone=True,
    ),
}
