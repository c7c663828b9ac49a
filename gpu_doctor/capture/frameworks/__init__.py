"""Training frameworks: the facts about each, as data in one file each, listed in FRAMEWORKS.

No framework is imported: it is looked up in `sys.modules` and in the text of cells, if a program uses it.
"""

from typing import Final

from gpu_doctor.capture.frameworks import accelerate, fastai, ignite, lightning, skorch, transformers
from gpu_doctor.capture.frameworks.framework import Class, Framework

__all__ = ["FRAMEWORKS", "Class", "Framework"]

FRAMEWORKS: Final[tuple[Framework, ...]] = tuple(
    framework.FRAMEWORK for framework in (transformers, lightning, accelerate, skorch, fastai, ignite)
)
