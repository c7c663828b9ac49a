"""What a deep look found, as plain data and as a trace that Perfetto opens."""

from __future__ import annotations

import gzip
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.labels import PHASE_LABELS

APART: Final = 0.03
"""Shares of a phase that lie further apart, ours and the profiler's, are explained."""


@dataclass(frozen=True)
class Operator:
    """An operator of torch, with all that it calls below itself."""

    name: str
    """Such as `aten::convolution`."""
    seconds: float
    """Of a step: device seconds where the loop trains on a GPU, else seconds of the host."""
    share: float
    """Of the step's wall-clock, 0 to 1; of several streams together it may be more."""
    calls: float
    """Of a step."""
    module: str = ""
    """The innermost module that calls it most, by its name in the model and its class; empty where none does, as in the
    backward pass."""
    place: str = ""
    """The user's line that calls it most: `cell line 12`; empty where compiled code does, or a thread of the backward
    pass."""
    text: str = ""
    """That line."""
    kernel: str = ""
    """The kernel on which it spends most; empty on a CPU."""


@dataclass(frozen=True)
class PhaseShare:
    """A phase's share of the profiled steps, 0 to 1: as this package times it, and as torch.profiler does."""

    phase: str
    ours: float
    profiler: float
    why: str = ""
    """Where the two are more than three points apart: what the one has and the other has not."""


@dataclass(frozen=True)
class Look:
    """What `Case.look` found in a few steps; the profiler makes them slower than they are, so that shares count."""

    steps: int
    step_s: float
    """Mean wall-clock of a profiled step."""
    operators: tuple[Operator, ...]
    """The dearest first."""
    phases: tuple[PhaseShare, ...]
    on_gpu: bool
    tensor_cores: float | None = None
    """Share of the kernels' time that ran on tensor cores, by the names of the kernels, 0 to 1; None without a GPU."""
    notes: tuple[str, ...] = ()
    """Sentences on what the trial could not put back."""
    packed: bytes = field(default=b"", repr=False)
    """The trace, compressed."""

    def trace(self, path: str | Path) -> Path:
        """Writes the steps as a trace that https://ui.perfetto.dev opens, with this package's phases as ranges in it.

        Args:
            path: of the file; one that ends in `.gz` is written compressed.

        Returns:
            The path.

        Raises:
            OSError: if it cannot be written.
        """
        target = Path(path)
        target.write_bytes(self.packed if target.suffix == ".gz" else gzip.decompress(self.packed))
        return target

    def __str__(self) -> str:
        clock = "of the GPU" if self.on_gpu else "of the CPU"
        head = f"{formatting.count(self.steps, 'step')} under torch.profiler, {formatting.seconds(self.step_s)} each"
        lines = [head, f"  operator, and its time {clock} in a step"]
        for one in self.operators:
            where = ", ".join(part for part in (one.module, one.place) if part)
            took = f"{formatting.seconds(one.seconds):>9} {formatting.share(one.share):>6}"
            calls = formatting.count(round(one.calls), "call")
            lines.append(f"  {took}  {one.name}, {calls}{f', in {where}' if where else ''}")
            lines += [f"{'':20}{part}" for part in (one.text, one.kernel) if part]
        if self.tensor_cores is not None:
            lines.append(f"  tensor cores: {formatting.share(self.tensor_cores)} of the kernels' time")
        lines.append("  phase, by this package and by the profiler")
        for part in self.phases:
            both = f"{formatting.share(part.ours):>6} {formatting.share(part.profiler):>6}"
            lines.append(f"  {both}  {PHASE_LABELS[part.phase]}{f': {part.why}' if part.why else ''}")
        return "\n".join([*lines, *self.notes])

    _repr_pretty_ = formatting.pretty

    def to_dict(self) -> dict[str, Any]:
        """The look as plain data (numbers, strings, lists and dicts of them), without the trace."""
        plain = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "packed"}
        plain["operators"] = [asdict(one) for one in self.operators]
        return {**plain, "phases": [asdict(one) for one in self.phases], "notes": list(self.notes)}
