"""Programs whose truth is known: files that anybody can run, or recordings of loops on hardware that is not here.

A program is a Python file. It begins with its truth, a TOML document in comments between `# /// truth` and `# ///`,
whose keys are the attributes of `Program`. Its cells begin at lines `# %%`, the one that is diagnosed at
`# %% diagnosed`. A unified diff of the same name, `NAME.patch`, holds the change that cures it; where a knob cures it,
the key `settings` does. How much the cure gains is never written down: it is measured.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from gpu_doctor.recording import Recording, SettingValue
from tests.support.repository import ROOT
from tools.evaluate.limits import Limits

CORPUS: Final = ROOT / "tests" / "corpus"
"""The project's own programs, in folders by class; those of the folder `healthy` have nothing to cure."""
UNSEEN: Final = ROOT / "benchmarks" / "unseen"
"""Programs of people who had not read the rules, a folder for each set."""
OPTIMIZERS: Final = ("SGD", "Adam", "AdamW")
Timed: TypeAlias = Literal["steps", "tail", "few", "whole"]
"""The part of a run that is timed.

`steps`: the steps without the first fifth of them. `tail`: these and what follows the last one, such as an evaluation
each epoch. `few`: the steps without the first one, where they are few and long. `whole`: everything after the first
step, where sick and cured differ in their steps.
"""

_TRUTH: Final = re.compile(r"\A# /// truth\n((?:#(?: .*)?\n)+?)# ///\n")
_DIAGNOSED: Final = re.compile(r"^# %% diagnosed\n", re.M)
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@.*")


@dataclass(frozen=True, kw_only=True)
class Known:
    """The truth about a program that does not depend on how it is run."""

    name: str
    """The name of its file, such as `sleeping-dataset`."""
    group: str
    """The name of its folder."""
    classes: tuple[str, ...]
    """The bottleneck classes that are right: input, transfer, host, compute, memory, communication; unknown for a run
    that ends in its first steps. In the file: `class`, a text or a list."""
    causes: tuple[str, ...] = ()
    """The causes of which one must come first; empty for a healthy program, on which nothing of 10 % or more may be
    found."""
    never: tuple[str, ...] = ()
    """The causes that must not be found here with 10 % or more, or as a risk: the false alarms that lie nearest."""
    most_workers: int | None = None
    """The largest number of workers that may be prescribed."""
    holdout: bool = False
    """True if no forecast is tuned on it. It is drawn by chance when the program is written: one in three of those with
    a gain to predict."""

    @property
    def healthy(self) -> bool:
        """True if there is nothing to cure."""
        return not self.causes

    @property
    def predictable(self) -> bool:
        """True if a gain can be timed, so that its forecast can be judged."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Program(Known):
    """Program in a file, run bare and under gpu_doctor on this machine."""

    above: str
    """The cells above the diagnosed one: imports, dataset, model."""
    cell: str
    """The cell that is diagnosed."""
    cured: tuple[str, str] | None = None
    """Both with the patch applied; None without a patch."""
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    """The settings that cure it, where a knob does; timed only if gpu_doctor prescribes none."""
    earlier: Mapping[str, SettingValue] = field(default_factory=dict)
    """The settings of a run before the judged one, where it takes two runs to find the cause."""
    timed: Timed = "steps"
    """The part of the run that is timed."""
    limits: Limits | None = None
    """The limits of the machine under which it is sick."""
    fails: bool = False
    """True if the sick cell raises and the cured one does not: that is the truth, and nothing is timed."""
    unseen: bool = False
    """True if only its author says what is wrong with it. It is not judged where the cure gains less than makes a
    program sick, and what is found on a healthy one is tried."""
    why: str = ""
    """What is wrong with it, or why it looks as if something were."""
    cure: str = ""
    """The cure in words."""
    author_class: str = ""
    """The class that its author named."""
    author_gain: float | None = None
    """The gain that its author measured on a CPU; None if none was measured."""

    @property
    def predictable(self) -> bool:
        """True if a gain can be timed."""
        return not self.healthy and not self.fails

    @property
    def curable(self) -> bool:
        """True if it is known how it is cured."""
        return self.cured is not None or bool(self.settings)

    def cells(self, settings: Mapping[str, SettingValue] | None = None, *, cured: bool = False) -> tuple[str, str]:
        """Returns the cells above and the diagnosed cell, with settings written into them as a person would.

        Each setting goes into the diagnosed cell where that has a place for it, else into the cells above, which made
        the object.

        Args:
            settings: The settings to write.
            cured: True for the cells with the patch applied, where there is one.
        """
        above, cell = (self.cured if cured else None) or (self.above, self.cell)
        for name, value in (settings or {}).items():
            try:
                cell = pasted(cell, {name: value})
            except ValueError:
                above = pasted(above, {name: value})
        return above, cell


@dataclass(frozen=True, kw_only=True)
class Recorded(Known):
    """Loop on hardware that is not here: its recording, and in virtual time that of the cured loop."""

    group: str = "simulated"
    play: Callable[[], Recording]
    """Makes the recording."""
    cured: Callable[[], Recording] | None = None
    """Makes the recording of the cured loop; None if only the judgement is under test."""
    samples: float = 1.0
    """The samples of a cured step over those of a sick one, where the cure is a larger batch."""

    @property
    def predictable(self) -> bool:
        """True if the cured loop can be played."""
        return self.cured is not None


@lru_cache(maxsize=1)
def corpus() -> tuple[Program | Recorded, ...]:
    """Reads the project's own programs; the recorded ones come last."""
    from tests.support.simulated_programs import SIMULATED

    return (*programs(CORPUS), *SIMULATED)


def programs(folder: Path) -> tuple[Program, ...]:
    """Reads the programs in the folders of a folder, in the order of their paths."""
    return tuple(read(path) for path in sorted(folder.glob("*/*.py")))


def read(path: Path) -> Program:
    """Reads a program, its truth, and the patch beside it.

    Raises:
        ValueError: if the file is not written as the module says.
    """
    text = path.read_text(encoding="utf-8")
    truth = _truth(text, path)
    classes = truth.pop("class")
    limits = truth.pop("limits", None)
    for name in ("causes", "never"):
        truth[name] = tuple(truth.get(name, ()))
    patch = path.with_suffix(".patch")
    above, cell = split(text)
    return Program(
        name=path.stem,
        group=path.parent.name,
        classes=(classes,) if isinstance(classes, str) else tuple(classes),
        above=above,
        cell=cell,
        cured=split(patched(text, patch.read_text(encoding="utf-8"))) if patch.exists() else None,
        limits=None if limits is None else Limits(**limits),
        **truth,
    )


def _truth(text: str, path: Path) -> dict[str, Any]:
    found = _TRUTH.match(text)
    if found is None:
        raise ValueError(f"{path} does not begin with its truth")
    return tomllib.loads("".join(line[2:] or "\n" for line in found[1].splitlines(keepends=True)))


def split(text: str) -> tuple[str, str]:
    """Splits a program's text into the cells above and the diagnosed cell.

    Raises:
        ValueError: if there is not one line `# %% diagnosed`.
    """
    above, cell = _DIAGNOSED.split(_TRUTH.sub("", text))
    return above.strip("\n") + "\n", cell


def patched(text: str, diff: str) -> str:
    """Returns a text with a unified diff applied.

    Raises:
        ValueError: if the diff was made of another text.
    """
    lines, made, taken = text.splitlines(keepends=True), list[str](), 0
    for line in diff.splitlines(keepends=True)[2:]:
        if hunk := _HUNK.match(line):
            begin = int(hunk[1]) - 1
            made += lines[taken:begin]
            taken = begin
        elif line[0] == "+":
            made.append(line[1:])
        else:
            if lines[taken : taken + 1] != [line[1:]]:
                raise ValueError(f"line {taken + 1} is not what the diff was made of")
            made += [line[1:]] if line[0] == " " else []
            taken += 1
    return "".join(made + lines[taken:])


def pasted(source: str, settings: Mapping[str, SettingValue]) -> str:
    """Returns the source with settings in it: keywords of its loaders or optimizers, or a line on threads.

    A knob changes every loader that trains; no program makes one to evaluate.

    Raises:
        ValueError: if there is no place for a setting.
    """
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls.sort(key=lambda node: (node.lineno, node.col_offset))
    for name, value in settings.items():
        if name == "threads":
            set_threads = [call for call in calls if _called(call) == "set_num_threads"]
            for call in set_threads:
                call.args = [ast.Constant(value)]
            if not set_threads:
                tree.body[:0] = ast.parse(f"import torch\ntorch.set_num_threads({value})").body
            continue
        names, keyword = (OPTIMIZERS, "fused") if name == "fused_optimizer" else (("DataLoader",), name)
        found = [call for call in calls if _called(call) in names]
        if not found:
            raise ValueError(f"the cell has no place for {name}={value!r}")
        replaced = (keyword, "foreach") if keyword == "fused" else (keyword,)
        for call in found:
            call.keywords = [old for old in call.keywords if old.arg not in replaced]
            call.keywords.append(ast.keyword(arg=keyword, value=ast.Constant(value)))
    return ast.unparse(ast.fix_missing_locations(tree))


def _called(call: ast.Call) -> str:
    """Returns `DataLoader` for `torch.utils.data.DataLoader(...)`."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
