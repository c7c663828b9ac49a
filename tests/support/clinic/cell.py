"""What a patient is: a notebook cell, sick and cured, or a recording of a loop that this machine cannot run.

A cell says what is known about it by construction: its class, and the rules that name its trouble. How much the cure
gains is never written down; the physician measures it with the bare cells.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpu_doctor.recording import Recording, SettingValue
from tests.support.clinic.room import Room

OPTIMIZERS = ("SGD", "Adam", "AdamW")


@dataclass(frozen=True)
class Known:
    """What is known of a patient before anyone looks at it."""

    name: str
    """For people, such as `sleeping-dataset`."""
    klass: str
    """The bottleneck class: input, transfer, host, compute, memory, communication; unknown for a run that ended in its
    first steps."""
    top: tuple[str, ...] = ()
    """Rules of which one must be named first; empty for a healthy patient."""
    healthy: bool = False
    """Nothing that costs 10 % or more may be found."""
    never: tuple[str, ...] = ()
    """Rules that must not be named here with 10 % or more, or as a risk: the false alarms that lie nearest."""
    most_workers: int | None = None
    """No prescription may ask for more workers than this."""


@dataclass(frozen=True)
class Cell(Known):
    """A cell as people write it, run bare and under the doctor on this machine."""

    before: str = ""
    """The cells above it in the notebook: imports, dataset, model."""
    sick: str = ""
    """The cell under `%%gpudoctor`."""
    cured: str = ""
    """The same cell as a person would repair it by hand; empty if settings do it."""
    cure: Mapping[str, SettingValue] = field(default_factory=dict)
    """Settings that cure it, where a knob does; timed only if the doctor prescribes none."""
    earlier: Mapping[str, SettingValue] = field(default_factory=dict)
    """Settings of a run that goes before the one that is judged: what one run cannot tell, two may."""
    tail: bool = False
    """Work that belongs to the loop follows its last step (an evaluation each epoch): timed to the end of the cell."""
    few: bool = False
    """Its steps are few and long: of an optimizer that calls its closure many times in each."""
    room: Room | None = None
    """What the machine is short of, for it to be sick."""
    dies: bool = False
    """The bare sick cell raises and the cured one does not: nothing is timed, that is the truth."""

    def notebook(self, source: str = "", settings: Mapping[str, SettingValue] | None = None) -> tuple[str, str]:
        """The cells above and the cell itself, with settings written into them as a person would paste them.

        Each goes into the cell where that has a place for it, else into the cells above, which made the object.
        """
        before, cell = textwrap.dedent(self.before), textwrap.dedent(source or self.sick)
        for name, value in (settings or {}).items():
            try:
                cell = pasted(cell, {name: value})
            except ValueError:
                before = pasted(before, {name: value})
        return before, cell


@dataclass(frozen=True, kw_only=True)
class Recorded(Known):
    """A loop on hardware that is not here: its recording, and in virtual time that of the cured loop."""

    play: Callable[[], Recording]
    cured: Callable[[], Recording] | None = None
    """The same loop without its trouble; None where only the judgement is under test."""
    samples: float = 1.0
    """Samples of a step of the cured loop over those of the sick one, where the cure is a larger batch."""


Patient = Cell | Recorded


def pasted(source: str, settings: Mapping[str, SettingValue]) -> str:
    """The source with settings in it: keywords of its DataLoaders or of its optimizers, or a line on threads.

    A knob turns every loader that trains; no cell makes one to evaluate.

    Raises:
        ValueError: if there is no place for a setting.
    """
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls.sort(key=lambda node: (node.lineno, node.col_offset))
    for name, value in settings.items():
        if name == "threads":
            said = [one for one in calls if _called(one) == "set_num_threads"]
            for call in said:
                call.args = [ast.Constant(value)]
            if said:
                continue
            tree.body[:0] = ast.parse(f"import torch\ntorch.set_num_threads({value})").body
            continue
        wanted, keyword = (OPTIMIZERS, "fused") if name == "fused_optimizer" else (("DataLoader",), name)
        meant = [one for one in calls if _called(one) in wanted]
        if not meant:
            raise ValueError(f"the cell has no place for {name}={value!r}")
        replaced = (keyword, "foreach") if keyword == "fused" else (keyword,)
        for call in meant:
            call.keywords = [one for one in call.keywords if one.arg not in replaced]
            call.keywords.append(ast.keyword(arg=keyword, value=ast.Constant(value)))
    return ast.unparse(ast.fix_missing_locations(tree))


def _called(call: ast.Call) -> str:
    """`DataLoader` for `torch.utils.data.DataLoader(...)`."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
