"""What kind of seconds each rule prices, and why two of one kind may both stand: one cause is billed once.

Two findings that price the same kind of seconds must be settled: one excludes the other (`EXCLUDES`) or subtracts it
(`rules.gpu_idle`), or both stand, for the reason given in `STAND`. `found.sick` holds every loop of the rules' tests to
that, `tests/unit/diagnosis/test_one_cause.py` the clinic's recordings and any two troubles laid on one loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from gpu_doctor.diagnosis import Diagnosis
from gpu_doctor.diagnosis.rules.rule import Finding

SECONDS: dict[str, str] = {
    "wait": "loader-without-workers too-few-workers too-many-workers slow-getitem slow-collate slow-storage"
    " uneven-batches workers-restart-each-epoch slow-epoch-start workers-cannot-start slow-generator",
    "copies": "pageable-transfer blocking-transfer heavy-transfer many-small-transfers slow-link",
    "idle": "launch-bound not-compiled model-too-small small-batch needless-accumulation slow-python host-sync"
    " device-round-trips checkpoint-stall cache-emptied-each-step garbage-collected-each-step debug-mode-on"
    " unfused-optimizer python-in-forward recompiles augmentation-in-loop hidden-sync",
    "kernels": "full-precision double-precision tf32-off cudnn-not-tuned channels-first-convolutions"
    " attention-by-hand emulated-half-precision throttled capped-clocks shared-gpu changing-shapes unused-gradients"
    " redundant-forward per-sample-forward loss-in-a-loop slow-attention-kernel"
    " wasted-padding frozen-recomputed",
    "evaluation": "heavy-evaluation eval-with-gradients",
    "ranks": "data-parallel",
    "on the CPU": "model-on-cpu cpu-oversubscription cpu-only-torch driver-too-old dense-embedding-gradients",
    "repeated steps": "iterable-duplicated",
    "none": "out-of-memory near-out-of-memory fragmented-memory memory-growth host-memory-pressure small-shared-memory"
    " unsupported-architecture idle-gpus",
}
"""What kind of seconds a rule prices: the wait for data, copies, the GPU's idling, its computing, ..."""
KIND = {name: kind for kind, names in SECONDS.items() for name in names.split()}

WORKERS = {"loader-without-workers", "too-few-workers"}
EDGES = {"workers-restart-each-epoch", "slow-epoch-start"}
CHORES = {
    *("checkpoint-stall", "cache-emptied-each-step", "garbage-collected-each-step", "slow-python"),
    *("python-in-forward", "augmentation-in-loop", "hidden-sync"),
}
BATCHES = {"small-batch", "needless-accumulation", "launch-bound", "not-compiled"}
CARD = {"throttled", "capped-clocks", "shared-gpu"}
CODE = {
    *("full-precision", "double-precision", "tf32-off", "emulated-half-precision", "attention-by-hand"),
    "slow-attention-kernel",
    *("cudnn-not-tuned", "channels-first-convolutions", "changing-shapes"),
}
NEEDLESS = {
    *("unused-gradients", "per-sample-forward", "loss-in-a-loop", "wasted-padding", "frozen-recomputed"),
}
STAND: tuple[tuple[set[str], set[str], str], ...] = (
    # the wait for data
    (EDGES, WORKERS | {"too-many-workers"}, "what epochs begin late is subtracted there"),
    (EDGES, {"slow-collate", "slow-getitem", "slow-storage"}, "what epochs begin late is subtracted there"),
    (WORKERS, {"slow-getitem"}, "what stays a wait with as many workers as help: the next thing to do, and priced so"),
    ({"slow-storage"}, {"slow-getitem"}, "the fetch's waiting, and its computing"),
    # copies
    ({"slow-link"}, {"pageable-transfer", "heavy-transfer"}, "how and what is copied, and over what: gains multiply"),
    # the GPU idles
    (CHORES, CHORES, "each has the host's seconds of its own calls, and slow-python those that are left"),
    (
        CHORES | {"host-sync", "device-round-trips", "unfused-optimizer", "recompiles"},
        BATCHES,
        "subtracted in gpu_idle.launching",
    ),
    (
        {"recompiles"},
        CHORES | {"host-sync", "device-round-trips", "unfused-optimizer", "debug-mode-on"},
        "the host compiles, or does that",
    ),
    (CHORES | {"unfused-optimizer"}, {"device-round-trips", "unfused-optimizer"}, "the host is in one place at a time"),
    ({"unfused-optimizer"}, {"host-sync"}, "its price is subtracted there"),
    (CHORES, {"host-sync"}, "chores are subtracted there; its price is subtracted from slow-python"),
    ({"host-sync"}, {"device-round-trips"}, "trips are subtracted there, and so are their waits"),
    (
        {"debug-mode-on"},
        CHORES | {"host-sync", "device-round-trips", "unfused-optimizer"},
        "the aid slows launches; where its price is the idling, these are subtracted from it",
    ),
    # the GPU computes
    (CARD, CARD, "what clocks and neighbours take: gains multiply"),
    (CARD, CODE, "what kernels run, and how fast the card runs any: gains multiply"),
    ({"changing-shapes"}, CODE, "what a new shape costs before its kernels run, and the kernels"),
    (
        {"cudnn-not-tuned"},
        {"full-precision", "double-precision", "tf32-off", "emulated-half-precision"},
        "algorithms are timed by dtype",
    ),
    (
        NEEDLESS | {"redundant-forward"},
        CARD | CODE | NEEDLESS,
        "what is computed at all, and how",
    ),
    (
        {"attention-by-hand", "slow-attention-kernel"},
        CODE,
        "the attention's kernels, and those of all layers: gains multiply",
    ),
    # the rest
    ({"heavy-evaluation"}, {"eval-with-gradients"}, "how often, and how: half as often, without gradients gains more"),
    ({"dense-embedding-gradients"}, {"model-on-cpu", "cpu-oversubscription"}, "what is computed, and where"),
    ({"model-on-cpu"}, {"cpu-oversubscription"}, "where it computes, and with how many threads while it does"),
)


def reason(one: str, other: str) -> str | None:
    """Why both findings stand; None = not settled."""
    return next((why for a, b, why in STAND if (one in a and other in b) or (one in b and other in a)), None)


def of_one_kind(diagnosis: Diagnosis) -> Iterator[tuple[Finding, Finding]]:
    """Pairs of priced findings of the same kind of seconds."""
    priced = [one for one in diagnosis.findings if not one.risk and not one.hint]
    for one, other in itertools.combinations(priced, 2):
        if KIND[one.rule] == KIND[other.rule]:
            yield one, other


def unsettled(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Rules that bill the same seconds without a reason."""
    pairs = [(one.rule, other.rule) for one, other in of_one_kind(diagnosis)]
    return [(one, other) for one, other in pairs if reason(one, other) is None]
