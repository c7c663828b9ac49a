"""Ignite: engines for training and evaluation, with handlers at the epochs' ends; they iterate loaders themselves."""

from __future__ import annotations

from tests.support.checks import Checks
from tests.support.framework_programs.ignite import program


class TestIgnite(Checks):
    """All checks."""

    program = staticmethod(program)
