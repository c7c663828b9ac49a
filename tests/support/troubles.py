"""Troubles of a loop, each as what it adds to a healthy one, so that two of them can be laid on the same recording."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpu_doctor.recording.setup import (
    AttentionCalls,
    Compilation,
    EvaluationFacts,
    FrozenForward,
    InputFacts,
    ModelFacts,
    OptimizerFacts,
    Padding,
    Traffic,
    World,
)
from tests.support.recordings import line, on_gpu
from tests.support.trouble import Trouble

IMAGES = InputFacts(looked_at=40, shapes=1, shape=(32, 3, 224, 224), dtype="float32", device="cuda:0")
CONVOLUTIONS: dict[str, Any] = {
    "layers": {"Conv2d": 53, "Linear": 1},
    "inputs": IMAGES,
    "model": ModelFacts({"cuda:0": 102 << 20}, {"float32": 102 << 20}, convolutions=53, channels_last=53),
}
FORWARD = line("out = model(x)", 0.22, phase="forward")
ASIDE = replace(line("self.seen.append(h.tolist())", 0.44, phase="forward"), beside="model")
CONSTANT = replace(line("boxes.append([x - w, x + w])", 0.44, phase="forward"), beside="constant")
SECOND = (
    replace(line("right += (model(x).argmax(1) == y).sum()", 0.28, phase="forward"), beside="step"),
    replace(FORWARD, share=0.28),
)
PIECES = replace(line("total = total + pair(z, i)", 0.3), before_backward=True, looped=True)
IN_PIECES = {"graph_operations": 500, "graph_leaves": 4}
TOKENS = InputFacts(looked_at=40, shapes=1, shape=(32, 256), dtype="int64")
PADDED = Padding(
    "input_ids", "attention_mask", 40, 40, 32 * 40, 32 * 40 * 256, 32 * 40 * 96, 32 * 40 * 64, 8, 96, 256, 256
)
ONE_BY_ONE = InputFacts(40, 1, (784,), "float32", "cpu", per_step=32.0, most_per_step=40)
WAIT = {"wait": 10.0, "gpu_gap": 10.0, "fetch": 10.0}
INPUT = (
    Trouble("no workers", "loader-without-workers", WAIT, {"workers": 0, "fetch_cpu": 1.0}, loader={"num_workers": 0}),
    Trouble(
        "few workers",
        "too-few-workers",
        WAIT | {"fetch": 28.0},
        {"workers": 2, "fetch_cpu": 1.0},
        loader={"num_workers": 2},
    ),
    Trouble(
        "cold files",
        "loader-without-workers",
        WAIT,
        {"workers": 0, "fetch_cpu": 1.0},
        loader={"num_workers": 0},
        stored=3e6,
    ),
    Trouble(
        "cold files, few workers",
        "too-few-workers",
        WAIT | {"fetch": 28.0},
        {"workers": 2, "fetch_cpu": 1.0},
        loader={"num_workers": 2},
        stored=3e6,
    ),
    Trouble("dear samples", "too-few-workers", WAIT | {"fetch": 70.0}, {"workers": 4, "fetch_cpu": 70.0}),
    Trouble(
        "dear collate", "too-few-workers", WAIT | {"fetch": 70.0, "collate": 60.0}, {"workers": 4, "fetch_cpu": 70.0}
    ),
    Trouble("late epochs", "workers-restart-each-epoch", {"edge": 50.0}, {"steps_per_epoch": 10}),
    Trouble(
        "slow batches",
        "uneven-batches",
        {"wait": 4.0, "gpu_gap": 4.0},
        {"workers": 2, "fetch_cpu": 1.0, "fetch_walls": [3.0] * 58 + [200.0] * 2},
        loader={"num_workers": 2},
    ),
)
TRANSFER = (
    Trouble(
        "pageable copies", "pageable-transfer", {"transfer": 5.0, "gpu_gap": 5.0, "pageable": 2.0, "batch_bytes": 5e7}
    ),
    Trouble(
        "blocking copies",
        "blocking-transfer",
        {"transfer": 5.0, "gpu_gap": 5.0, "batch_bytes": 2e7},
        traffic=Traffic(80, 8e8, blocking_pinned=80),
        readings={"pcie_gen": 4, "pcie_width": 16},
    ),
    Trouble(
        "wide copies",
        "heavy-transfer",
        {"transfer": 5.0, "gpu_gap": 5.0, "batch_bytes": 1e8},
        traffic=Traffic(80, 4e9, wide_bytes=4e9),
        readings={"pcie_gen": 4, "pcie_width": 16},
    ),
    Trouble(
        "small copies",
        "many-small-transfers",
        {"transfer": 5.0, "gpu_gap": 5.0, "transfers": 38.0},
        traffic=Traffic(1600, 1.6e6, small=1600),
    ),
    Trouble(
        "round trips",
        "device-round-trips",
        {"sync": 5.0, "gpu_gap": 5.0, "syncs": 1.0},
        traffic=Traffic(120, 1.2e8, to_host=40, to_host_bytes=4e7, round_trips=40, round_trip_s=0.2),
    ),
    Trouble(
        "a slow link",
        "slow-link",
        {"transfer": 5.0, "gpu_gap": 5.0, "batch_bytes": 2e7},
        readings={"pcie_gen": 3, "pcie_width": 4, "pcie_gen_max": 5, "pcie_gen_card": 5, "pcie_width_max": 16},
    ),
)
PREPARING = "for x, y in loader:\n    x = augment(x)\n    loss = net(x)\n    loss.backward()\n    o.step()\n"
AUGMENTED = (replace(line("x = augment(x)", 0.44), line=2), replace(line("loss = net(x)", 0.2, "forward"), line=3))
HOST = (
    Trouble("an item each step", "host-sync", {"sync": 8.0, "gpu_gap": 4.0, "syncs": 1.0}, {"caught_up": 1.0}),
    Trouble(
        "a mask",
        "hidden-sync",
        {"other": 8.0, "gpu_gap": 4.0},
        {"lines": (line("kept.append(out[out > 0].detach())", 0.44),)},
    ),
    Trouble("Python", "slow-python", {"other": 8.0, "gpu_gap": 8.0}),
    Trouble(
        "augmenting", "augmentation-in-loop", {"other": 8.0, "gpu_gap": 8.0}, {"lines": AUGMENTED, "source": PREPARING}
    ),
    Trouble("checkpoints", "checkpoint-stall", {"other": 4.0, "gpu_gap": 4.0}, chore=("checkpoint", 4.0)),
    Trouble(
        "collections", "garbage-collected-each-step", {"other": 4.0, "gpu_gap": 4.0}, chore=("collect-garbage", 4.0)
    ),
    Trouble("an emptied cache", "cache-emptied-each-step", {"other": 4.0, "gpu_gap": 4.0}, chore=("empty-cache", 4.0)),
    Trouble(
        "launches",
        "launch-bound",
        {"gpu_work": 8.0, "forward": 4.0, "backward": 4.0},
        {"caught_up": 1.0},
        inside=8.0,
    ),
    Trouble(
        "blocking launches",
        "debug-mode-on",
        {"gpu_work": 8.0, "forward": 8.0},
        {"caught_up": 1.0},
        flags={"launch_blocking": True},
        inside=8.0,
    ),
    Trouble(
        "anomaly detection",
        "debug-mode-on",
        {"gpu_gap": 8.0, "forward": 8.0},
        {"caught_up": 1.0},
        flags={"anomaly_mode": True},
    ),
)
AGAIN = tuple(
    Compilation("forward", "<cell>", 3, 0.2 + 0.05 * n, 0.035, f"self.epoch == {n}", 4, "return self.l(x) * self.epoch")
    for n in range(4)
)
COMPUTE = (
    Trouble("compiled again", "recompiles", {"forward": 4.0, "gpu_gap": 4.0}, setup={"compilations": AGAIN}),
    Trouble(
        "attention in pieces",
        "attention-by-hand",
        setup={
            "model": ModelFacts(
                {"cuda:0": 8 << 20},
                attention=("a: B",),
                attention_width=12 * 768,
                attention_batch_first=True,
                product_weights=12 * 12 * 768 * 768,
            ),
            "inputs": InputFacts(looked_at=40, shapes=1, shape=(16, 1024), dtype="int64", device="cuda:0"),
        },
    ),
    Trouble(
        "a masked attention",
        "slow-attention-kernel",
        setup={
            "attention_calls": (AttentionCalls("math", 12, 16, 12, 1024, 1024, 64, "bfloat16", learned_mask=True),),
            "model": ModelFacts({"cuda:0": 8 << 20}, product_weights=12 * 12 * 768 * 768),
        },
    ),
    Trouble(
        "float64",
        "double-precision",
        setup={
            "dtype": "float64",
            "autocast": "",
            "parameters": 10**6,
            "inputs": InputFacts(looked_at=40, shapes=1, shape=(32, 128), dtype="float64"),
            "model": ModelFacts({"cuda:0": 8 << 20}, {"float64": 8 << 20}),
        },
    ),
    Trouble(
        "a backbone that is not frozen",
        "unused-gradients",
        setup={
            "model": ModelFacts({"cuda:0": 44 << 20}, unstepped=10**7, unstepped_place="a", spared_shares=(1.0, 1.0))
        },
    ),
    Trouble("float32", "full-precision", sets={"tensor_active": 0.0}, setup={"autocast": ""}),
    Trouble(
        "no TF32",
        "full-precision",
        sets={"tensor_active": 0.0},
        setup={"autocast": ""},
        flags={"matmul_precision": "highest"},
    ),
    Trouble("a guessing cuDNN", "cudnn-not-tuned", setup=CONVOLUTIONS, flags={"cudnn_benchmark": False}),
    Trouble(
        "channels first",
        "channels-first-convolutions",
        setup=CONVOLUTIONS | {"model": ModelFacts({"cuda:0": 102 << 20}, {"float32": 102 << 20}, convolutions=53)},
    ),
    Trouble("emulated halves", "emulated-half-precision", sets={"capability": (7, 5)}),
    Trouble(
        "changing shapes",
        "changing-shapes",
        setup={"inputs": InputFacts(looked_at=100, shapes=30, shape=(32, 128), new_shape_steps=29, new_shape_s=0.16)},
    ),
    Trouble(
        "an optimizer in pieces",
        "unfused-optimizer",
        {"optimizer": 6.0, "gpu_work": 6.0},
        on_device={"gpu_forward_s": 4.0, "gpu_backward_s": 4.0, "gpu_optimizer_s": 7.9},
        setup={"optimizer_facts": (OptimizerFacts("AdamW", 200, 2_000_000, foreach=False, can_fuse=True),)},
    ),
    Trouble("long evaluations", "heavy-evaluation", {"evaluation": 8.0}),
    Trouble(
        "recorded evaluations",
        "heavy-evaluation",
        {"evaluation": 8.0},
        {"caught_up": 1.0},
        {"evaluation": EvaluationFacts(40, 40)},
    ),
)
SHORT = {"forward": 6.0, "gpu_work": 6.0}
MEMORY = (
    Trouble("a small batch", "small-batch", SHORT, {"peak_share": 0.1, "caught_up": 0.2}, inside=6.0),
    Trouble(
        "needless accumulation",
        "needless-accumulation",
        SHORT,
        {"peak_share": 0.1, "caught_up": 0.2},
        batches=4.0,
        inside=6.0,
    ),
)
CLOCKS = {"sm_clock_max_mhz": 1980.0, "gpu_temperature_c": 80.0}
HARDWARE = (
    Trouble(
        "heat",
        "throttled",
        readings=CLOCKS | {"sm_clock_mhz": 990.0, "clock_limit_bits": float(0x20), "gpu_util_pct": 95.0},
    ),
    Trouble(
        "locked clocks",
        "capped-clocks",
        readings=CLOCKS | {"sm_clock_mhz": 900.0, "clock_limit_bits": 0.0, "gpu_util_pct": 95.0},
    ),
    Trouble(
        "others on the card",
        "shared-gpu",
        readings={"gpu_memory_used_bytes": 70e9, "other_processes": 1, "other_processes_util_pct": 40.0},
    ),
)
COPIED = ModelFacts({"cuda:0": 4 << 20}, {"float32": 4 << 20}, wrapper="DataParallel")
DISTRIBUTED = (
    Trouble("idle cards", "idle-gpus", setup={"world": World(visible_gpus=4)}),
    Trouble("copied models", "data-parallel", {"other": 3.0}, setup={"model": COPIED}, chore=("data-parallel", 3.0)),
)
_ON_CPU = (
    Trouble("no workers", "loader-without-workers", {"wait": 10.0}, {"fetch_cpu": 1.0}),
    Trouble("cold files", "loader-without-workers", {"wait": 10.0}, {"fetch_cpu": 1.0}, stored=3e6),
    Trouble("dear samples", "slow-getitem", {"wait": 10.0, "fetch": 70.0}, {"workers": 4, "fetch_cpu": 70.0}),
    Trouble("dear collate", "slow-collate", {"wait": 10.0, "collate": 9.0}, {"fetch_cpu": 10.0, "cores": 1.0}),
    Trouble("late epochs", "slow-epoch-start", {"edge": 50.0}, {"steps_per_epoch": 10}),
    Trouble(
        "workers that restart",
        "workers-restart-each-epoch",
        {"edge": 50.0, "fetch": 5.0},
        {"workers": 2, "steps_per_epoch": 10},
    ),
    Trouble("Python", "slow-python", {"other": 8.0}, {"lines": (line("plot(history)", 0.4),)}),
    Trouble("statistics in the forward", "python-in-forward", {"forward": 8.0}, {"lines": (ASIDE, FORWARD)}),
    Trouble("anchors in the forward", "python-in-forward", {"forward": 8.0}, {"lines": (CONSTANT, FORWARD)}),
    Trouble(
        "a second forward",
        "redundant-forward",
        {"forward": 4.0},
        {"lines": SECOND},
    ),
    Trouble("a loss in pieces", "loss-in-a-loop", {"loss": 6.0}, {"lines": (PIECES,)}, setup=IN_PIECES),
    Trouble("rows full of padding", "wasted-padding", setup={"inputs": TOKENS, "padding": (PADDED,)}),
    Trouble(
        "a teacher's outputs anew",
        "frozen-recomputed",
        {"forward": 4.0},
        setup={"frozen": (FrozenForward("Teacher", 160, 0.64, 8.0),)},
    ),
    Trouble("sample by sample", "per-sample-forward", setup={"inputs": ONE_BY_ONE}),
    Trouble("checkpoints", "checkpoint-stall", {"other": 4.0}, chore=("checkpoint", 4.0)),
    Trouble("collections", "garbage-collected-each-step", {"other": 4.0}, chore=("collect-garbage", 4.0)),
    Trouble("many threads", "cpu-oversubscription", setup={"torch_threads": 16}),
    Trouble("anomaly detection", "debug-mode-on", {"forward": 8.0}, flags={"anomaly_mode": True}),
    Trouble(
        "an optimizer in pieces",
        "unfused-optimizer",
        {"optimizer": 6.0},
        setup={
            "optimizer_facts": (OptimizerFacts("AdamW", 200, 2_000_000, can_fuse=True, longer_s=(0.003, 0.004, 0.005)),)
        },
    ),
    Trouble("long evaluations", "heavy-evaluation", {"evaluation": 8.0}),
    Trouble(
        "recorded evaluations",
        "heavy-evaluation",
        {"evaluation": 8.0},
        setup={"evaluation": EvaluationFacts(40, 40)},
    ),
    Trouble(
        "a large table",
        "dense-embedding-gradients",
        {"backward": 6.0, "optimizer": 7.0},
        setup={
            "model": ModelFacts({"cpu": 52 << 20}, tables=("users: Embedding 200000 x 64",), table_elements=12_800_000),
            "inputs": InputFacts(looked_at=40, shapes=1, shape=(256,), dtype="int64", device="cpu"),
            "optimizer_facts": (OptimizerFacts("SGD", 4, 12_900_000),),
        },
    ),
    Trouble(
        "a forgotten card",
        "model-on-cpu",
        setup={
            "devices": on_gpu().recording().setup.devices,
            "model": ModelFacts({"cpu": 4 << 20}, {"float32": 4 << 20}),
        },
    ),
    Trouble(
        "changing shapes",
        "changing-shapes",
        setup={"inputs": InputFacts(looked_at=100, shapes=30, shape=(32, 128), new_shape_steps=29, new_shape_s=0.16)},
    ),
)
ON_CPU = tuple(replace(one, gpu=False) for one in _ON_CPU)
TROUBLES = (*INPUT, *TRANSFER, *HOST, *COMPUTE, *MEMORY, *HARDWARE, *DISTRIBUTED, *ON_CPU)


def pairs() -> Iterator[tuple[Trouble, Trouble]]:
    """Every two troubles of one kind of device."""
    for one, other in itertools.combinations(TROUBLES, 2):
        if one.gpu == other.gpu:
            yield one, other
