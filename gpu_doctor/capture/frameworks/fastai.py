"""fastai 2: its Learner makes an optimizer of fastai's own by default, which calls none of torch's hooks."""

from __future__ import annotations

from typing import Final

from gpu_doctor.capture.frameworks.framework import Framework

FRAMEWORK: Final = Framework(name="fastai", packages=("fastai",), optimizers=(("fastai.optimizer", "Optimizer"),))
