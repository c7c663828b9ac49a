"""Why an optimizer that evaluates the loss itself has no fp16. Needs no torch: the panel says it too."""

from __future__ import annotations

from typing import Final

LBFGS: Final = "LBFGS evaluates the loss several times a step, which gradient scaling cannot follow: try bf16."
