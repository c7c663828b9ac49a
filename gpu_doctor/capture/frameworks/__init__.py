"""The shelf of training frameworks: what is known of each, as data, one file each, listed in FRAMEWORKS.

None is imported: a framework is looked up in `sys.modules` and in the text of cells, where a program uses it.
"""

from typing import Final

from gpu_doctor.capture.frameworks import accelerate, fastai, ignite, lightning, skorch, transformers
from gpu_doctor.capture.frameworks.framework import Class, Framework

__all__ = ["FRAMEWORKS", "Class", "Framework"]

FRAMEWORKS: Final[tuple[Framework, ...]] = tuple(
    one.FRAMEWORK for one in (transformers, lightning, accelerate, skorch, fastai, ignite)
)
