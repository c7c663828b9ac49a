"""What another thread of the user's does stays whole while models are met."""

from __future__ import annotations

import sys
import threading

import torch
from torch import nn

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import backward, optimizer
from gpu_doctor.capture.taps.forward import SEAM
from gpu_doctor.capture.taps.tap import TapScope
from tests.support.one_tap import on, sgd


def test_tuples_that_another_thread_builds_stay_whole_while_200_models_are_met_20_times() -> None:
    """Up to Python 3.13 a tuple that is being built fails with a SystemError where somebody else refers to it."""
    over, errors, built = threading.Event(), list[BaseException](), 0

    def build() -> None:
        nonlocal built
        try:
            while not over.is_set():
                assert len(tuple(i for i in range(50))) == 50
                built += 1
        except BaseException as error:
            errors.append(error)

    def together(scope: TapScope) -> None:
        backward.tap(scope)
        optimizer.tap(scope)

    interval, thread = sys.getswitchinterval(), threading.Thread(target=build)
    sys.setswitchinterval(1e-4)
    thread.start()
    try:
        x = torch.ones(2, 2)
        for _ in range(20):
            with on(together, Recorder()) as scope:
                for _ in range(200):
                    net = nn.Linear(2, 1)
                    sgd(net).zero_grad()
                    net(x)
                    assert net in scope.models and SEAM in vars(net)
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert not errors and built > 20 * 200
