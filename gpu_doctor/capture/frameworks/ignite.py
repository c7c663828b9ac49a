"""Ignite: its Engine calls the user's own step, so that nothing of it has to be known but whose state it keeps."""

from __future__ import annotations

from typing import Final

from gpu_doctor.capture.frameworks.framework import Framework

FRAMEWORK: Final = Framework(name="Ignite", packages=("ignite",))
