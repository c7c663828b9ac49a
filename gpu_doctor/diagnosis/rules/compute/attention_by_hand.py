"""Attention is computed product by product instead of by one fused kernel.

What it means
    The model multiplies queries with keys, scales, masks, takes the softmax and multiplies with the values, each as an
    operation of its own. (`nn.MultiheadAttention` does the same when it returns its weights, which is its default.)

Why it costs you
    For each head a matrix of sequence length times sequence length is written and read again several times, forward and
    backward, and kept. `F.scaled_dot_product_attention` never writes it. PyTorch's blog reports 143 to 113 ms a step
    for nanoGPT on an A100 (accelerating-large-language-models; 1024 tokens, width 768); measured on a CPU (torch 2.13,
    1 thread, width 128): 10 % of the step with 64 tokens, 28 % with 256, 44 % with 512, 63 % with 1024.

What to try
    `F.scaled_dot_product_attention(q, k, v, is_causal=True)`, with `attn_mask` or `dropout_p` where you have them;
    `need_weights=False` for `nn.MultiheadAttention`; `attn_implementation="sdpa"` for models of transformers. The
    result is the same but for rounding and the random numbers of dropout. GPU: not yet run on one.

When to leave it
    When the weights themselves are wanted (to plot them), or the attention is not of this form.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_pace
from gpu_doctor.diagnosis.rules.evidence import sizes
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("forward_share", "backward_share", "model", "inputs")

LOOKED_AT = 3
"""Inputs that must have been seen: the first may be a try."""
DOUBT = 1.5
"""Of the attention's part of the arithmetic its fused kernel saved 1.1 to 1.7 times as much on the CPU of this page,
1.15 times in PyTorch's blog. The least is nothing: whether all tokens ask for attention or one query is not seen."""
BY_HAND = (
    "Compute the attention with one fused kernel",
    "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # q, k, v: batch, heads, tokens, head size",
)
WEIGHTS = (
    "Do not ask for the attention weights",
    "y, _ = self.attention(x, x, x, need_weights=False)",
)


def check(vitals: Vitals) -> Finding | None:
    """Fires where attention by hand has its part in the arithmetic of forward and backward."""
    model, inputs, tokens = vitals.model, vitals.inputs, _tokens(vitals)
    busy = vitals.gpu_busy_share
    if (
        model is None
        or inputs is None
        or not model.attention
        or not model.product_weights
        or not tokens
        or vitals.compiled
    ):
        return None
    if not gpu_pace.kernels_set_it(vitals) or (vitals.on_gpu and busy is None):
        return None
    # A token makes two operations with each weight, and four with each number of each other token's key and value.
    pairing = 2.0 * tokens * model.attention_width
    part = pairing / (model.product_weights + pairing)
    spent = busy if vitals.on_gpu and busy is not None else vitals.passes_share
    cost = gpu_pace.at_most(vitals, spent * part)
    passes = "the forward takes" if vitals.predicts else "forward and backward take"
    text, code = WEIGHTS if model.asks_weights else BY_HAND
    return Finding(
        rule="attention-by-hand",
        headline=f"Attention runs as separate operations: about {formatting.share(cost)} of the time; one fused "
        "kernel can do it.",
        cost_share=cost,
        evidence=(
            *model.attention,
            f"estimated for sequences of {tokens} (input {sizes(inputs.shape)}), where each token attends to all "
            "others",
            f"attention is then {formatting.share(part)} of the arithmetic, and {passes} {formatting.share(spent)} "
            "of the time",
        ),
        prescriptions=(
            Prescription(
                text=text,
                safety=Safety.BY_HAND,
                code=code,
                changes="The same result but for rounding, and other random numbers where attention has dropout.",
            ).saving(0.0, cost, cost * DOUBT),
        ),
    )


def _tokens(vitals: Vitals) -> int:
    """Length of a sequence, of (samples, tokens) or (samples, tokens, width) or with both turned about; 0 if none.

    Which of the first two is which, the loader's batch size says, else the attention itself; where neither does, the
    shorter one is taken.
    """
    inputs, loader = vitals.inputs, vitals.loader
    if inputs is None or inputs.looked_at < LOOKED_AT:
        return 0
    if len(inputs.shape) != 3 and not ("int" in inputs.dtype and len(inputs.shape) == 2):
        return 0
    first, second = inputs.shape[:2]
    size = loader.batch_size if loader is not None else None
    if size in (first, second) and first != second:
        return second if size == first else first
    by_module = vitals.model.attention_batch_first if vitals.model is not None else None
    return min(first, second) if by_module is None else second if by_module else first
