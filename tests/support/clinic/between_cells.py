"""Patients with work between the forward and the backward: metrics that keep training waiting, and dear losses."""

from tests.support.clinic.cell import Cell
from tests.support.clinic.host_cells import digits

METRIC_FIRST = Cell(
    name="a-metric-before-the-backward",
    klass="host",
    top=("slow-python",),
    before=digits(150),
    sick="""
        right, losses = 0, []
        for x, y in loader:
            logits = model(x)
            loss = criterion(logits, y)
            scores = [[logits[i, k].item() for k in range(10)] for i in range(len(y))]
            ranks = [sorted(range(10), key=lambda k: -row[k]) for row in scores]
            right += sum(rank[0] == t for rank, t in zip(ranks, y.tolist()))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    """,
    cured="""
        losses = []
        for x, y in loader:
            logits = model(x)
            loss = criterion(logits, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    """,
)

FUNCTION_OF_METRICS = Cell(
    name="metrics-by-a-function-of-another-cell",
    klass="host",
    top=("slow-python",),
    before=digits(150)
    + """
        def matches(logits, y, at):
            found = 0
            for row, target in zip(logits, y):
                best = torch.topk(row, at).indices
                found += int(target in best)
            return found

        def report(logits, y):
            return {f"top{at}": matches(logits.detach(), y, at) / len(y) for at in (1, 3, 5)}
    """,
    sick="""
        history = []
        for x, y in loader:
            optimizer.zero_grad()
            logits = model(x)
            loss = criterion(logits, y)
            scores = report(logits, y)
            loss.backward()
            optimizer.step()
            history.append(scores)
    """,
    cured="""
        history = []
        for x, y in loader:
            optimizer.zero_grad()
            logits = model(x)
            loss = criterion(logits, y)
            loss.backward()
            optimizer.step()
            history.append(loss.detach())
    """,
)

STEP_IN_A_FUNCTION = Cell(
    name="a-train-step-that-counts-tokens",
    klass="host",
    top=("slow-python",),
    before=digits(150)
    + """
        from collections import Counter

        class Trainer:
            def __init__(self):
                self.seen = Counter()

            def train_step(self, x, y):
                optimizer.zero_grad()
                logits = model(x)
                loss = criterion(logits, y)
                self.seen.update(round(value, 1) for value in x.flatten()[:12000].tolist())
                common = self.seen.most_common(1)[0][0]
                loss.backward()
                optimizer.step()
                return loss.item(), common

        class Plain(Trainer):
            def train_step(self, x, y):
                optimizer.zero_grad()
                logits = model(x)
                loss = criterion(logits, y)
                loss.backward()
                optimizer.step()
                return loss.item()
    """,
    sick="""
        trainer, losses = Trainer(), []
        for x, y in loader:
            loss, common = trainer.train_step(x, y)
            losses.append(loss)
    """,
    cured="""
        trainer, losses = Plain(), []
        for x, y in loader:
            losses.append(trainer.train_step(x, y))
    """,
)

CONTRASTIVE = Cell(
    name="a-contrastive-loss",
    klass="compute",
    healthy=True,
    never=("slow-python",),
    before=digits(120)
    + """
        def contrastive(z, y, heat=0.1):
            z = z / z.norm(dim=1, keepdim=True)
            alike = z @ z.T / heat
            same = (y[:, None] == y[None, :]).float()
            far = torch.cdist(z, z).exp()
            return -(same * alike.log_softmax(1)).sum() / same.sum() + (far * (1 - same)).mean()
    """,
    sick="""
        for x, y in loader:
            x, y = x.repeat(6, 1), y.repeat(6)
            optimizer.zero_grad()
            loss = contrastive(model(x), y)
            loss.backward()
            optimizer.step()
    """,
)

WEIGHTED_LOSSES = Cell(
    name="three-losses-and-a-cheap-metric",
    klass="compute",
    healthy=True,
    never=("slow-python",),
    before=digits(120),
    sick="""
        right = 0
        for x, y in loader:
            logits = model(x)
            losses = {"ce": criterion(logits, y), "z": logits.logsumexp(1).square().mean(), "l2": 0.0}
            for p in model.parameters():
                losses["l2"] = losses["l2"] + 1e-4 * p.square().sum()
            loss = sum(losses.values())
            right += (logits.argmax(1) == y).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
)

CELLS = (METRIC_FIRST, FUNCTION_OF_METRICS, STEP_IN_A_FUNCTION, CONTRASTIVE, WEIGHTED_LOSSES)
