"""Loops of the causes in `rules/compute/`: precision, wasted work, evaluation, optimizers, calls one by one, shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gpu_doctor.recording import LoaderSetup, Recording
from gpu_doctor.recording.setup import (
    AttentionCalls,
    Compilation,
    EvaluationFacts,
    FrozenForward,
    InputFacts,
    ModelFacts,
    OptimizerFacts,
    Padding,
)
from tests.support.recordings import NAN, Loop, line, on_gpu, with_columns
from tests.support.rule_loops.form import CauseLoops, Sick

PREDICTS: dict[str, Any] = {"backward": 0.0, "optimizer": 0.0}
NOT_TRAINED: dict[str, Any] = {"optimizers": ()}

# ---- worth-a-trial ---------------------------------------------------------------------------------------------------

FLOAT32 = on_gpu(tensor_active=0.0)
TURING = (7, 5)
CONVOLVES = {"layers": {"Conv2d": 53, "Linear": 1}}
NO_TF32 = {**CONVOLVES, "flags": {"cudnn_tf32": False, "matmul_precision": "highest"}}
AMP = {"amp": "bf16"}
TF32 = {"tf32": True}


def by_phase(forward: float, backward: float, optimizer: float, of: Loop = FLOAT32) -> Recording:
    """Returns the loop's recording with the device's milliseconds of each phase."""
    parts = {"gpu_forward_s": forward, "gpu_backward_s": backward, "gpu_optimizer_s": optimizer}
    return with_columns(of, **{name: 1e-3 * ms for name, ms in parts.items()})


FULL_PRECISION = CauseLoops(
    "full-precision",
    well=on_gpu(),
    sick={
        "float32": Sick(FLOAT32, settings=(AMP,)),
        "a card without bfloat16": Sick(
            FLOAT32.but(capability=TURING),
            settings=({"amp": "fp16"},),
            cures=("scaler.scale(loss).backward()", "scaler.update()"),
        ),
        "predictions need no scaler": Sick(
            FLOAT32.but(capability=TURING, setup=NOT_TRAINED, **PREDICTS),
            cures=("torch.float16", "results"),
            unsaid=("caler",),
        ),
        "layers that multiply": Sick(
            FLOAT32.but(setup={"layers": {"Embedding": 2, "Linear": 3}}), settings=(AMP,), figures=("3 layers",)
        ),
        **{
            f"layers of {kind}": Sick(FLOAT32.but(setup={"layers": {kind: 4}}), settings=(AMP,), figures=("4 layers",))
            for kind in ("ConvTranspose2d", "Bilinear")
        },
        "the optimizer's seconds are no products": Sick(by_phase(2.0, 4.0, 4.0), settings=(AMP,), figures=("60 %",)),
        "convolutions run in TF32 already": Sick(
            FLOAT32.but(setup=CONVOLVES), settings=(AMP,), figures=("TF32 on ",), unsaid=("allow_tf32",)
        ),
        "convolutions in TF32 by tensor cores": Sick(
            on_gpu(tensor_active=40.0, setup=CONVOLVES), settings=(AMP,), figures=("TF32 on ",)
        ),
        "convolutions that are kept from TF32": Sick(
            FLOAT32.but(setup=NO_TF32),
            settings=(AMP, TF32),
            figures=("Full precision on ",),
            cures=("torch.backends.cudnn.allow_tf32 = True",),
        ),
        "convolutions on a card without TF32": Sick(
            FLOAT32.but(setup=CONVOLVES, capability=TURING),
            settings=({"amp": "fp16"},),
            figures=("Full precision on ",),
        ),
        "products that may run in TF32": Sick(
            FLOAT32.but(setup={"flags": {"matmul_precision": "high"}}), settings=(AMP,), figures=("TF32 on ",)
        ),
        "TF32 is off too": Sick(FLOAT32.but(setup={"flags": {"matmul_precision": "highest"}}), settings=(AMP, TF32)),
    },
    near={
        "autocast": FLOAT32.but(setup={"autocast": "bfloat16"}),
        "half-precision weights": FLOAT32.but(setup={"dtype": "bfloat16"}),
        "a card without tensor cores": FLOAT32.but(capability=(6, 1)),
        "nothing multiplies": FLOAT32.but(setup={"layers": {"ReLU": 3}}),
        "a look-up makes no product": FLOAT32.but(setup={"layers": {"Embedding": 2}}),
        "3 % of the time": by_phase(0.1, 0.2, 4.0),
        "starved": FLOAT32.but(wait=5.0, gpu_gap=5.0, workers=4, fetch=1.0),
        "a queue that runs dry": FLOAT32.but(caught_up=1.0),
    },
)

HIGHEST = {"matmul_precision": "highest"}
OFF = on_gpu(setup={"flags": HIGHEST})
"""Tensor cores are active in part (convolutions in TF32), so that full-precision is silent."""

TF32_OFF = CauseLoops(
    "tf32-off",
    well=on_gpu(setup={"flags": HIGHEST, "autocast": "bfloat16"}),
    sick={
        "products": Sick(OFF, settings=(TF32,)),
        "convolutions that the code keeps from it": Sick(
            OFF.but(setup=NO_TF32),
            settings=(TF32,),
            cures=("torch.backends.cudnn.allow_tf32 = True",),
            figures=("53 layers", "cudnn.allow_tf32 is False"),
        ),
        "the knob finds TF32 on already": Sick(
            OFF.but(setup={"flags": {"matmul_precision": "high", "cudnn_tf32": False}, **CONVOLVES})
        ),
    },
    near={
        "nobody asked": OFF.but(setup={"flags": {}}),
        "a card without it": OFF.but(capability=TURING),
        "half-precision weights": OFF.but(setup={"flags": HIGHEST, "dtype": "bfloat16"}),
        "a queue that runs dry": OFF.but(caught_up=1.0),
        "no GPU": Loop(setup={"flags": HIGHEST}),
        "convolutions run in it by default": OFF.but(setup={"flags": HIGHEST, **CONVOLVES}),
    },
    other={
        "half precision gains more": (OFF.but(tensor_active=0.0), ("full-precision",)),
        "it is on": (OFF.but(setup={"flags": {"matmul_precision": "high"}}), ("full-precision",)),
    },
)

CELL = "for x, y in loader:\n    with autocast():\n        loss = f(model(x), y)\n    f(model(x), y).backward()\n"
BACKWARD = "f(model(x), y).backward()"
BF16 = {"autocast": "bfloat16"}
EMULATED = on_gpu(capability=TURING, tensor_active=None, setup=BF16)
UNSCALED = on_gpu(setup={"autocast": "float16"}, source=CELL)
FEATURES = "scaler = StandardScaler()\nrows = scaler.fit_transform(rows)\n" + CELL

EMULATED_HALF_PRECISION = CauseLoops(
    "emulated-half-precision",
    risk=True,
    well=on_gpu(setup=BF16),
    sick={
        "a card without bfloat16": Sick(EMULATED, risk=False, cures=("GradScaler",)),
        "predictions need no scaler": Sick(
            EMULATED.but(setup={**BF16, **NOT_TRAINED}, **PREDICTS),
            risk=False,
            cures=("torch.float16", "results"),
            unsaid=("caler", "backward"),
        ),
        "float16 that nothing scales": Sick(UNSCALED, cures=("bfloat16",)),
        "a scaler of features": Sick(UNSCALED.but(source=FEATURES), cures=("bfloat16",)),
    },
    near={
        "nobody knows the card": on_gpu(setup={**BF16, "devices": ()}),
        "float32": on_gpu(capability=TURING),
        "a queue that runs dry": EMULATED.but(caught_up=1.0),
        "no GPU": Loop(setup=BF16),
        "a scaler": UNSCALED.but(source=CELL.replace(BACKWARD, "scaler.scale(loss).backward()")),
        "an accelerator": UNSCALED.but(source=CELL.replace(BACKWARD, "accelerator.backward(loss)")),
        "a scale": UNSCALED.but(source=CELL.replace("loss =", "loss = loss_scale *")),
        "a library's loop": UNSCALED.but(source="trainer.fit(model, loader)"),
        "no source": UNSCALED.but(source=""),
        "a scaler of an earlier cell": UNSCALED.but(setup={"autocast": "float16", "grad_scaler": True}),
        "the amp knob scales": UNSCALED.but(settings={"amp": "fp16"}),
    },
)


def images(stored: int = 0, **changes: Any) -> Loop:
    """Returns a loop over images in half precision, with so many of its convolutions stored channels last."""
    model = ModelFacts(convolutions=53, channels_last=stored)
    return on_gpu(setup={"model": model, "autocast": "bfloat16", "layers": {"Conv2d": 53}, **changes})


CHANNELS_LAST = {"channels_last": True}

CHANNELS_FIRST = CauseLoops(
    "channels-first-convolutions",
    well=images(stored=53),
    sick={
        "autocast": Sick(images(), settings=(CHANNELS_LAST,)),
        "half-precision weights": Sick(images(autocast="", dtype="float16"), settings=(CHANNELS_LAST,)),
        "a loop that predicts has no trial of it": Sick(images(**NOT_TRAINED).but(**PREDICTS)),
        "beside a linear layer": Sick(images(layers={"Conv2d": 53, "Linear": 1}), settings=(CHANNELS_LAST,)),
    },
    near={
        "no convolution": on_gpu(),
        "images take the network along": images(inputs=InputFacts(looked_at=20, channels_last=True)),
        "full precision": images(autocast=""),
        "emulated": images().but(capability=TURING),
        "a transformer": images(model=ModelFacts(convolutions=1), layers={"Conv2d": 1, "Linear": 49}),
        "no such layout in one dimension": images(model=ModelFacts(convolutions=2), layers={"Conv1d": 20, "Conv2d": 2}),
        "nor in three": images(model=ModelFacts(), layers={"Conv3d": 20}),
        "a queue that runs dry": images().but(caught_up=1.0),
    },
)

PHOTOS = InputFacts(looked_at=40, shapes=1, shape=(64, 3, 224, 224), dtype="float32", device="cuda:0")
UNTUNED: dict[str, Any] = {
    **CONVOLVES,
    "flags": {"cudnn_benchmark": False, "deterministic": False, "matmul_precision": "highest"},
    "inputs": PHOTOS,
    "autocast": "bfloat16",
}


def convolving(**changes: Any) -> Loop:
    """Returns a loop over photos of one shape with cuDNN's benchmark off."""
    return on_gpu(setup={**UNTUNED, **changes})


CUDNN_NOT_TUNED = CauseLoops(
    "cudnn-not-tuned",
    well=convolving(flags={"cudnn_benchmark": True}),
    sick={"photos of one shape": Sick(convolving(), settings=({"cudnn_benchmark": True},))},
    near={
        "the flags were not read": convolving(flags={}),
        "deterministic": convolving(flags={"cudnn_benchmark": False, "deterministic": True}),
        "a vision transformer": convolving(layers={"Linear": 48, "Conv2d": 1}),
        "nobody looked at the inputs": convolving(inputs=None),
        "timed again and again": convolving(inputs=replace(PHOTOS, shapes=12)),
        "two looks": convolving(inputs=replace(PHOTOS, looked_at=2)),
        "a queue that runs dry": convolving().but(caught_up=1.0),
        "no GPU": Loop(setup=UNTUNED),
    },
)

FUSED = AttentionCalls("fused", 12, 16, 12, 1024, 1024, 64, "bfloat16")
BY_HAND = replace(FUSED, kernel="by hand", dtype="float32")
SEPARATE = replace(FUSED, kernel="math", dtype="float32")


def attending(call: AttentionCalls, **setup: Any) -> Loop:
    """Returns a loop on a CPU with these calls of attention."""
    return Loop(forward=10.0, backward=20.0, optimizer=2.0, setup={"attention_calls": (call,), **setup})


def on_card(call: AttentionCalls) -> Loop:
    """Returns a loop on a GPU with these calls of attention."""
    return on_gpu(setup={"attention_calls": (call,), "autocast": "bfloat16"})


HEADS = ("12 times", "192 heads of size 64", "1024 tokens")
SDPA = ("scaled_dot_product_attention",)

ATTENTION = CauseLoops(
    "attention",
    well=on_card(FUSED),
    sick={
        "by hand": Sick(attending(BY_HAND), figures=HEADS, cures=SDPA),
        "by hand on a GPU": Sick(on_card(BY_HAND), figures=HEADS, cures=SDPA),
        "torch's own, that returns its weights": Sick(
            attending(BY_HAND, layers={"MultiheadAttention": 2, "Linear": 4}), cures=("need_weights=False",)
        ),
        "torch's own separate operations": Sick(attending(SEPARATE), cures=("is_causal=True",)),
        "torch's own separate operations on a GPU": Sick(on_card(SEPARATE), cures=("is_causal=True",)),
    },
    near={
        "a compiler fuses it": attending(BY_HAND, model=ModelFacts(compiled=True)),
        "starved": attending(BY_HAND).but(wait=20.0),
        "fused": attending(FUSED),
        "a queue that runs dry": on_card(BY_HAND).but(caught_up=1.0),
        "short sequences": on_card(replace(SEPARATE, queries=64, keys=64, samples=256)),
    },
)

STATIC = InputFacts(looked_at=40, shapes=1, shape=(32, 128))
UNCOMPILED: dict[str, Any] = {"model": ModelFacts(), "inputs": STATIC}
BUSY = on_gpu(setup=UNCOMPILED)

COMPILE = CauseLoops(
    "compile",
    well=BUSY.but(setup={**UNCOMPILED, "model": ModelFacts(compiled=True)}),
    sick={"a busy GPU": Sick(BUSY, settings=({"compile": True},))},
    near={
        "no model was seen": on_gpu(),
        "twenty shapes": BUSY.but(setup={**UNCOMPILED, "inputs": replace(STATIC, shapes=20)}),
        "no Triton": BUSY.but(capability=(6, 1)),
        "starved": BUSY.but(wait=5.0, gpu_gap=5.0),
        "a queue that runs dry is another cause": BUSY.but(caught_up=1.0),
        "no GPU": Loop(setup=UNCOMPILED),
    },
)

# ---- wasted-work -----------------------------------------------------------------------------------------------------

POSITIONS = 32 * 20
TOKENS = InputFacts(looked_at=40, shapes=1, shape=(32, 256), dtype="int64")
TEXTS = Padding("batch", "0", 20, 20, POSITIONS, POSITIONS * 256, POSITIONS * 96, POSITIONS * 64, 8, 110, 256, 256)
CHATS = Loop(setup={"inputs": TOKENS, "padding": (TEXTS,)})
"""Forward and backward are 8 of 10 ms."""
SHORT = replace(TEXTS, positions=POSITIONS * 96, least_length=70, most_length=110)
"""The same texts, padded to the longest of each batch."""


def padded(rows: Padding = TEXTS, **inputs: Any) -> Loop:
    """Returns the loop with other rows, or whose model gets something else."""
    return CHATS.but(setup={"inputs": replace(TOKENS, **inputs), "padding": (rows,)})


def chats(**setup: Any) -> Loop:
    """Returns the loop with other facts."""
    return CHATS.but(setup={**CHATS.setup, **setup})


PADDED = 0.8 * (1 - 96 / 256)

WASTED_PADDING = CauseLoops(
    "wasted-padding",
    kind="at-most",
    well=chats(padding=()),
    sick={
        "rows padded to a constant": Sick(CHATS, PADDED, figures=("8 to 110", "64 on average", "run of 0")),
        "rows as long as the longest of a batch": Sick(
            padded(SHORT, shapes=20, shape=(32, 96)), 0.8 * (1 - 64 / 96), figures=("70 to 110",)
        ),
        "a mask": Sick(padded(replace(TEXTS, told_by="attention_mask")), PADDED, figures=("attention_mask",)),
        "attention computes pairs": Sick(
            chats(attention_calls=(AttentionCalls("cpu", 2, 32, 4, 256, 256, 16),)), 0.8 * (1 - (96 / 256) ** 2)
        ),
        "a language model's last token is only a target": Sick(padded(shape=(32, 255)), PADDED),
        "time comes last": Sick(padded(shape=(32, 40, 256)), PADDED),
        "an encoder that packs nothing": Sick(
            CHATS.but(source="nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)"), PADDED
        ),
        "a GPU whose kernels set the pace": Sick(on_gpu(setup=CHATS.setup), 0.995 * 0.625),
    },
    near={
        "batches of like length": padded(replace(SHORT, real=POSITIONS * 90), shape=(32, 110)),
        "columns that are always empty": padded(
            replace(TEXTS, shortest=96, longest=96, real=POSITIONS * 96), shape=(32, 110)
        ),
        "seldom": padded(replace(TEXTS, batches=5), shape=(32, 110)),
        "two looks": padded(replace(TEXTS, looked_at=2, batches=2), shape=(32, 110)),
        "a loop that cuts its rows down": padded(shape=(32, 96), shapes=20),
        "what is padded goes along with images": padded(shape=(32, 3, 64, 64)),
        "a batch of 256": padded(shape=(256, 32, 8)),
        "a graph of packed sequences": chats(graph_packed=True),
        "packed sequences": CHATS.but(source="x = pack_padded_sequence(x, lengths)"),
        "nested tensors": CHATS.but(source="x = torch.nested.nested_tensor(rows)"),
        "it hardly computes": CHATS.but(wait=200.0),
        "no batch was seen": CHATS.but(setup={"inputs": TOKENS}),
        "a queue that runs dry": on_gpu(setup=CHATS.setup, caught_up=1.0, gpu_util=40.0, other=10.0).but(
            gpu_work=5.0, gpu_gap=15.0
        ),
    },
)

HEAD = ModelFacts({"cpu": 44 << 20}, unstepped=11_000_000, unstepped_place="layer4.0.conv1.weight", spared_share=1.0)
TUNING = Loop(forward=4.0, backward=8.0, optimizer=0.5, setup={"model": HEAD})
CLEARED = replace(HEAD, unstepped=5000, unstepped_place="0.weight", spared_share=0.6, gradients_cleared=True)

UNUSED_GRADIENTS = CauseLoops(
    "unused-gradients",
    kind="at-most",
    well=TUNING.but(setup={"model": ModelFacts({"cpu": 44 << 20}, unstepped=0)}),
    sick={
        "the head alone is trained": Sick(
            TUNING,
            8 / 12.5,
            figures=("layer4.0.conv1.weight", "11\u202f000\u202f000"),
            cures=("requires_grad_(False)",),
        ),
        "the most is the bound": Sick(TUNING.but(setup={"model": replace(HEAD, spared_share=0.8)}), 0.8 * 8 / 12.5),
        "on a GPU the device's own backward": Sick(
            with_columns(on_gpu(setup={"model": HEAD}), gpu_backward_s=0.6 * 9.95e-3), 0.6
        ),
        "gradients that are cleared before a step": Sick(
            TUNING.but(setup={"model": CLEARED}), 0.6 * 8 / 12.5, figures=("cleared",), cures=("no_grad",)
        ),
    },
    near={
        "nobody looked": TUNING.but(setup={"model": ModelFacts({"cpu": 44 << 20})}),
        "a few small ones": TUNING.but(
            setup={"model": replace(HEAD, unstepped=1000, unstepped_place="scale", spared_share=0.01)}
        ),
        "the loop reads gradients itself": TUNING.but(
            source="for p in backbone.parameters():\n    p.data -= 1e-3 * p.grad\n"
        ),
        "nobody read the device's clock by phase": on_gpu(setup={"model": HEAD}),
    },
)

TABLE = ModelFacts({"cpu": 52_000_000}, tables=("users: Embedding 200000 x 64",), table_elements=12_800_000)
INDICES = InputFacts(looked_at=40, shapes=1, shape=(256,), dtype="int64", device="cpu")
DENSE = InputFacts(40, 1, (256, 16), "float32", "cpu")
SGD = OptimizerFacts("SGD", 4, 12_900_000)
LOOK_UP: dict[str, Any] = {"model": TABLE, "inputs": INDICES, "optimizer_facts": (SGD,)}
EMBEDDING = Loop(forward=1.0, backward=10.0, optimizer=9.0, setup=LOOK_UP)
OF_TABLE = (1 - 256 / 200_000) * 12.8 / 12.9


def looking_up(**facts: Any) -> Loop:
    """Returns the loop with other facts."""
    return EMBEDDING.but(setup={**LOOK_UP, **facts})


DENSE_EMBEDDING = CauseLoops(
    "dense-embedding-gradients",
    kind="at-most",
    well=looking_up(model=ModelFacts({"cpu": 52_000_000})),
    sick={
        "256 of 200000 rows": Sick(
            EMBEDDING,
            2 * 0.45 * OF_TABLE,
            figures=("users: Embedding 200000 x 64", "256 indices"),
            cures=("nn.Embedding(rows, width, sparse=True)", "same updates"),
        ),
        "a long backward is no table's": Sick(EMBEDDING.but(backward=80.0), 2 * 0.1 * OF_TABLE),
        "no more than the backward": Sick(EMBEDDING.but(backward=1.0), (9 * 12.8 / 12.9 + 1) / 11, within=0.02),
        "Adam has a namesake for tables": Sick(
            looking_up(optimizer_facts=(replace(SGD, name="Adam"),)),
            2 * 0.45 * OF_TABLE,
            cures=("SparseAdam", "compare the losses"),
        ),
        "indices behind a dense input": Sick(looking_up(inputs=replace(DENSE, indices=256)), 2 * 0.45 * OF_TABLE),
    },
    near={
        "much of the table": looking_up(inputs=replace(INDICES, shape=(256, 128))),
        "a small table": looking_up(
            model=ModelFacts({"cpu": 4_000_000}, tables=("words: Embedding 20000 x 4",), table_elements=80_000)
        ),
        "what a GPU needs for it is not known": on_gpu(setup=LOOK_UP),
        "inputs that are no indices": looking_up(inputs=DENSE),
        "no index behind them": looking_up(inputs=replace(DENSE, indices=0)),
    },
)

TAUGHT = Loop(forward=8.0)
"""8 of 14 ms are forwards."""
TEACHER = FrozenForward("Teacher", calls=64, wall_s=0.0, passes=8.0, output_bytes=4000.0)


def taught(part: float, loop: Loop = TAUGHT, *more: FrozenForward, **changed: Any) -> Loop:
    """Returns the loop with a teacher that takes this part of its time."""
    teacher = replace(TEACHER, wall_s=part * (loop.vitals().run_s or 0.0), **changed)
    return loop.but(setup={"frozen": (*more, teacher)})


def on_device(loop: Loop, part: float) -> Recording:
    """Returns the recording of a GPU that spends this part of its work on the forward."""
    recording = loop.recording()
    return with_columns(recording, gpu_forward_s=part * recording.steps.gpu_s)


TEACHING = taught(0.2, on_gpu(forward=8.0))

FROZEN_RECOMPUTED = CauseLoops(
    "frozen-recomputed",
    kind="at-most",
    well=TAUGHT.but(setup={"frozen": ()}),
    sick={
        "eight passes": Sick(taught(0.4), 0.4 * 7 / 8, figures=("Teacher", "8 times", "4 KiB"), cures=("augmented",)),
        "the dearest of several": Sick(
            taught(0.4, TAUGHT, replace(TEACHER, model="Small", wall_s=1e-3)), 0.4 * 7 / 8, figures=("Teacher",)
        ),
        "no longer than all forwards": Sick(taught(0.9), 8 / 14 * 7 / 8),
        # the host's seconds only divide the forward, 8 of 14 ms; how long that is the device's own clock says
        "on a GPU": Sick(on_device(TEACHING, 0.4), 0.4 * 0.2 / (8 / 14) * 7 / 8),
        "where launches limit a GPU": Sick(
            taught(0.2, on_gpu(forward=8.0, caught_up=1.0, gpu_util=40.0, gpu_work=5.0)),
            0.2 * 7 / 8,
            named=("small-batch", "frozen-recomputed"),
        ),
    },
    near={
        "7 of 8 passes are less than a twentieth": taught(0.05),
        "hardly a second pass": taught(0.4, passes=1.05),
        "a loop that predicts": taught(0.4, TAUGHT.but(**PREDICTS)),
        "nobody read the device's clock by phase": TEACHING,
        "nothing could be compared": TAUGHT,
    },
)

DOUBLES: dict[str, Any] = {
    "dtype": "float64",
    "parameters": 450_000,
    "inputs": InputFacts(looked_at=40, shapes=1, shape=(64, 256), dtype="float64"),
    "model": ModelFacts({"cpu": 8_000_000}, {"float64": 8_000_000}),
}
COMPUTING = Loop(forward=4.0, backward=8.0, optimizer=1.0, setup=DOUBLES)
"""12 of these 13 ms are forward and backward."""
SINGLE = {"dtype": "float32", "model": ModelFacts({"cpu": 4_000_000}, {"float32": 4_000_000})}
ON_CARD = {"model": ModelFacts({"cuda:0": 8_000_000}, {"float64": 8_000_000})}
UNFROZEN = replace(
    ModelFacts({"cpu": 8 << 20}, {"float64": 8 << 20}), unstepped=5, unstepped_place="a", spared_share=1.0
)

DOUBLE_PRECISION = CauseLoops(
    "double-precision",
    kind="at-most",
    well=COMPUTING.but(setup={**DOUBLES, **SINGLE}),
    sick={
        "half of forward and backward": Sick(
            COMPUTING, 0.5 * 12 / 13, figures=("8 MiB of 8 MiB",), cures=("model.float()",)
        ),
        "on a GPU all that it computes": Sick(
            on_gpu(setup={**DOUBLES, **ON_CARD}), 1.0, named=("double-precision", "compile")
        ),
    },
    near={
        "it waits for launches": on_gpu(setup={**DOUBLES, **ON_CARD}, caught_up=1.0, gpu_util=40.0),
        "it waits for its data": COMPUTING.but(wait=130.0, setup={**DOUBLES, "parameters": 225_000}),
    },
    # the dearest of the state; gradients of the backward and a teacher's forward are apart
    other={"the same seconds": (COMPUTING.but(setup={**DOUBLES, "model": UNFROZEN}), ("unused-gradients",))},
)

# ---- evaluation ------------------------------------------------------------------------------------------------------

ROLLOUTS = Loop(evaluation=10.0)
LOADERS = (LoaderSetup("train", batches=20), LoaderSetup("val", role="evaluation", batches=5))
OFTEN = ROLLOUTS.but(setup={"loaders": LOADERS})
LEARN = line("model.learn(4096)", 0.2, "evaluation")
ROWS = np.arange(100)
NOW_AND_THEN = np.where(ROWS % 10 == 0, 0.1, 0.0)

HEAVY_EVALUATION = CauseLoops(
    "heavy-evaluation",
    kind="at-most",
    sick={
        "it is not blamed on the loader": Sick(OFTEN, 0.5, cures=("step % 500 == 0",)),
        # as judged on Stable-Baselines3 PPO: "evaluate half as often" would have halved the training's data
        "passes that no loader fed may be rollouts": Sick(
            ROLLOUTS, 0.5, figures=("rollouts",), cures=("step % 500",), unsaid=("half",)
        ),
        "a line that is named once": Sick(
            ROLLOUTS.but(lines=(replace(LEARN, share=0.3, in_torch=True), LEARN)), 0.5, figures=("50 %", "learn(4096)")
        ),
        "passes now and then": Sick(
            with_columns(OFTEN.but(steps_per_epoch=20), evaluation_s=NOW_AND_THEN),
            9 * 100 / (99 * 20),
            cures=("epoch % 2",),
        ),
        "rollouts now and then": Sick(
            with_columns(ROLLOUTS.but(steps_per_epoch=20), evaluation_s=NOW_AND_THEN),
            9 * 100 / (99 * 20),
            cures=("epoch % 2",),
        ),
    },
    near={"a sixth is usual": Loop(evaluation=2.0)},
)

IN_VAIN = EvaluationFacts(forwards=40, with_gradients=40)
EVALUATING = Loop(evaluation=10.0, setup={"evaluation": IN_VAIN})
LATE = np.where(ROWS % 10 == 5, 0.02, 0.0)
"""A pass that nothing tells from training makes the forward of its step long."""
PLAIN = Loop(setup={"evaluation": IN_VAIN})


def recorded(forwards: int, with_gradients: int) -> Loop:
    """Returns the loop with so many forwards of its evaluation, and so many of them with gradients."""
    return EVALUATING.but(setup={"evaluation": EvaluationFacts(forwards, with_gradients)})


EVAL_WITH_GRADIENTS = CauseLoops(
    "eval-with-gradients",
    kind="at-most",
    sick={
        "its seconds are priced once": Sick(
            EVALUATING.but(lines=(line("outputs = model(x)", 0.5, "evaluation"),)),
            0.5,
            cures=("inference_mode", "evaluate("),
            figures=("outputs = model(x)",),
        ),
        "an inference loop is all evaluation": Sick(
            Loop(forward=10.0, setup={"evaluation": IN_VAIN, **NOT_TRAINED}, **PREDICTS), 1.0
        ),
        "only those that recorded are priced": Sick(recorded(40, 30), 0.5 * 0.75),
        "long forwards of training steps": Sick(
            with_columns(
                PLAIN, forward_s=PLAIN.recording().steps.forward_s + LATE, wall_s=PLAIN.recording().steps.wall_s + LATE
            ),
            2 / 12,
            within=0.02,
        ),
    },
    near={
        "little": EVALUATING.but(evaluation=0.4),
        "a GPU with a full queue does not wait": on_gpu(evaluation=10.0, setup={"evaluation": IN_VAIN}),
        "each forward is like the others": PLAIN,
    },
    other={
        "nobody looked": (ROLLOUTS, ("heavy-evaluation",)),
        "none recorded": (recorded(40, 0), ("heavy-evaluation",)),
        "a single try": (recorded(2, 2), ("heavy-evaluation",)),
        "most did not": (recorded(40, 10), ("heavy-evaluation",)),
    },
)

UNLEARNT = InputFacts(looked_at=20, shapes=1, shape=(32, 8), per_step=1.0, most_per_step=40)
AGAIN = replace(line("right += (model(x).argmax(1) == y).sum()", 0.28, phase="forward"), no_grad=True)
TWICE = Loop(forward=8.0, lines=(AGAIN,), setup={"idle_inputs": UNLEARNT})
"""8 of 14 ms are forwards, half of them for the accuracy."""
TWICE_ON_GPU = on_gpu(forward=8.0, setup={"idle_inputs": UNLEARNT})


def blind(of: Loop, part: float = 0.5, **columns: Any) -> Recording:
    """Returns the recording of a loop whose forwards recorded no gradients for a part of their time."""
    recording = of.recording()
    return with_columns(recording, no_grad_s=part * recording.steps.forward_s, **columns)


REDUNDANT_FORWARD = CauseLoops(
    "redundant-forward",
    kind="at-most",
    well=blind(TWICE, 0.0),
    sick={
        "for the accuracy": Sick(blind(TWICE), 4 / 14, figures=("argmax",)),
        # the host is through with 8 of 20 ms of forwards; the device takes as long as its own clock says
        "on a GPU": Sick(blind(TWICE_ON_GPU, gpu_forward_s=0.4 * 9.95e-3), 0.5 * 0.4),
    },
    near={
        "below a tenth": blind(TWICE, 0.1),
        "it predicts": blind(TWICE.but(**PREDICTS)),
        "a teacher's forward": blind(TWICE.but(setup={})),
        "a GAN": blind(TWICE.but(setup={"idle_inputs": UNLEARNT, "optimizers": ("Adam", "Adam")})),
        "rollouts": blind(TWICE.but(has_loader=False)),
        "nobody read the device's clock by phase": blind(TWICE_ON_GPU),
    },
)

# ---- optimizer -------------------------------------------------------------------------------------------------------

ADAM = OptimizerFacts("AdamW", tensors=200, elements=2_000_000, can_fuse=True, groups=2)
FUSE = {"fused_optimizer": True}


def stepping(*facts: OptimizerFacts, optimizer: float = 4.0) -> Loop:
    """Returns a loop with these optimizers, which take 4 of its 10 ms."""
    return Loop(forward=3.0, backward=3.0, optimizer=optimizer, setup={"optimizer_facts": facts})


def clocked(host: float, device: float, **changes: Any) -> Recording:
    """Returns the recording of a GPU with milliseconds of the optimizer by both clocks, of 10 each."""
    rest, work = 10.0 - host, 9.95 - device
    loop = on_gpu(forward=rest / 2, backward=rest / 2, optimizer=host, setup={"optimizer_facts": (ADAM,)})
    return by_phase(work / 3, work * 2 / 3, device, loop.but(**changes))


UNFUSED_OPTIMIZER = CauseLoops(
    "unfused-optimizer",
    kind="at-most",
    well=stepping(replace(ADAM, fused=True)),
    sick={
        "AdamW": Sick(
            stepping(ADAM), 0.4, settings=(FUSE,), cures=("torch.optim.AdamW(model.parameters(), lr=..., fused=True)",)
        ),
        "SGD of many tensors": Sick(stepping(replace(ADAM, name="SGD")), 0.4, settings=(FUSE,)),
        "SGD with momentum": Sick(stepping(replace(ADAM, name="SGD", tensors=4, momentum=True)), 0.4, settings=(FUSE,)),
        "only the slow one of two": Sick(stepping(ADAM, replace(ADAM, fused=True)), 0.2, settings=(FUSE,)),
        "both of two": Sick(stepping(ADAM, ADAM), 0.4, settings=(FUSE,)),
        "hundreds of groups": Sick(
            stepping(replace(ADAM, groups=200)),
            0.4,
            settings=(FUSE,),
            figures=("200 parameter groups",),
            cures=("one group",),
        ),
        "hundreds of groups that cannot be fused": Sick(
            stepping(replace(ADAM, name="RMSprop", groups=200, can_fuse=False)), 0.4, cures=("foreach=True",)
        ),
        "hundreds of fused groups": Sick(
            stepping(replace(ADAM, groups=200, fused=True)),
            0.4,
            figures=("200 parameter groups",),
            cures=("one group",),
            unsaid=("foreach",),
        ),
        "the GPU's own clock": Sick(clocked(0.5, 4.0), 0.4, settings=(FUSE,)),
        "the host's clock where launches limit": Sick(
            clocked(4.0, 0.5, caught_up=1.0), 0.4, named=("small-batch", "unfused-optimizer"), settings=(FUSE,)
        ),
    },
    near={
        "nobody looked": stepping(),
        "a twentieth": stepping(ADAM, optimizer=0.3),
        "it cannot be fused": stepping(replace(ADAM, name="RMSprop", can_fuse=False)),
        "some groups": stepping(replace(ADAM, fused=True, groups=40)),
        "an old recording": stepping(replace(ADAM, fused=True, groups=None)),
        "plain SGD": stepping(replace(ADAM, name="SGD", tensors=4)),
        "the host's seconds are hidden behind the queue": clocked(4.0, 0.5),
        "the GPU's seconds do not set the pace": clocked(0.5, 4.0, caught_up=1.0),
    },
)

# ---- one-by-one ------------------------------------------------------------------------------------------------------

ONE = InputFacts(looked_at=80, shapes=1, shape=(784,), dtype="float32", device="cpu", per_step=32.0, most_per_step=40)
CALLED = Loop(batch=32, setup={"inputs": ONE})
EACH = 0.8 * 31 / 32
"""Forward and backward are 8 of 10 ms."""
BAGS = ("torch.cat(batch)", "split(sizes)")


def given(**changes: Any) -> Loop:
    """Returns the loop whose model gets something else."""
    return CALLED.but(setup={"inputs": replace(ONE, **changes)})


PER_SAMPLE_FORWARD = CauseLoops(
    "per-sample-forward",
    kind="at-most",
    well=given(per_step=1.0, shape=(32, 784)),
    sick={
        "32 forwards": Sick(CALLED, EACH, figures=("32 forward", "32 samples", "784"), unsaid=("padded",)),
        "a batch of one": Sick(given(shape=(1, 784)), EACH),
        "no more of a step were looked at": Sick(
            CALLED.but(batch=256, setup={"inputs": replace(ONE, per_step=40.0)}),
            0.8 * 255 / 256,
            figures=("40 or more",),
        ),
        "samples of different sizes": Sick(given(shapes=30), EACH, cures=("padded",)),
        **{
            f"bags of {instances} instances in {shapes} shapes": Sick(
                given(shape=(instances, 64), shapes=shapes), EACH, cures=BAGS
            )
            for instances, shapes in ((12, 1), (12, 30), (32, 30), (200, 1), (200, 30))
        },
        "launches limit a GPU": Sick(
            on_gpu(batch=32, setup={"inputs": ONE}, caught_up=1.0, gpu_util=25.0, other=10.0).but(
                gpu_gap=10.0, gpu_work=10.0
            ),
            0.5 * 31 / 32,
            named=("slow-python", "per-sample-forward"),
        ),
    },
    near={
        "whole batches, one for each time step": given(shape=(32, 64)),
        "a cell that is called for 32 steps of time": given(shape=(32, 16)),
        "more calls than samples": given(per_step=38.0),
        "a few": given(per_step=4.0),
        "an older recording": given(per_step=None),
        "a small batch": CALLED.but(batch=4, setup={"inputs": replace(ONE, per_step=4.0)}),
        "it mostly waits": CALLED.but(wait=200.0),
        "one environment: each action needs the state before": CALLED.but(has_loader=False),
        "a busy queue of which the phases were not read": on_gpu(batch=32, setup={"inputs": ONE}),
    },
)

PAIR = replace(line("total = total + (z[i] - z[j]).square().sum()", 0.3), before_backward=True)
GRAPH: dict[str, Any] = {"graph_operations": 500, "loss_operations": 450}
PAIRS = Loop(loss=5.0, backward=6.0, lines=(PAIR,), setup=GRAPH)
"""5 of 17 ms make the loss, 6 go back through it and through the model."""
PAIRS_ON_GPU = on_gpu(loss=5.0, lines=(PAIR,), setup=GRAPH)

LOSS_IN_A_LOOP = CauseLoops(
    "loss-in-a-loop",
    kind="at-most",
    well=PAIRS.but(setup={}),
    sick={
        "pairs": Sick(PAIRS, (5 + 6 * 450 / 500) / 17, figures=("450 of the 500", "total = total +")),
        "launches limit a GPU": Sick(PAIRS_ON_GPU.but(caught_up=1.0), (5 + 4 * 450 / 500) / 15),
    },
    near={
        "a loss of several terms": PAIRS.but(setup={**GRAPH, "loss_operations": 60}),
        "a network that is unrolled over time": PAIRS.but(setup={**GRAPH, "loss_operations": 3}),
        "an older recording": PAIRS.but(setup={**GRAPH, "loss_operations": None}),
        "fewer operations than samples": PAIRS.but(batch=1024),
        "it takes little": PAIRS.but(loss=1.0),
        "behind a busy GPU": PAIRS_ON_GPU,
    },
)

# ---- changing-shapes -------------------------------------------------------------------------------------------------

SHAPES = InputFacts(looked_at=100, shapes=30, shape=(32, 128), new_shape_steps=29, new_shape_s=0.4)
TUNED = {"cudnn_benchmark": True}


def shaped(**changes: Any) -> Loop:
    """Returns a loop of 1.02 s that is slow at each of 30 shapes."""
    return Loop(setup={"inputs": replace(SHAPES, **changes)})


def by_net(model: ModelFacts, **setup: Any) -> Loop:
    """Returns the loop with this model, and cuDNN's benchmark on."""
    return Loop(setup={"inputs": SHAPES, "model": model, "flags": TUNED, **setup})


NEW_SHAPES = 0.4 / 1.02

CHANGING_SHAPES = CauseLoops(
    "changing-shapes",
    well=shaped(shapes=1, new_shape_steps=0, new_shape_s=0.0),
    sick={
        "a compiled network of convolutions": Sick(
            by_net(ModelFacts(convolutions=3, compiled=True)), NEW_SHAPES, cures=("dynamic=True", "benchmark")
        ),
        "convolutions of volumes are timed anew too": Sick(
            by_net(ModelFacts(compiled=True), layers={"Conv3d": 9}), NEW_SHAPES, cures=("dynamic=True", "benchmark")
        ),
        "only cures that fit": Sick(shaped(), NEW_SHAPES, unsaid=("dynamic=True", "benchmark")),
        "still new shapes late": Sick(shaped(new_late=7), NEW_SHAPES),
    },
    near={
        "a last batch": shaped(shapes=2, new_shape_steps=1),
        "they cost nothing": shaped(new_shape_s=0.0),
        "they cost a hundredth": shaped(new_shape_s=0.01),
        "nothing to compare is no cost": shaped(new_shape_s=NAN),
        "buckets that have all been seen": shaped(new_late=2),
    },
)

FIRST = Compilation("forward", "<cell>", 6, at_s=0.0, wall_s=2.0)
NUMBER = replace(FIRST, reason="self.epoch == 3", guard_line=7, guard_text="return self.l(x) * self.epoch")
SIZE = replace(FIRST, reason="tensor 'x' size mismatch at index 0. expected 4, actual 5")
GIVEN_UP = replace(NUMBER, at_s=0.99, wall_s=0.0, given_up=True)


def versions(again: Compilation, count: int, wall_s: float = 0.1) -> tuple[Compilation, ...]:
    """Returns the first while the loop warms up, and others one by one after it, over 100 steps of 10 ms."""
    return (FIRST, *(replace(again, at_s=0.1 + 0.12 * n, wall_s=wall_s) for n in range(count)))


def compiled(*found: Compilation, loop: Loop = Loop()) -> Loop:  # noqa: B008
    """Returns the loop with these compilations."""
    return loop.but(setup={**loop.setup, "compilations": found})


AGAINS = 0.6 / 0.99
REASONS: Mapping[str, str] = {
    "GLOBAL_STATE changed: grad_mode": "torch.no_grad()",
    "self.training == True": "torch.no_grad()",
    "2 <= x.size()[0] <= 8": "mark_dynamic",
    SIZE.reason: "mark_dynamic",
    "___check_obj_id(fn, 9437)": "before the loop",
    "k == 3": "register_buffer",
}
"""Code of the cure that is chosen by torch's reason."""

RECOMPILES = CauseLoops(
    "recompiles",
    well=compiled(FIRST),
    sick={
        "a number": Sick(
            compiled(*versions(NUMBER, 6)),
            AGAINS,
            figures=("forward (cell line 6)", "7 times", "self.epoch == 3", "line 7"),
            cures=("register_buffer",),
        ),
        **{
            reason: Sick(compiled(*versions(replace(FIRST, reason=reason), 6)), AGAINS, cures=(code,))
            for reason, code in REASONS.items()
        },
        "it explains steps with new shapes": Sick(
            compiled(*versions(SIZE, 6), loop=shaped()), AGAINS, cures=("mark_dynamic",)
        ),
        "given up, where compiling cost little": Sick(
            compiled(*versions(NUMBER, 7, wall_s=0.001), GIVEN_UP, loop=on_gpu()),
            risk=True,
            figures=("forward (cell line 6)", "8 versions"),
        ),
        "given up, where it cost much": Sick(compiled(*versions(NUMBER, 7), GIVEN_UP), 0.7 / 0.99),
        "functions are told apart": Sick(
            compiled(*versions(NUMBER, 3), *(replace(one, function="loss", line=40) for one in versions(SIZE, 2))),
            0.3 / 0.99,
        ),
    },
    near={
        "nobody listened": Loop(),
        "nothing was compiled": compiled(),
        # they come once, and a long run does not feel them
        "one version for sizes and one for evaluation": compiled(
            FIRST,
            *(
                replace(FIRST, reason=reason, at_s=0.5, wall_s=0.2)
                for reason in (SIZE.reason, "GLOBAL_STATE changed: grad_mode")
            ),
        ),
        "many versions in the warm-up": compiled(
            *(replace(one, at_s=0.001 * n) for n, one in enumerate(versions(NUMBER, 6)))
        ),
    },
)

CAUSES = (
    FULL_PRECISION,
    TF32_OFF,
    EMULATED_HALF_PRECISION,
    CHANNELS_FIRST,
    CUDNN_NOT_TUNED,
    ATTENTION,
    COMPILE,
    WASTED_PADDING,
    UNUSED_GRADIENTS,
    DENSE_EMBEDDING,
    FROZEN_RECOMPUTED,
    DOUBLE_PRECISION,
    HEAVY_EVALUATION,
    EVAL_WITH_GRADIENTS,
    REDUNDANT_FORWARD,
    UNFUSED_OPTIMIZER,
    PER_SAMPLE_FORWARD,
    LOSS_IN_A_LOOP,
    RECOMPILES,
    CHANGING_SHAPES,
)
