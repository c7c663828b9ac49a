"""Loaders that are made and dropped inside a cell are not kept alive by the recording."""

from __future__ import annotations

import gc

from torch.utils.data import DataLoader

from gpu_doctor.capture.describe import loaders
from gpu_doctor.trials.knobs import loader_change
from tests.support.loaders_parts import Numbers


def test_loaders_made_inside_are_not_kept_alive() -> None:
    with loader_change.changing({"num_workers": 1}, None, lambda *_: None):
        DataLoader(Numbers(77))
        gc.collect()
        assert not [one for one in loaders.alive() if getattr(one.dataset, "n", 0) == 77]
