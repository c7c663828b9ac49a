"""One cause first: a trouble is named by its own rule, and no two rules bill the same seconds without a reason.

Walked are the clinic's recordings, those of the rules' tests, the worlds of the treatment's tests, and every two
`troubles` laid on one loop. Two findings that price the same kind of seconds must be settled: one excludes the other
(`EXCLUDES`) or subtracts it (`rules.gpu_idle`), or both stand, for the reason given in `STAND`.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from gpu_doctor.diagnosis import Diagnosis, diagnose
from gpu_doctor.diagnosis.rules import RULES
from gpu_doctor.diagnosis.rules.rule import Finding
from gpu_doctor.recording import Recording
from tests.support.clinic.cell import Recorded
from tests.support.clinic.ward import FAMILIES
from tests.support.training_worlds import World, recorded
from tests.support.trouble import Trouble, laid
from tests.support.troubles import TROUBLES, pairs

SECONDS: dict[str, str] = {
    "wait": "loader-without-workers too-few-workers too-many-workers slow-getitem slow-collate slow-storage"
    " uneven-batches workers-restart-each-epoch slow-epoch-start workers-cannot-start slow-generator",
    "copies": "pageable-transfer blocking-transfer heavy-transfer many-small-transfers slow-link",
    "idle": "launch-bound not-compiled model-too-small small-batch needless-accumulation slow-python host-sync"
    " device-round-trips checkpoint-stall cache-emptied-each-step garbage-collected-each-step debug-mode-on"
    " unfused-optimizer python-in-forward recompiles augmentation-in-loop hidden-sync",
    "kernels": "full-precision double-precision tf32-off cudnn-not-tuned channels-first-convolutions unaligned-shapes"
    " attention-by-hand emulated-half-precision throttled capped-clocks shared-gpu changing-shapes unused-gradients"
    " redundant-forward per-sample-forward loss-in-a-loop slow-attention-kernel needless-checkpointing"
    " wasted-padding loss-by-hand frozen-recomputed unused-logits broadcast-similarity",
    "evaluation": "heavy-evaluation eval-with-gradients",
    "ranks": "communication-bound sync-on-every-microbatch straggler data-parallel",
    "on the CPU": "model-on-cpu cpu-oversubscription cpu-only-torch driver-too-old dense-embedding-gradients",
    "repeated steps": "iterable-duplicated",
    "other cards": "idle-gpus",
    "none": "out-of-memory near-out-of-memory fragmented-memory memory-growth host-memory-pressure small-shared-memory"
    " unsupported-architecture",
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
    *("cudnn-not-tuned", "channels-first-convolutions", "unaligned-shapes", "changing-shapes"),
}
NEEDLESS = {
    *("unused-gradients", "per-sample-forward", "loss-in-a-loop", "needless-checkpointing", "wasted-padding"),
    *("loss-by-hand", "frozen-recomputed", "unused-logits", "broadcast-similarity"),
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
    ({"cudnn-not-tuned"}, {"unaligned-shapes"}, "convolutions, and large matrix layers"),
    # the rest
    ({"heavy-evaluation"}, {"eval-with-gradients"}, "how often, and how: half as often, without gradients gains more"),
    ({"straggler"}, {"sync-on-every-microbatch", "communication-bound"}, "another rank's seconds are subtracted"),
    ({"dense-embedding-gradients"}, {"model-on-cpu", "cpu-oversubscription"}, "what is computed, and where"),
    ({"model-on-cpu"}, {"cpu-oversubscription"}, "where it computes, and with how many threads while it does"),
)


def reason(one: str, other: str) -> str | None:
    """Why both findings stand; None = not settled."""
    return next((why for a, b, why in STAND if (one in a and other in b) or (one in b and other in a)), None)


def of_one_kind(diagnosis: Diagnosis) -> Iterator[tuple[Finding, Finding]]:
    """Pairs of priced findings of the same kind of seconds."""
    priced = [one for one in diagnosis.findings if not one.risk]
    for one, other in itertools.combinations(priced, 2):
        if KIND[one.rule] == KIND[other.rule]:
            yield one, other


RULE_TESTS: Final = [
    (path.stem, vars(importlib.import_module(f"tests.unit.diagnosis.rules.{path.stem}")))
    for path in sorted((Path(__file__).parent / "rules").glob("test_*.py"))
]
"""Imported here: that takes longer than a unit test may."""


def walked() -> Iterator[tuple[str, Recording]]:
    """Every recording that a test keeps, with a name."""
    for patients in FAMILIES.values():
        yield from ((one.name, one.play()) for one in patients if isinstance(one, Recorded))
    for stem, loops in RULE_TESTS:
        yield from (
            (f"{stem}.{name}", one.recording())
            for name, one in loops.items()
            if hasattr(one, "_fetches") and not isinstance(one, type)
        )
    rng = np.random.default_rng(0)
    for waits, computes, workers in itertools.product((0.0, 8.0), (0.5, 6.0), (0, 2, 8)):
        world = World(waits, computes, written={"num_workers": workers}, epoch=40)
        yield f"world {waits} {computes} {workers}", recorded(world, {}, 100, rng)


def test_each_rule_says_what_seconds_it_prices() -> None:
    assert set(KIND) == {rule.name for rule in RULES}


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda one: f"{'gpu' if one.gpu else 'cpu'}-{one.name}")
def test_a_trouble_alone_is_named_by_its_rule(trouble: Trouble) -> None:
    diagnosis = diagnose(laid(trouble))
    assert diagnosis.findings[0].rule == trouble.rule
    assert [(a.rule, b.rule) for a, b in of_one_kind(diagnosis) if reason(a.rule, b.rule) is None] == []


def test_no_two_rules_bill_the_same_seconds_of_a_kept_recording() -> None:
    found = {
        (one.rule, other.rule): name
        for name, recording in walked()
        for one, other in of_one_kind(diagnose(recording))
        if reason(one.rule, other.rule) is None
    }
    assert found == {}


@pytest.mark.parametrize("first", TROUBLES, ids=lambda one: f"{'gpu' if one.gpu else 'cpu'}-{one.name}")
def test_two_troubles_are_billed_apart(first: Trouble) -> None:
    """Every two: what they share is settled, and together they never bill more of the host's time than there is."""
    unsettled, overdrawn = {}, {}
    for one, other in (pair for pair in pairs() if pair[0] is first):
        diagnosis = diagnose(laid(one, other))
        for a, b in of_one_kind(diagnosis):
            if reason(a.rule, b.rule) is None:
                unsettled[a.rule, b.rule] = f"{one.name} and {other.name}"
        vitals = diagnosis.vitals
        elsewhere = sum(getattr(vitals, f"{one}_share") or 0.0 for one in ("data_wait", "transfer", "evaluation"))
        idle = [found for found in diagnosis.findings if KIND[found.rule] == "idle" and not found.risk]
        aid = any(found.rule == "debug-mode-on" for found in idle)  # it is priced by the forward that it slows
        if vitals.on_gpu and not aid and sum(a.cost_share for a in idle) > 1.0 - elsewhere + 0.02:
            overdrawn[one.name, other.name] = [(a.rule, round(a.cost_share, 2)) for a in idle]
    assert unsettled == {} and overdrawn == {}
