"""Records any block of code, with taps and probes but without knobs or trials."""

from __future__ import annotations

import itertools
import sys
from collections import ChainMap
from collections.abc import MutableMapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from gpu_doctor.capture import Recorder, recorded
from gpu_doctor.diagnosis import Diagnosis, diagnose
from gpu_doctor.job import Place
from gpu_doctor.recording import Recording
from gpu_doctor.signals import before_sigterm, sigterm_held
from gpu_doctor.trials import run

_numbers = itertools.count(1)


class Watch:
    """Context manager that records a block; `recording` and `diagnosis` are set after it."""

    def __init__(
        self,
        name: str = "",
        namespace: MutableMapping[str, Any] | None = None,
        source: str = "",
        folder: str | Path | Place | None = None,
    ) -> None:
        """Prepares to record a block.

        Args:
            name: see `watch`.
            namespace: namespace that is searched first for models.
            source: text of the code that runs.
            folder: see `watch`.
        """
        self.recording: Recording | None = None
        self._recorder = Recorder(name=name or f"watch {next(_numbers)}", source=source)
        self._place = Place(folder) if isinstance(folder, (str, Path)) else folder
        self._to_the_end = ExitStack()
        self._open: AbstractContextManager[None] = recorded(self._recorder, namespace)

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The diagnosis of the loop in the block; None before the block has ended."""
        return diagnose(self.recording) if self.recording is not None else None

    def __enter__(self) -> Watch:
        if self.recording is not None:
            raise RuntimeError("A watch observes one block: make another with gpu_doctor.watch().")
        self._open.__enter__()
        if self._place is not None:
            try:
                self._place.begin()
            except OSError as error:
                self._open.__exit__(type(error), error, error.__traceback__)
                raise
            self._to_the_end.enter_context(before_sigterm(self._terminated))  # a launcher ends all ranks when one dies
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with self._to_the_end, sigterm_held() if self._place is not None else nullcontext():
            self._open.__exit__(kind, error, tb)  # with the error, so that our frames leave its traceback
            self.recording = self._recorder.close(*(run.outcome_of(error) if error is not None else ()))
            if self._place is not None:
                self.recording = self._place.end(self.recording)

    def _terminated(self) -> None:
        """Saves the recording so far before the process ends."""
        with suppress(Exception):
            if self.recording is None:
                self.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)


def watch(name: str = "", folder: str | Path | None = None) -> Watch:
    """Observes any block: `with gpu_doctor.watch() as run: ...`, then `run.recording`, `run.diagnosis`.

    Args:
        name: name of the run, for the user.
        folder: folder in which each rank of a job saves its recording; `gpu_doctor.load(folder)` compares them.

    Raises (on entering):
        Busy: if a run is already being recorded in this process.
        OSError: if nothing can be written into the folder.

    Example:
        >>> import gpu_doctor
        >>> import torch
        >>> model = torch.nn.Linear(8, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> with gpu_doctor.watch() as run:
        ...     for inputs in torch.utils.data.DataLoader(torch.rand(640, 8), batch_size=16):
        ...         optimizer.zero_grad()
        ...         model(inputs).mean().backward()
        ...         optimizer.step()
        >>> run.recording.outcome, len(run.recording.steps.wall_s)
        ('completed', 40)
    """
    return Watch(name, _names(sys._getframe(1)), folder=folder)


def _names(frame: FrameType) -> MutableMapping[str, Any]:
    """Returns the names that code can read: its module's, live, and its function's as they are now.

    Tensors are left out of the latter: one that the block lets go of is to be freed. None is a model.
    """
    if frame.f_locals is frame.f_globals:
        return frame.f_globals
    tensor = getattr(sys.modules.get("torch"), "Tensor", ())
    return ChainMap({k: v for k, v in frame.f_locals.items() if not issubclass(type(v), tensor)}, frame.f_globals)
