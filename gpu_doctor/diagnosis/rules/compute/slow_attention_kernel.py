"""`scaled_dot_product_attention` is called in a way that its fastest kernel does not take.

What it means
    The graph of the first backward names the kernel that each call went to. On a GPU the flash kernel (and cuDNN's)
    takes float16 and bfloat16, a head size up to 256, and no mask but `is_causal=True`; with anything else the call
    goes to the memory-efficient kernel, or is computed by separate operations. On a CPU the fused kernel takes a mask,
    but no dropout.

Why it costs you
    The memory-efficient kernel takes up to 1.9 times as long as flash, separate operations 2.5 to 38 times: they write
    a matrix of tokens times tokens for each head (PyTorch's tutorial of this function: 2.28 ms by flash, 4.38 and 87.4
    by the others; a run of it on an A100 with an older torch: 2.83, 3.01 and 7.00). GPU: not yet run on one. Measured
    on a CPU (torch 2.13, 1 thread): with dropout inside, a step of a small language model took 1.2 times as long with
    64 tokens, 1.2 to 2.6 times with 256, 2.8 times with 1024. A mask cost nothing up to 512 tokens. What it costs here
    is measured: after the run both ways are timed, with its shapes.

What to try
    `is_causal=True` instead of a causal mask; sequences of like length, or none padded, instead of a padding mask, or
    `flex_attention` for masks with a rule; queries, keys and values in the dtype of autocast; on a CPU no dropout on
    the attention weights.

When to leave it
    When the mask says what no rule says, or when dropout on the attention weights was tuned for the result.
"""

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_pace, half_precision, passes
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.machine.cards import AMPERE
from gpu_doctor.recording.setup import AttentionCalls

NEEDS = ("forward_share", "backward_share")

MOST_HEAD_SIZE = 256
"""Of the flash kernel (`check_head_dim_size_flash` in torch's sdp_utils)."""
TIMES_AS_LONG: Final = {"efficient": (1.0, 1.8, 1.9), "math": (1.5, 2.5, 8.4)}
"""Kernel of a GPU -> times as long as flash, low, usual, high: 4.20 and 19.2 to 2.30 ms, 4.38 to 2.28 in two editions
of the tutorial of the page; 7.00 to 2.83 on an A100, which is also what nanoGPT's step says (see attention-by-hand). A
mask that has to stay saves nothing."""

MASK, DTYPE, SIZE, DROPOUT, LEARNED, UNKNOWN = "mask", "dtype", "size", "dropout", "learned", "unknown"
REASONS: Final = {
    MASK: "a mask keeps {calls} off the flash kernel, which knows `is_causal=True` alone",
    DTYPE: "{calls} got {dtype} queries, and the flash kernel takes float16 and bfloat16",
    SIZE: "{calls} have heads of size {size}, and the flash kernel takes up to 256",
    DROPOUT: "dropout on the attention weights keeps {calls} off the fused kernel of a CPU",
    LEARNED: "a mask that gets a gradient keeps {calls} off the fused kernel",
    UNKNOWN: "{calls} did not use a fused kernel; the graph does not tell why",
}
CURES: Final = {
    MASK: (
        "Say `is_causal=True` where the mask is only causal, and sort sequences by length where it hides padding",
        "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # no attn_mask",
        "The same result but for rounding where the mask is only causal.",
    ),
    DTYPE: (
        "Bring queries, keys and values to half precision before the attention",
        "q, k, v = (one.to(torch.bfloat16) for one in (q, k, v))\ny = F.scaled_dot_product_attention(q, k, v)",
        "Attention is rounded to half precision; compare the losses.",
    ),
    SIZE: (
        "Use more heads that are smaller, 256 at most",
        "q, k, v = (one.view(batch, tokens, heads, 128).transpose(1, 2) for one in (q, k, v))",
        "Another model: heads of another size.",
    ),
    DROPOUT: (
        "Leave out the dropout on the attention weights; there is still that behind the layers",
        "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # no dropout_p\n"
        "attention.dropout = 0.0  # of an nn.MultiheadAttention, such as `layer.self_attn`",
        "Less regularisation: attention weights are no longer dropped in training.",
    ),
    LEARNED: (
        "Add the learned bias in `flex_attention`, or freeze it",
        "from torch.nn.attention.flex_attention import flex_attention\n"
        "y = flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + bias[h, i - j])",
        "The same result but for rounding.",
    ),
    UNKNOWN: (
        "Let torch say why it does not take the flash kernel",
        "from torch.nn.attention import SDPBackend, sdpa_kernel\n"
        "with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # raises, and warns of each reason\n"
        "    y = F.scaled_dot_product_attention(q, k, v)",
        "",
    ),
}
"""Cause -> what to do, the line, what changes."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where attention that a faster kernel could compute has its part in forward and backward."""
    calls, spent = vitals.setup.attention_calls, passes.both(vitals)
    if not calls or not spent or not gpu_pace.kernels_set_it(vitals):
        return None
    slow = [(one, cause) for one in calls if (cause := _cause(vitals, one))]
    if not slow:
        return None
    found = _priced(vitals, slow, spent)
    if found is None:
        return None
    low, cost, high = found
    worst, cause = max(slow, key=lambda one: one[0].products)
    text, code, changes = CURES[cause]
    return Finding(
        rule="slow-attention-kernel",
        headline=f"Attention misses its fast kernel: {_about(cause)} {formatting.share(cost)} of the time.",
        cost_share=cost,
        evidence=(
            REASONS[cause].format(calls=_counted(worst), dtype=worst.dtype, size=worst.head_size),
            f"{worst.samples} samples, {worst.heads} heads, {worst.queries} tokens; in the first backward these calls "
            f"went to {_kernel(worst)}",
            f"{_source(vitals, worst)}; forward and backward take {formatting.share(spent)} of the time",
        ),
        prescriptions=(
            Prescription(
                text=text,
                safety=Safety.BY_HAND,
                code=code,
                changes=changes,
            ).saving(low, cost, high),
        ),
    )


def _cause(vitals: Vitals, one: AttentionCalls) -> str:
    """Why these calls are not on the fastest kernel of the device; empty where they are, or nothing is better."""
    if one.kernel == "math":
        by_inputs = (LEARNED, one.learned_mask), (DROPOUT, one.drops and not vitals.on_gpu), (SIZE, _too_wide(one))
        return next((cause for cause, is_it in by_inputs if is_it), UNKNOWN)
    if one.kernel != "efficient" or not vitals.at_least(AMPERE):  # below, it is the fastest there is
        return ""
    if one.dtype not in half_precision.HALVES:  # a whole model in float32 is full-precision's
        return DTYPE if vitals.setup.autocast or vitals.setup.dtype in half_precision.HALVES else ""
    return SIZE if _too_wide(one) else UNKNOWN if one.masked is False else MASK


def _too_wide(one: AttentionCalls) -> bool:
    return one.head_size is not None and one.head_size > MOST_HEAD_SIZE


def _about(cause: str) -> str:
    return "up to" if cause == MASK else "about"


def _priced(vitals: Vitals, slow: list[tuple[AttentionCalls, str]], spent: float) -> tuple[float, float, float] | None:
    """Shares of the wall-clock, low, usual and high: timed on a CPU; on a GPU by products and kernels."""
    if not vitals.on_gpu:
        return passes.saved(vitals, vitals.setup.attention_longer_s)
    calls, model = vitals.setup.attention_calls, vitals.model
    if not calls or model is None or not model.product_weights:
        return None
    whole = sum(one.products for one in calls) + model.product_weights * max(one.samples * one.queries for one in calls)
    shares = (sum(one.products * (TIMES_AS_LONG[one.kernel][at] - 1.0) for one, _ in slow) / whole for at in range(3))
    low, usual, high = (gpu_pace.at_most(vitals, spent * one / (1.0 + one)) for one in shares)
    return low, usual, high


def _source(vitals: Vitals, worst: AttentionCalls) -> str:
    if vitals.on_gpu:
        times = formatting.forecast(TIMES_AS_LONG[worst.kernel][1])
        return f"estimated for a kernel {times} as fast and by the number of products"
    longer = (vitals.setup.attention_longer_s or (0.0, 0.0))[1]
    return f"after the run this shape was timed both ways: the fused kernel saves {formatting.seconds(longer)}"


def _counted(one: AttentionCalls) -> str:
    return "a call of attention" if one.calls == 1 else f"{one.calls} calls of attention"


def _kernel(one: AttentionCalls) -> str:
    return "separate operations" if one.kernel == "math" else "the memory-efficient kernel"
