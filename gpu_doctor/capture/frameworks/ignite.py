"""Facts about Ignite: its Engine calls the user's own step, so only its package's state matters, for trials."""

from __future__ import annotations

from typing import Final

from gpu_doctor.capture.frameworks.framework import Framework

FRAMEWORK: Final = Framework(name="Ignite", packages=("ignite",))
