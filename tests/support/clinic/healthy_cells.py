"""Patients that are well, or only look ill: a finding of 10 % or more on one of these is a false alarm."""

from tests.support.clinic.cell import Cell
from tests.support.clinic.compute_cells import EVALUATION
from tests.support.clinic.host_cells import digits

LOADER_RULES = ("loader-without-workers", "too-few-workers", "slow-getitem", "slow-collate", "uneven-batches")

PLAIN = Cell(
    name="plain-classifier",
    klass="compute",
    healthy=True,
    never=LOADER_RULES,
    before=digits(120),
    sick="""
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
    """,
)

EVERY_TEN = Cell(
    name="evaluation-every-ten-steps",
    klass="compute",
    healthy=True,
    never=(*LOADER_RULES, "slow-python"),
    before=digits(120) + EVALUATION % (256, 256),
    sick="""
        for step, (x, y) in enumerate(loader, 1):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(step, loss.item(), accuracy())
    """,
)

ACCUMULATION = Cell(
    name="four-micro-batches-a-step",
    klass="compute",
    healthy=True,
    never=LOADER_RULES,
    before=digits(160),
    sick="""
        optimizer.zero_grad()
        for i, (x, y) in enumerate(loader):
            loss = criterion(model(x), y) / 4
            loss.backward()
            if (i + 1) % 4 == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    """,
)

GAN = Cell(
    name="gan-with-two-optimizers",
    klass="compute",
    healthy=True,
    never=(*LOADER_RULES, "slow-python"),
    before=digits(60)
    + """
        maker = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 784), nn.Tanh())
        judge = nn.Sequential(nn.Linear(784, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1))
        opt_g = torch.optim.SGD(maker.parameters(), lr=2e-4)
        opt_d = torch.optim.SGD(judge.parameters(), lr=2e-4)
        bce = nn.BCEWithLogitsLoss()
        ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)
    """,
    sick="""
        for real, _ in loader:
            fake = maker(torch.randn(64, 64))
            opt_d.zero_grad()
            loss_d = bce(judge(real), ones) + bce(judge(fake.detach()), zeros)
            loss_d.backward()
            opt_d.step()

            opt_g.zero_grad()
            loss_g = bce(judge(fake), ones)
            loss_g.backward()
            opt_g.step()
    """,
)

TINY = Cell(
    name="tiny-model-on-whole-tensors",
    klass="compute",
    healthy=True,
    before="""
        import torch
        x = torch.linspace(-1, 1, 200).unsqueeze(1)
        y = 3 * x + 0.5 + 0.1 * torch.randn_like(x)
        model = torch.nn.Linear(1, 1)
        loss_fn = torch.nn.MSELoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    """,
    sick="""
        torch.set_num_threads(1)
        for epoch in range(2000):
            y_pred = model(x)
            loss = loss_fn(y_pred, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if epoch % 500 == 0:
                print(f"Epoch {epoch}, loss {loss.item():.4f}")
    """,
)

CHECKPOINT_EACH_EPOCH = Cell(
    name="checkpoint-each-epoch",
    klass="compute",
    healthy=True,
    never=("checkpoint-stall", *LOADER_RULES),
    before=digits(60),
    sick="""
        import os, tempfile
        for epoch in range(3):
            total = 0.0
            for x, y in loader:
                optimizer.zero_grad()
                loss = criterion(model(x), y)
                loss.backward()
                optimizer.step()
                total += loss.item()
            torch.save(model.state_dict(), os.path.join(tempfile.gettempdir(), "clinic-epoch.pt"))
            print(f"epoch {epoch}: {total / len(loader):.3f}")
    """,
)

SPARSE_LOGGING = Cell(
    name="logging-every-twenty-steps",
    klass="compute",
    healthy=True,
    never=("slow-python", *LOADER_RULES),
    before=digits(60),
    sick="""
        history = {"loss": [], "accuracy": []}
        for epoch in range(2):
            for step, (x, y) in enumerate(loader):
                optimizer.zero_grad()
                logits = model(x)
                loss = criterion(logits, y)
                loss.backward()
                optimizer.step()
                if step % 20 == 0:
                    history["loss"].append(loss.item())
                    history["accuracy"].append((logits.argmax(1) == y).float().mean().item())
    """,
)

LOSS_ITEMS = Cell(
    name="losses-as-numbers",
    klass="compute",
    healthy=True,
    never=("memory-growth", "slow-python"),
    before=digits(120),
    sick="""
        losses = []
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    """,
)

EARLY_EXIT = Cell(
    name="overfit-a-few-batches-then-break",
    klass="compute",
    healthy=True,
    before=digits(400),
    sick="""
        best, patience = float("inf"), 0
        try:
            for step, (x, y) in enumerate(loader):
                optimizer.zero_grad()
                loss = criterion(model(x), y)
                if torch.isnan(loss):
                    raise ValueError("diverged")
                loss.backward()
                optimizer.step()
                best = min(best, loss.item())
                if step >= 90:
                    raise StopIteration
        except StopIteration:
            pass
    """,
)

SEQUENCE = Cell(
    name="lstm-on-sequences",
    klass="compute",
    healthy=True,
    never=LOADER_RULES,
    before="""
        import torch
        import torch.nn as nn
        torch.set_num_threads(1)

        class LSTMTagger(nn.Module):
            def __init__(self, embedding_dim, hidden_dim, vocab_size, tagset_size):
                super().__init__()
                self.word_embeddings = nn.Embedding(vocab_size, embedding_dim)
                self.lstm = nn.LSTM(embedding_dim, hidden_dim, batch_first=True)
                self.hidden2tag = nn.Linear(hidden_dim, tagset_size)

            def forward(self, sentences):
                out, _ = self.lstm(self.word_embeddings(sentences))
                return self.hidden2tag(out)

        sentences = torch.randint(0, 500, (70, 16, 30))
        tags = torch.randint(0, 9, (70, 16, 30))
    """,
    sick="""
        model = LSTMTagger(64, 128, 500, 9)
        loss_function = nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for sentence, tag in zip(sentences, tags):
            model.zero_grad()
            scores = model(sentence)
            loss = loss_function(scores.flatten(0, 1), tag.flatten())
            loss.backward()
            optimizer.step()
    """,
)

CLOSURE = Cell(
    name="lbfgs-with-a-closure",
    klass="compute",
    healthy=True,
    before="""
        import torch
        from torch import nn
        torch.set_num_threads(1)
        x = torch.randn(2048, 64)
        y = torch.sin(x.sum(1, keepdim=True))
        model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 1))
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    """,
    sick="""
        def closure():
            optimizer.zero_grad()
            loss = (model(x) - y).pow(2).mean()
            loss.backward()
            return loss

        for i in range(60):
            optimizer.step(closure)
    """,
)

LBFGS = Cell(
    name="four-long-steps-of-lbfgs",
    klass="compute",
    healthy=True,
    few=True,
    before="""
        import torch
        from torch import nn
        torch.set_num_threads(1)
        x, y = torch.randn(1000, 256), torch.randn(1000, 1)
        model = nn.Sequential(nn.Linear(256, 400), nn.Tanh(), nn.Linear(400, 1))
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=20, history_size=10)
    """,
    sick="""
        def closure():
            optimizer.zero_grad()
            loss = (model(x) - y).pow(2).mean()
            loss.backward()
            return loss
        for step in range(4):
            optimizer.step(closure)
    """,
)

CELLS = (
    PLAIN,
    EVERY_TEN,
    ACCUMULATION,
    GAN,
    TINY,
    CHECKPOINT_EACH_EPOCH,
    SPARSE_LOGGING,
    LOSS_ITEMS,
    EARLY_EXIT,
    SEQUENCE,
    CLOSURE,
    LBFGS,
)
