"""Facts about fastai 2: by default its Learner uses fastai's own optimizer, which calls none of torch's hooks."""

from __future__ import annotations

from typing import Final

from gpu_doctor.capture.frameworks.framework import Framework

FRAMEWORK: Final = Framework(name="fastai", packages=("fastai",), optimizers=(("fastai.optimizer", "Optimizer"),))
