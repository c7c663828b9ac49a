"""What holds for every test: nothing of ours survives it, and only some folders' tests may run again, once."""

from __future__ import annotations

import signal

import pytest

from tests.support.leftovers import nothing_of_ours_survives as nothing_of_ours_survives
from tests.support.leftovers import torch_as_it_was as torch_as_it_was
from tests.support.outcomes import Outcomes, may_run_again

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background (`make test &`), a process ignores Ctrl-C, which Stop is made of; a kernel never does.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Registers what counts outcomes."""
    config.pluginmanager.register(Outcomes(config), "gpu_doctor_outcomes")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives a second chance to tests that compare real clocks or drive a real browser, and to no other."""
    for item in items:
        if may_run_again(item.nodeid):
            item.add_marker(pytest.mark.flaky(reruns=1))
