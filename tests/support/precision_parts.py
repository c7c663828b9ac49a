"""What the tests of precision share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from gpu_doctor.trials.matmul_precision import newer_places

newer = pytest.mark.skipif(not list(newer_places()), reason="this torch has no fp32_precision")


def matmul(value: str) -> Callable[[], None]:
    return lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", value)
