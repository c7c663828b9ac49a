"""Names cross from room to room through faces and shelves, and half of the package runs without torch and Jupyter.

Which floor a room stands on, and where torch, NVML and Jupyter may be imported, `[tool.importlinter]` says.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from tests.support.recordings import starved
from tests.support.repository import ROOT

PACKAGE = ROOT / "gpu_doctor"
GUESTS: Final = "torch ray pynvml bokeh PIL anywidget ipywidgets IPython"
# What reads a recording: none of it needs a guest.
DIAGNOSIS_HALF: Final = (
    "formatting labels elements svg recording diagnosis job report report.panel.panel_state report.panel.controls "
    "trials.compare"
)
# Doors besides a room's own face: what crosses a wall is in the `__all__` of its room, or of one of these.
SHELVES: Final = (
    "recording.setup", "recording.steps", "machine.cards", "machine.nvml", "cell.arguments", "cell.calls",
    "cell.constructors", "cell.dataflow", "cell.loop", "cell.switches", "cell.syntax", "capture.describe",
    "capture.frameworks", "diagnosis.as_html", "diagnosis.as_text", "diagnosis.words", "trials.compare",
    "trials.executors", "trials.knobs", "report.panel",
)  # fmt: skip


@dataclass(frozen=True)
class Import:
    """One import statement: `importer` (`capture.recorder`) imports `target` (`gpu_doctor.recording`, `numpy`)."""

    importer: str
    target: str
    line: int

    def __str__(self) -> str:
        return f"gpu_doctor/{self.importer.replace('.', '/')}.py:{self.line} imports {self.target}"


def module_name(path: Path) -> str:
    """`capture.taps.tap` for gpu_doctor/capture/taps/tap.py; a folder's `__init__` has the folder's name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


FILES: Final = sorted(PACKAGE.rglob("*.py"))
MODULES: Final = {module_name(path): path for path in FILES}


def imports_of(text: str, importer: str) -> Iterator[Import]:
    """Every import of a file, inside functions and type-checking blocks too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(importer, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{importer}:{node.lineno}: write imports in full, from gpu_doctor on"
            assert node.module is not None
            for alias in node.names:
                yield Import(importer, f"{node.module}.{alias.name}", node.lineno)


IMPORTS: Final = [one for name, path in MODULES.items() for one in imports_of(path.read_text(encoding="utf-8"), name)]


def room_of(module: str) -> str:
    """`capture` for `capture.taps.tap`."""
    return module.partition(".")[0]


def breaks_walls(one: Import) -> bool:
    """True if a name of another room comes neither through its face nor from a shelf.

    A function that bears its module's name is imported from there: on the face, the module would take its place.
    """
    package, _, path = one.target.partition(".")
    door, _, name = path.rpartition(".")
    room = room_of(door)
    if package != "gpu_doctor" or room in ("", room_of(one.importer)) or not (PACKAGE / room).is_dir():
        return False
    if path in SHELVES or door.rpartition(".")[2] == name:
        return False
    return (door != room and door not in SHELVES) or name not in import_module(f"gpu_doctor.{door}").__all__


def test_what_crosses_a_wall_goes_through_a_face_or_a_shelf() -> None:
    broken = [
        f"{one}: export it in `__all__` of the room's `__init__`, or import from a room below"
        for one in IMPORTS
        if breaks_walls(one)
    ]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    ("target", "broken"),
    [
        ("gpu_doctor.capture.recorder.Recorder", True),
        ("gpu_doctor.capture.Recorder", False),
        ("gpu_doctor.capture.step_clock", True),
        ("gpu_doctor.machine.cards.too_old", False),
        ("gpu_doctor.machine.cards._CARDS", True),
        ("gpu_doctor.diagnosis.verdict.verdict", False),
        ("gpu_doctor.report", False),
        ("gpu_doctor.trials.knobs", False),
        ("gpu_doctor.formatting.sentence", False),
    ],
)
def test_a_hole_in_a_wall_would_be_found(target: str, broken: bool) -> None:
    assert breaks_walls(Import("notebook.magic", target, 1)) is broken


@pytest.mark.parametrize(
    "room", [*sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py")), *sorted(SHELVES)]
)
def test_a_face_has_every_name_that_it_lists(room: str) -> None:
    face = import_module(f"gpu_doctor.{room}")
    for name in face.__all__:
        if f"{room}.{name}" not in MODULES:
            assert getattr(face, name) is not None


def run_python(script: str, *arguments: str) -> str:
    """Runs a script in a Python of its own and returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def named_in_full(text: str) -> Iterator[str]:
    """Modules of ours that a file imports by name when it runs: `import_module("gpu_doctor.report")`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (str(one.value) for one in node.args[:1] if isinstance(one, ast.Constant))


def module_of(target: str) -> str | None:
    """The file that has what is imported: `capture.recorder` for `gpu_doctor.capture.recorder.Recorder`."""
    package, _, name = target.partition(".")
    while package == "gpu_doctor" and name and name not in MODULES:
        name = name.rpartition(".")[0]
    return name if package == "gpu_doctor" and name else None


def test_no_imports_form_a_circle() -> None:
    """Those inside of functions, for types, and by a name as text count like any other."""
    below: dict[str, set[str]] = {name: set() for name in MODULES}
    found = [(one.importer, one.target) for one in IMPORTS]
    found += [(name, one) for name, path in MODULES.items() for one in named_in_full(path.read_text(encoding="utf-8"))]
    for importer, target in found:
        below[importer] |= {module_of(target) or importer} - {importer}
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        pytest.fail(f"Imports form a circle: {' <- '.join(error.args[1])}")


def test_importing_the_package_imports_no_guest() -> None:
    loaded = run_python("import gpu_doctor, sys; print(*sys.modules)").split()
    heavy = {"torch", "numpy", "bokeh", "IPython", "ipywidgets", "anywidget", "pynvml", "psutil"} & set(loaded)
    assert not heavy


def test_the_diagnosis_half_runs_without_torch_and_jupyter(tmp_path: Path) -> None:
    path = starved().save(tmp_path / "starved.npz")
    script = """
        import sys
        from importlib import import_module

        class Wall:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in GUESTS:
                    raise ImportError(f"{name} is not on this machine")

        GUESTS = set(sys.argv[2].split())
        sys.meta_path.insert(0, Wall())
        for module in sys.argv[3].split():
            import_module(f"gpu_doctor.{module}")

        import gpu_doctor
        recording = gpu_doctor.load(sys.argv[1])
        vitals = gpu_doctor.measure(recording)
        diagnosis = gpu_doctor.diagnose(recording)
        from gpu_doctor.trials import knobs
        from gpu_doctor.report.panel import PanelInput, state
        offered = state(PanelInput("idle", setup=recording.setup, diagnosis=diagnosis), knobs.KNOBS)["knobs"]
        assert {one["name"]: one["refusal"] for one in offered}["num_workers"] == "", offered
        gpu_doctor.replay(recording)
        print(diagnosis.bottleneck, f"{vitals.data_wait_share:.2f}")
        print(str(diagnosis))
        print(diagnosis._repr_html_())
    """
    printed = run_python(script, str(path), GUESTS, DIAGNOSIS_HALF)
    assert printed.startswith("gpu_doctor · "), "a replay prints the diagnosis where there is no notebook"
    rest = printed.splitlines()
    assert "input 0.75" in rest
    assert "num_workers" in "\n".join(rest)
    assert "gpu-doctor-static" in "\n".join(rest)
