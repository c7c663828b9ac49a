"""The result of a deep look, as plain data and as a trace that Perfetto opens."""

from __future__ import annotations

import gzip
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.labels import PHASE_LABELS

APART: Final = 0.03
"""Difference of a phase's two shares, ours and the profiler's, above which the result explains it."""


@dataclass(frozen=True)
class Operator:
    """An operator of torch, including the operators that it calls."""

    name: str
    """Name, such as `aten::convolution`."""
    seconds: float
    """Seconds per step: device time if the loop trains on a GPU, else host time."""
    share: float
    """Share of the step's wall-clock, 0 to 1; more if several streams overlap."""
    calls: float
    """Calls per step."""
    module: str = ""
    """Innermost module that calls it most often, by its name in the model and its class; empty if none does, as in the
    backward pass."""
    place: str = ""
    """The user's line that calls it most often, `cell line 12`; empty if compiled code or a thread of the backward pass
    does."""
    text: str = ""
    """Text of that line."""
    kernel: str = ""
    """Kernel in which it spends most time; empty on a CPU."""


@dataclass(frozen=True)
class PhaseShare:
    """A phase's share of the profiled steps, 0 to 1: as this package times it, and as torch.profiler does."""

    phase: str
    ours: float
    profiler: float
    why: str = ""
    """Reason for a difference of more than three percentage points; empty for a smaller one."""


@dataclass(frozen=True)
class Look:
    """The result of `Case.look` on a few steps. The profiler slows the steps down, so shares say more than times."""

    steps: int
    step_s: float
    """Mean wall-clock of a profiled step, in seconds."""
    operators: tuple[Operator, ...]
    """Operators that take most time, the costliest first."""
    phases: tuple[PhaseShare, ...]
    on_gpu: bool
    tensor_cores: float | None = None
    """Share of the kernels' time that ran on tensor cores, by the names of the kernels, 0 to 1; None without a GPU."""
    notes: tuple[str, ...] = ()
    """Sentences on what the trial could not restore."""
    packed: bytes = field(default=b"", repr=False)
    """Trace, compressed by gzip."""

    def trace(self, path: str | Path) -> Path:
        """Writes the steps as a trace that https://ui.perfetto.dev opens, with this package's phases as ranges in it.

        Args:
            path: path of the file; a file that ends in `.gz` is written compressed.

        Returns:
            The path.

        Raises:
            OSError: The file cannot be written.
        """
        target = Path(path)
        target.write_bytes(self.packed if target.suffix == ".gz" else gzip.decompress(self.packed))
        return target

    def __str__(self) -> str:
        clock = "of the GPU" if self.on_gpu else "of the CPU"
        head = f"{formatting.count(self.steps, 'step')} under torch.profiler, {formatting.seconds(self.step_s)} each"
        lines = [head, f"  operator, and its time {clock} in a step"]
        for operator in self.operators:
            where = ", ".join(part for part in (operator.module, operator.place) if part)
            took = f"{formatting.seconds(operator.seconds):>9} {formatting.share(operator.share):>6}"
            calls = formatting.count(round(operator.calls), "call")
            lines.append(f"  {took}  {operator.name}, {calls}{f', in {where}' if where else ''}")
            lines += [f"{'':20}{part}" for part in (operator.text, operator.kernel) if part]
        if self.tensor_cores is not None:
            lines.append(f"  tensor cores: {formatting.share(self.tensor_cores)} of the kernels' time")
        lines.append("  phase, by this package and by the profiler")
        for part in self.phases:
            both = f"{formatting.share(part.ours):>6} {formatting.share(part.profiler):>6}"
            lines.append(f"  {both}  {PHASE_LABELS[part.phase]}{f': {part.why}' if part.why else ''}")
        return "\n".join([*lines, *self.notes])

    _repr_pretty_ = formatting.pretty

    def to_dict(self) -> dict[str, Any]:
        """Returns the look as plain data (numbers, strings, lists and dicts of them), without the trace."""
        plain = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "packed"}
        plain["operators"] = [asdict(item) for item in self.operators]
        return {**plain, "phases": [asdict(item) for item in self.phases], "notes": list(self.notes)}
