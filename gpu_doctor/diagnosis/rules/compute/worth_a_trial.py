"""Rule for settings that may make the computing itself faster. A recording cannot price them; a trial can.

Each is reported only in a loop that computing limits, and only if the setting is possible here. There are four groups,
precision, convolutions, attention and compiling, with at most one cause from each.
"""

from __future__ import annotations

import re
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_pace, half_precision
from gpu_doctor.diagnosis.rules.evidence import sizes, uncompiled
from gpu_doctor.diagnosis.rules.half_precision import HALVES, SCALED, products_share
from gpu_doctor.diagnosis.rules.prescriptions import COMPILED
from gpu_doctor.diagnosis.rules.rule import NAMING_BAR, Cause, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.arithmetic import CONVOLUTIONS, convolutions_in_tf32, has_tf32, matrices_in_tf32
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.machine.cards import AMPERE, TENSOR_CORES
from gpu_doctor.recording.setup import AttentionCalls

CAUSES: Final = (
    Cause(
        "full-precision",
        """
        Matrix products run in float32 although the GPU has tensor cores for half precision.

        What it means
            The model's weights are float32 and autocast is off. GPUs since Volta multiply half-precision matrices
            several times as fast.

        Why it costs you
            Forward and backward take longer than they need to, and activations take twice the memory. From compute
            capability 8.0 on, convolutions run in TF32 by default, and then there is less to gain. Nothing in this run
            says how much, so this is a hint without a price: a trial measures it.

        What to try
            Run the forward and the loss under bfloat16 autocast (compute capability 8.0 and later), or under float16
            autocast with a GradScaler (V100, T4). A trial shows the speed-up and both losses. If float32 has to stay,
            TF32 is one line and gains less.

        In code
            # sick
            loss = criterion(model(inputs), targets)
            # cured
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = criterion(model(inputs), targets)

        When to leave it
            Leave it if the result needs float32, as some losses and scientific models do.
        """,
        ("gpu_busy_share", "capability"),
    ),
    Cause(
        "tf32-off",
        """
        Float32 matrix products run without tensor cores although the GPU has TF32.

        What it means
            `torch.get_float32_matmul_precision()` is "highest", the default, so products of float32 matrices are
            computed in full float32. Convolutions may use TF32 by default, unless the code sets
            `torch.backends.cudnn.allow_tf32 = False`.

        Why it costs you
            From compute capability 8.0 on, tensor cores multiply float32 matrices that are rounded to TF32 several
            times as fast. Nothing in this run says how much this loop gains, so this is a hint without a price: a trial
            measures it.

        What to try
            Set the precision to "high" once, before training. A trial shows the speed-up and both losses.

        In code
            # sick
            torch.set_float32_matmul_precision("highest")  # the default
            # cured
            torch.set_float32_matmul_precision("high")

        When to leave it
            Leave it if the result needs all 23 bits of the mantissa. If bfloat16 autocast is an option, take that
            instead: it gains more.
        """,
        ("gpu_busy_share", "capability"),
    ),
    Cause(
        "emulated-half-precision",
        """
        The GPU emulates the half precision in use, or float16 runs without a gradient scaler.

        What it means
            bfloat16 is native from compute capability 8.0 on; older cards emulate it in float32. And float16 has no
            numbers below 6e-8: without a GradScaler, small gradients become zero.

        Why it costs you
            Emulated products do not use the tensor cores. Nothing in this run says how much time that takes, so it is a
            hint without a price. Gradients that become zero are a risk: the layers that get them stop learning.

        What to try
            Before compute capability 8.0, use float16 with a `torch.amp.GradScaler`. On later cards use bfloat16, which
            needs no scaler.

        In code
            # sick
            with torch.autocast("cuda", dtype=torch.bfloat16):  # on a V100 or a T4
                loss = criterion(model(inputs), targets)
            # cured
            scaler = torch.amp.GradScaler("cuda")  # once, before the loop
            with torch.autocast("cuda", dtype=torch.float16):
                loss = criterion(model(inputs), targets)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

        When to leave it
            Leave it if the loop scales its loss in a way that gpu_doctor does not see, or if you use bfloat16 only to
            save memory.
        """,
        ("step_wall_s", "gpu"),
    ),
    Cause(
        "channels-first-convolutions",
        """
        Half-precision convolutions run on tensors stored channels first; tensor cores take channels last.

        What it means
            Images and weights are stored as N, C, H, W. Tensor cores work on N, H, W, C, so cuDNN transposes before and
            after, or takes a slower kernel.

        Why it costs you
            Each convolution may move its data twice more. Nothing in this run says how much time that takes, so this is
            a hint without a price: a trial measures it. This rule has not run on a real GPU yet.

        What to try
            Convert the model once and the inputs in each step. The values stay the same.

        In code
            # sick
            outputs = model(images)
            # cured
            model = model.to(memory_format=torch.channels_last)  # once, before the loop
            outputs = model(images.to(memory_format=torch.channels_last))

        When to leave it
            Leave it if most of the work is in other layers, or in 1D and 3D convolutions, which have no such layout.
            Leave it too if the model views its features in ways that need channels first: each such place copies.
        """,
        ("gpu_busy_share", "capability", "model"),
    ),
    Cause(
        "cudnn-not-tuned",
        """
        Convolutions of one fixed shape use the algorithm that cuDNN guesses, not the fastest one.

        What it means
            `torch.backends.cudnn.benchmark` is off, so cuDNN chooses its algorithms by a heuristic. If it is on, cuDNN
            times all of them once for each new shape.

        Why it costs you
            For some shapes the guess is far from the fastest, and every step pays for it. Nothing in this run says how
            far, so this is a hint without a price: a trial measures it.

        What to try
            Turn the benchmark on once, before training.

        In code
            # sick
            torch.backends.cudnn.benchmark = False  # the default
            # cured
            torch.backends.cudnn.benchmark = True

        When to leave it
            Leave it if input shapes change from batch to batch, because cuDNN times each of them, or if runs must
            repeat bit for bit.
        """,
        ("gpu_busy_share", "inputs"),
    ),
    Cause(
        "attention",
        """
        Attention runs as separate operations, although one fused kernel could compute it.

        What it means
            The model multiplies queries with keys, takes the softmax and multiplies with the values itself, as
            `nn.MultiheadAttention` does when it returns its weights. Or it calls `scaled_dot_product_attention` with
            something that no fused kernel accepts, such as a mask that gets a gradient, or on a CPU dropout.

        Why it costs you
            Separate operations write and read a matrix of tokens times tokens for each head several times, forward and
            backward. The fused kernels never write it. Nothing in this run says how much time that takes, so this is a
            hint without a price: a trial measures it. This rule has not run on a real GPU yet.

        What to try
            Call `F.scaled_dot_product_attention`, and pass a causal mask as `is_causal=True`. With
            `nn.MultiheadAttention` pass `need_weights=False`. For models of transformers, use
            `attn_implementation="sdpa"`. `flex_attention` accepts masks that follow a rule.

        In code
            # sick
            y = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1) @ v
            # cured
            y = F.scaled_dot_product_attention(q, k, v)  # q, k, v: batch, heads, tokens, head size

        When to leave it
            Leave it if you need the weights themselves, if the sequences are short, or if the mask follows no rule.
        """,
        ("forward_share", "backward_share"),
    ),
    Cause(
        "compile",
        """
        The GPU is busy with a model of fixed shapes that is not compiled.

        What it means
            Each operation of the model runs as a kernel of its own, which reads its inputs from memory and writes its
            result back. `torch.compile` fuses neighbouring operations into one kernel.

        Why it costs you
            The activations, normalisations and additions between the matrix products wait for memory. Nothing in this
            run says how much fusing them saves, so this is a hint without a price: a trial measures it. This rule has
            not run on a real GPU yet.

        What to try
            Compile the model. The first steps compile for seconds to minutes; a trial leaves them out.

        In code
            # sick
            outputs = model(inputs)
            # cured
            compiled = torch.compile(model)  # once, before the loop
            outputs = compiled(inputs)

        When to leave it
            Leave it if the run is shorter than the compilation, or if input shapes change all the time.
        """,
        ("gpu_busy_share", "capability", "model", "inputs"),
    ),
)

WAIT_SHARE: Final = 0.20
"""Share of the wall-clock from which on waiting for data limits the loop: faster kernels would only wait longer."""
COMPUTES: Final = 0.5
"""Share of forward, loss and backward from which on a loop on a CPU is compute-bound."""
TENSOR_ACTIVE_PCT: Final = 1.0
"""Activity of the tensor cores, in per cent, below which they are not used (torch-tb-profiler: 0)."""
CUBLAS: Final = ("Linear", "MultiheadAttention", "Bilinear", "NonDynamicallyQuantizableLinear")
"""Layers of matrix products, which `set_float32_matmul_precision` affects."""
CUDNN: Final = (*CONVOLUTIONS, "LSTM", "GRU")
"""Layers that cuDNN computes, which `cudnn.allow_tf32` affects."""
PRODUCTS: Final = ("Linear", "MultiheadAttention", "Bilinear", *CUDNN)
"""Layers that multiply; an Embedding only looks up rows."""
ONE_LAYOUT: Final = (*CUBLAS, "Conv1d", "Conv3d", "ConvTranspose1d", "ConvTranspose3d", "LSTM", "GRU")
"""Layers whose kernels are the same in either memory layout."""
STORED: Final = 0.5
"""Part of the convolutions with weights stored channels last from which on the model has been converted; a convolution
with one input channel does not show it."""
LOOKED_AT: Final = 5
"""Fewest inspected forwards that show that shapes do not change."""
SHORT_SHARE: Final = 0.05
"""Part of a layer's products that attention between tokens must make up for sequences to be long (see `_long`)."""
BY_HAND: Final = "by hand"
"""Kernel name in recordings for attention in other code than torch's `scaled_dot_product_attention`."""
SEPARATE: Final = ("math", BY_HAND)
"""Kernel names of attention that is computed by separate operations."""
LOSS_SCALED: Final = re.compile(r"GradScaler|\.scale\(|\bscale_loss\b|loss_scale")
"""Text of a loop that scales its loss itself, with `scaler.scale(loss)`, apex's `scale_loss` or `loss * loss_scale`."""
BACKWARD: Final = re.compile(r"(?<!accelerator)(?<!fabric)(?<!engine)\.backward\(")
"""Pattern of a loop that itself calls backward on a loss, so that its text would also show a scaler."""
TIMED: Final = Prescription(
    "Let cuDNN time its algorithms once",
    Safety.SAFE,
    settings={"cudnn_benchmark": True},
    code="torch.backends.cudnn.benchmark = True",
)
CHANNELS_LAST: Final = Prescription(
    "Store model and images channels last",
    Safety.SAFE,
    settings={"channels_last": True},
    code="model = model.to(memory_format=torch.channels_last)\nimages = images.to(memory_format=torch.channels_last)",
)
FUSED: Final = Prescription(
    "Compute the attention with one fused kernel",
    Safety.BY_HAND,
    code="y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # q, k, v: batch, heads, tokens, head size",
    changes="The same result but for rounding, and other random numbers where attention has dropout.",
)
WEIGHTLESS: Final = Prescription(
    "Do not return the attention weights", Safety.BY_HAND, code="y, _ = self.attention(x, x, x, need_weights=False)"
)
TAKEN: Final = Prescription(
    "Meet the flash kernel's conditions: half precision, head sizes up to 256, no mask but `is_causal=True`",
    Safety.BY_HAND,
    code="from torch.nn.attention import SDPBackend, sdpa_kernel\n"
    "with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # if it cannot be used, this raises and warns of each reason\n"
    "    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
)


def check(vitals: Vitals) -> list[Finding]:
    """Reports settings worth a trial in a compute-bound loop, and, as a risk, float16 without a gradient scaler."""
    found = [_unscaled(vitals)]
    if compute_bound(vitals):
        kernels = (_precision(vitals), _convolutions(vitals)) if vitals.on_gpu else ()
        found += [*kernels, _attention(vitals), _compile(vitals)]
    return [finding for finding in found if finding is not None]


def compute_bound(vitals: Vitals) -> bool:
    """True if faster kernels would make the loop faster: nothing else limits it."""
    wait = vitals.exposed_wait_share
    if wait is None or wait >= WAIT_SHARE:
        return False
    if not vitals.on_gpu:
        return vitals.passes_share >= COMPUTES
    products = products_share(vitals) or 0.0
    return gpu_pace.kernels_set_it(vitals) and gpu_pace.at_most(vitals, products) >= NAMING_BAR


def _hint(rule: str, headline: str, evidence: tuple[str, ...], *cures: Prescription) -> Finding:
    """Builds a finding without a price."""
    return Finding(rule=rule, kind="hint", headline=headline, cost_share=None, evidence=evidence, prescriptions=cures)


def _bounded(vitals: Vitals) -> str:
    """Says what share of the GPU's time faster products could save at most, as evidence."""
    taken = "the forward takes" if vitals.predicts else "forward and backward take"
    return f"{taken} {formatting.share(products_share(vitals))} of the GPU's time: no more can be saved"


# ---- number formats --------------------------------------------------------------------------------------------------


def _precision(vitals: Vitals) -> Finding | None:
    """Reports the first cause in precision that applies."""
    return _emulated(vitals) or _full_precision(vitals) or _tf32_off(vitals)


def _emulated(vitals: Vitals) -> Finding | None:
    """Reports bfloat16 on a card that emulates it; not in a trial of autocast."""
    if vitals.dtype != "bfloat16" or vitals.card is None or vitals.capability is None or vitals.at_least(AMPERE):
        return None
    if "amp" in vitals.settings:
        return None
    where = "autocast" if vitals.setup.autocast else "the parameters"
    cure = Prescription(
        text=f"Use float16 autocast{'' if vitals.predicts else ' with a gradient scaler'} on this card",
        safety=Safety.BY_HAND,
        code=half_precision.code(vitals, "float16"),
        changes=f"float16 has more bits and less range than bfloat16; compare the {half_precision.compared(vitals)}.",
    )
    return _hint(
        "emulated-half-precision",
        f"{vitals.card.name} emulates bfloat16: float16 is worth a trial.",
        (f"{where} in bfloat16 on a card without native bfloat16", _bounded(vitals)),
        cure,
    )


def _unscaled(vitals: Vitals) -> Finding | None:
    """Reports, as a risk, training in float16 in a cell that scales no loss."""
    setup = vitals.setup
    if not vitals.on_gpu or vitals.dtype != "float16" or vitals.step_wall_s is None or "amp" in vitals.settings:
        return None
    if setup.grad_scaler or LOSS_SCALED.search(vitals.source) or not BACKWARD.search(vitals.source):
        return None
    cures = [Prescription("Scale the loss", Safety.BY_HAND, code=SCALED)]
    if vitals.at_least(AMPERE):
        code = half_precision.code(vitals, "bfloat16")
        cures.insert(0, Prescription("Use bfloat16, which needs no scaler", Safety.BY_HAND, code=code))
    where = "autocast" if setup.autocast else "the parameters"
    return Finding(
        rule="emulated-half-precision",
        kind="hint",
        headline="float16 without a gradient scaler: small gradients become zero.",
        cost_share=None,
        evidence=(f"{where} in float16, and the cell calls backward without a GradScaler",),
        prescriptions=tuple(cures),
        risk="Gradients below 6e-8 underflow to zero in float16, and the layers that get them stop learning.",
    )


def _full_precision(vitals: Vitals) -> Finding | None:
    """Reports float32 products without autocast on a card whose tensor cores could compute half precision."""
    setup, card, products = vitals.setup, vitals.card, vitals.layers(*PRODUCTS)
    if card is None or not vitals.at_least(TENSOR_CORES) or setup.dtype != "float32" or setup.autocast or not products:
        return None
    tf32 = _in_tf32(vitals)
    if not tf32 and (vitals.tensor_active_pct or 0.0) >= TENSOR_ACTIVE_PCT:
        return None  # tensor cores are used
    knob, name = ("bf16", "bfloat16") if vitals.at_least(AMPERE) else ("fp16", "float16")
    scaled = " and a gradient scaler" if knob == "fp16" and not vitals.predicts else ""
    half = Prescription(
        text=f"{'Run' if vitals.predicts else 'Train'} with {name} autocast{scaled}",
        safety=Safety.CHANGES_TRAINING,
        settings={"amp": knob},
        code=half_precision.code(vitals, name),
        changes=f"Forward products are rounded to {name}; compare the {half_precision.compared(vitals)}.",
    )
    milder = (_tf32(vitals, "Or stay in float32 and let its products run in TF32"),) if _tf32_possible(vitals) else ()
    return _hint(
        "full-precision",
        f"{'TF32' if tf32 else 'Full precision'} on {formatting.article(card.name)}: half precision is worth a trial.",
        (f"{products} layers with float32 products, no autocast", _bounded(vitals)),
        half,
        *milder,
    )


def _tf32_off(vitals: Vitals) -> Finding | None:
    """Reports float32 products that could run in TF32."""
    card = vitals.card
    if card is None or not _tf32_possible(vitals):
        return None
    by_cudnn, by_cublas = _layers(vitals)
    switch = 'matmul precision "highest"' if by_cublas > by_cudnn else "cudnn.allow_tf32 is False"
    return _hint(
        "tf32-off",
        f"TF32 is off on {formatting.article(card.name)}: it is worth a trial for float32 products.",
        (f"{max(by_cublas, by_cudnn)} layers with float32 products, {switch}", _bounded(vitals)),
        _tf32(vitals, "Let float32 products run in TF32"),
    )


def _layers(vitals: Vitals) -> tuple[int, int]:
    """Returns the number of layers that cuDNN computes, and of those with matrix products by cuBLAS."""
    return vitals.layers(*CUDNN), vitals.layers(*CUBLAS)


def _in_tf32(vitals: Vitals) -> bool:
    """True if most layers with float32 products run in TF32 already: half precision gains less on them."""
    by_cudnn, by_cublas = _layers(vitals)
    allowed = convolutions_in_tf32 if by_cudnn > by_cublas else matrices_in_tf32
    return has_tf32(vitals.card) and allowed(vitals.setup)


def _tf32_possible(vitals: Vitals) -> bool:
    """True if most float32 products could run in TF32 and torch's switch prevents it."""
    setup, (by_cudnn, by_cublas) = vitals.setup, _layers(vitals)
    matrices = setup.flags.get("matmul_precision") == "highest" and by_cublas > by_cudnn
    prevented = matrices or (setup.flags.get("cudnn_tf32") is False and by_cudnn > by_cublas)
    return has_tf32(vitals.card) and prevented and setup.dtype == "float32" and not setup.autocast


def _tf32(vitals: Vitals, text: str) -> Prescription:
    """Prescribes TF32: by a trial, or by hand if the switch that the knob `tf32` turns is on already.

    Args:
        vitals: vitals of the run.
        text: what to do, without a full stop.
    """
    by_cudnn, by_cublas = _layers(vitals)
    turns = vitals.setup.flags.get("matmul_precision") == "highest"
    cublas, cudnn = 'torch.set_float32_matmul_precision("high")', "torch.backends.cudnn.allow_tf32 = True"
    return Prescription(
        text=text,
        safety=Safety.CHANGES_TRAINING if turns else Safety.BY_HAND,
        settings={"tf32": True} if turns else {},
        code=cublas if by_cublas > by_cudnn else cudnn,
        changes="Float32 products keep 10 of 23 bits of their factors' mantissa; compare the "
        f"{half_precision.compared(vitals)}.",
    )


# ---- convolutions and compiling --------------------------------------------------------------------------------------


def _convolutions(vitals: Vitals) -> Finding | None:
    """Reports channels-first convolutions, or else untuned ones: the layout decides which algorithms are possible."""
    untuned = _untuned(vitals)
    model, inputs = vitals.model, vitals.inputs
    emulated = vitals.dtype == "bfloat16" and not vitals.at_least(AMPERE)
    if model is None or vitals.dtype not in HALVES or emulated or not vitals.at_least(TENSOR_CORES):
        return untuned
    if model.convolutions <= vitals.layers(*ONE_LAYOUT) or model.channels_last >= STORED * model.convolutions:
        return untuned
    if inputs is not None and inputs.channels_last:
        return untuned
    first = model.convolutions - model.channels_last
    return _hint(
        "channels-first-convolutions",
        "Half-precision convolutions run channels first: channels_last is worth a trial.",
        (f"{first} of {model.convolutions} 2D convolutions have weights stored channels first", _bounded(vitals)),
        CHANNELS_LAST,
        *((TIMED,) if untuned is not None else ()),
    )


def _untuned(vitals: Vitals) -> Finding | None:
    """Reports convolutions of one fixed shape if cudnn.benchmark is off."""
    flags, inputs, convolutions = vitals.setup.flags, vitals.inputs, vitals.layers(*CONVOLUTIONS)
    if inputs is None or inputs.shapes != 1 or inputs.looked_at < LOOKED_AT or convolutions <= vitals.layers(*CUBLAS):
        return None
    if flags.get("cudnn_benchmark") is not False or flags.get("deterministic"):
        return None
    return _hint(
        "cudnn-not-tuned",
        "cuDNN guesses its convolution algorithms: cudnn.benchmark is worth a trial.",
        (f"{convolutions} convolutions, every input of shape {sizes(inputs.shape)}", _bounded(vitals)),
        TIMED,
    )


def _compile(vitals: Vitals) -> Finding | None:
    """Reports a model on a GPU that is not compiled although torch.compile is possible."""
    inputs = vitals.inputs
    if not vitals.on_gpu or vitals.model is None or inputs is None or not vitals.could_compile:
        return None
    return _hint(
        "compile",
        "The model is not compiled: torch.compile is worth a trial.",
        (uncompiled(inputs), _bounded(vitals)),
        COMPILED,
    )


# ---- attention -------------------------------------------------------------------------------------------------------


def _attention(vitals: Vitals) -> Finding | None:
    """Reports attention over long sequences by separate operations, as the graph of the first backward shows."""
    calls = () if vitals.compiled else vitals.setup.attention_calls or ()
    slow = [each for each in calls if each.kernel in SEPARATE and _long(each)]
    if not slow:
        return None
    largest = max(slow, key=lambda each: each.calls * each.samples * each.heads * each.queries * each.keys)
    times = f"{largest.calls} times" if largest.calls > 1 else "once"
    size = "" if largest.head_size is None else f" of size {largest.head_size}"
    cures: tuple[Prescription, ...] = (TAKEN,)
    if largest.kernel == BY_HAND:
        cures = (WEIGHTLESS, FUSED) if vitals.layers("MultiheadAttention") else (FUSED,)
    return _hint(
        "attention",
        "Attention runs as separate operations: a fused kernel is worth a trial.",
        (
            f"attention is computed {times} a forward, by separate operations",
            f"{largest.samples * largest.heads} heads{size} over {largest.queries} tokens each, all samples together, "
            f"{largest.dtype}",
        ),
        *cures,
    )


def _long(attention: AttentionCalls) -> bool:
    """True if the products between tokens are a noticeable part of a transformer layer with this width.

    For each token, a layer multiplies with 12 width^2 weights (attention and a fourfold perceptron), and 2 tokens *
    width times in the attention itself.
    """
    width = attention.heads * (attention.head_size or 0)
    return attention.keys >= SHORT_SHARE * (6 * width + attention.keys)
