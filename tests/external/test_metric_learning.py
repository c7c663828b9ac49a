"""pytorch-metric-learning: losses and miners in a loop of one's own."""

from __future__ import annotations

from tests.support.checks import Checks
from tests.support.framework_programs.metric_learning import program


class TestMetricLearning(Checks):
    """All checks."""

    program = staticmethod(program)
