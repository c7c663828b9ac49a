"""Patients whose own Python, or whose chores besides training, keep the model waiting."""

from tests.support.clinic.cell import Cell

DIGITS = """
        import torch
        from torch import nn
        from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
        torch.set_num_threads(1)
        torch.manual_seed(0)
        X, Y = torch.randn(%d, 784), torch.randint(0, 10, (%d,))
        train = TensorDataset(X, Y)
        loader = DataLoader(train, batch_size=None, sampler=BatchSampler(RandomSampler(train), 64, True))
        model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        criterion = nn.CrossEntropyLoss()
"""


def digits(steps: int) -> str:
    """A classifier in memory whose steps are healthy, so many an epoch: whatever comes on top is the patient's own."""
    return DIGITS % (64 * steps, 64 * steps)


CONFUSION = Cell(
    name="confusion-matrix-each-step",
    klass="host",
    top=("slow-python",),
    before=digits(150),
    sick="""
        matrix = [[0] * 10 for _ in range(10)]
        history = []
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            logits = model(x)
            loss = criterion(logits, y)
            loss.backward()
            optimizer.step()

            # metrics
            guess = logits.argmax(1).numpy()
            for g, t in zip(guess, y.numpy()):
                matrix[t][g] += 1
            scores = []
            for k in range(10):
                tp = matrix[k][k]
                fp = sum(matrix[j][k] for j in range(10)) - tp
                fn = sum(matrix[k]) - tp
                scores.append(2 * tp / max(2 * tp + fp + fn, 1))
            ranked = sorted((float(v) for row in logits.detach().numpy() for v in row), reverse=True)
            for cut in range(0, len(ranked), 2):
                sum(v >= ranked[cut] for v in ranked[:100])
            history.append((step, loss.item(), sum(scores) / 10))
    """,
    cured="""
        history = []
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            logits = model(x)
            loss = criterion(logits, y)
            loss.backward()
            optimizer.step()
            history.append((step, loss.detach()))
    """,
)

TOLIST = Cell(
    name="tolist-of-all-logits",
    klass="host",
    top=("slow-python",),
    before="""
        import torch
        from torch import nn
        torch.set_num_threads(1)

        class Tagger(nn.Module):
            def __init__(self, vocab=2000):
                super().__init__()
                self.embed = nn.Embedding(vocab, 48)
                self.out = nn.Linear(48, 400)
            def forward(self, ids):
                return self.out(self.embed(ids))

        model = Tagger()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = [(torch.randint(0, 2000, (16, 32)), torch.randint(0, 400, (16, 32))) for _ in range(60)]
    """,
    sick="""
        predictions = []
        for ids, tags in data:
            logits = model(ids)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tags.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rows = logits.detach().flatten(0, 1).tolist()
            predictions = [row.index(max(row)) for row in rows]
    """,
    cured="""
        predictions = []
        for ids, tags in data:
            logits = model(ids)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tags.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
)

JOURNAL = Cell(
    name="journal-flushed-each-step",
    klass="host",
    top=("slow-python",),
    before=digits(150),
    sick="""
        import json, os, tempfile
        log = open(os.path.join(tempfile.gettempdir(), "clinic-log.jsonl"), "w")
        weights = [p for p in model.parameters() if p.ndim == 1]
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            line = {"step": step, "loss": float(loss), "biases": [float(v) for p in weights for v in p.data]}
            log.write(json.dumps(line, indent=1) + chr(10))
            log.flush()
        log.close()
    """,
    cured="""
        losses = []
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    """,
)

CALLBACKS = Cell(
    name="trainer-with-a-slow-callback",
    klass="host",
    top=("slow-python",),
    before=digits(40)
    + """
        class Callback:
            def on_step_end(self, trainer): pass

        class Sparkline(Callback):
            # draws the curve so far as text, after every step
            def on_step_end(self, trainer):
                low, high = min(trainer.losses), max(trainer.losses) + 1e-9
                rows = []
                for level in range(30):
                    row = ""
                    for column in range(240):
                        at = trainer.losses[column * len(trainer.losses) // 240]
                        row += "#" if (at - low) / (high - low) * 30 >= level else " "
                    rows.append(row)
                self.text = chr(10).join(reversed(rows))

        class Trainer:
            def __init__(self, model, optimizer, loss_fn, callbacks=()):
                self.model, self.optimizer, self.loss_fn, self.callbacks = model, optimizer, loss_fn, callbacks
                self.losses = []

            def training_step(self, batch):
                x, y = batch
                return self.loss_fn(self.model(x), y)

            def fit(self, loader, epochs):
                for epoch in range(epochs):
                    for batch in loader:
                        self.optimizer.zero_grad()
                        loss = self.training_step(batch)
                        loss.backward()
                        self.optimizer.step()
                        self.losses.append(loss.item())
                        for callback in self.callbacks:
                            callback.on_step_end(self)
    """,
    sick="""
        trainer = Trainer(model, optimizer, criterion, callbacks=[Sparkline()])
        trainer.fit(loader, epochs=4)
    """,
    cured="""
        trainer = Trainer(model, optimizer, criterion)
        trainer.fit(loader, epochs=4)
    """,
)

AFTER_STEP = Cell(
    name="host-work-after-the-step",
    klass="host",
    top=("slow-python",),
    never=("loader-without-workers", "slow-getitem", "slow-collate"),
    before=digits(100),
    sick="""
        import time
        for x, y in loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.012)  # posts the metrics to a server
    """,
    cured="""
        for x, y in loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
)

AUGMENTING = Cell(
    name="augmenting-in-the-loop-body",
    klass="host",
    top=("augmentation-in-loop",),
    before=digits(90),
    sick="""
        import random
        for x, y in loader:
            noisy = []
            for image in x.view(-1, 28, 28):
                rows = image.numpy().tolist()
                if random.random() < 0.5:
                    rows = [list(reversed(row)) for row in rows]
                noisy.append(torch.tensor(rows))
            x = torch.stack(noisy).flatten(1)
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
    """,
    cured="""
        for x, y in loader:
            images = x.view(-1, 28, 28)
            flip = torch.rand(len(images)) < 0.5
            x = torch.where(flip[:, None, None], images.flip(2), images).flatten(1)
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
    """,
)

CELLS = (
    CONFUSION,
    TOLIST,
    JOURNAL,
    CALLBACKS,
    AFTER_STEP,
    AUGMENTING,
)
