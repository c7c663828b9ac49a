"""The law of the house: which floor a room stands on, where its guests may enter, and that no import runs back up."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from gpu_doctor.capture.frameworks import FRAMEWORKS
from tests.support.recordings import starved
from tests.support.repository import ROOT

PACKAGE = ROOT / "gpu_doctor"

# From the ground up. An import points to a lower floor or stays in its room; two rooms of one floor do not know each
# other. Lazy imports and those for types count like any other.
FLOORS: Final = (
    ("formatting", "display"),
    ("recording",),
    ("machine", "cell"),
    ("capture", "diagnosis"),
    ("trials",),
    ("report",),
    ("notebook",),
    ("__init__",),
)
FLOOR_OF: Final = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# Guests and their rooms: nobody else imports them, so the diagnosis half runs on a machine that has none of them.
ROOMS: Final = {
    "torch": "capture machine.torch_memory machine.checkup trials",
    "ray": "trials.executors.ray",
    "pynvml": "machine.nvml",
    "bokeh": "notebook.plots notebook.widget",
    "PIL": "report.picture",
    "anywidget": "notebook",
    "ipywidgets": "notebook",
    "IPython": "notebook",
}
NEVER: Final = {
    "jupyter_bokeh", "matplotlib", "pandas", "pickle", "requests", "urllib", "http", "socket", "jupyterlab"
}  # fmt: skip
LOOKED_AT: Final = {("trials.snapshot.kinds", "socket"): "knows a socket when it meets one, to leave it alone"}
BARRED_NAMES: Final = {"utils", "helpers", "common", "core", "base", "manager"}
# What reads a recording: none of it needs a guest.
DIAGNOSIS_HALF: Final = (
    "formatting display recording diagnosis report report.panel.panel_state report.panel.controls trials.compare"
)
# Doors besides a room's own face: what crosses a wall is in the `__all__` of its room, or of one of these.
SHELVES: Final = (
    "recording.setup", "recording.steps", "machine.cards", "machine.nvml", "cell.arguments", "cell.calls",
    "cell.constructors", "cell.dataflow", "cell.loop", "cell.switches", "cell.syntax", "capture.describe",
    "capture.frameworks", "trials.compare", "trials.executors", "trials.knobs", "report.panel",
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


def own_module(target: str) -> str | None:
    """The module that `gpu_doctor.capture.taps.tap.Tap` is of; None for a foreign import."""
    first, *rest = target.split(".")
    if first != "gpu_doctor":
        return None
    while rest and ".".join(rest) not in MODULES:
        rest.pop()
    return ".".join(rest) or "__init__"


def breaks_floors(one: Import) -> bool:
    """True if the import points up, or into another room of the same floor."""
    target = own_module(one.target)
    if target is None or room_of(target) == room_of(one.importer):
        return False
    return FLOOR_OF[room_of(target)] >= FLOOR_OF[room_of(one.importer)]


def breaks_rooms(one: Import) -> bool:
    """True if a guest is met outside its rooms."""
    guest = one.target.partition(".")[0]
    if guest in NEVER:
        return (one.importer, guest) not in LOOKED_AT
    rooms = ROOMS.get(guest)
    return rooms is not None and not any(
        one.importer == room or one.importer.startswith(f"{room}.") for room in rooms.split()
    )


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


def circles(arrows: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The groups of modules that reach each other by imports (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(one: str) -> None:
        order[one] = low[one] = len(order)
        stack.append(one)
        for other in arrows[one]:
            if other not in order:
                visit(other)
                low[one] = min(low[one], low[other])
            elif other in stack:
                low[one] = min(low[one], order[other])
        if low[one] == order[one]:
            members = stack[stack.index(one) :]
            del stack[stack.index(one) :]
            if len(members) > 1:
                found.append(sorted(members))

    for one in arrows:
        if one not in order:
            visit(one)
    return sorted(found)


def arrows() -> dict[str, set[str]]:
    """Who imports whom in the package."""
    found: dict[str, set[str]] = {name: set() for name in MODULES}
    for one in IMPORTS:
        target = own_module(one.target)
        if target is not None and target != one.importer:
            found[one.importer].add(target)
    return found


def test_every_room_has_a_floor() -> None:
    unknown = sorted({room_of(name) for name in MODULES} - FLOOR_OF.keys())
    assert not unknown, f"Give these a floor in FLOORS: {unknown}"


def test_imports_point_down_only() -> None:
    broken = [str(one) for one in IMPORTS if breaks_floors(one)]
    assert not broken, "\n".join(broken)


def test_what_crosses_a_wall_goes_through_a_face_or_a_shelf() -> None:
    broken = [f"{one}: no door of that room has it" for one in IMPORTS if breaks_walls(one)]
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


def test_no_modules_import_each_other_in_a_circle() -> None:
    found = circles(arrows())
    assert not found, "\n".join(" <-> ".join(one) for one in found)


def test_a_circle_would_be_found() -> None:
    assert circles({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["a"]}) == [["b", "c"]]


def test_guests_stay_in_their_rooms() -> None:
    broken = [str(one) for one in IMPORTS if breaks_rooms(one)]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    ("importer", "line", "broken"),
    [
        ("diagnosis.vitals.measure", "from gpu_doctor.notebook.magic import register", True),
        ("diagnosis.vitals.measure", "def f():\n    import gpu_doctor.trials.run", True),
        ("diagnosis.diagnosis", "from gpu_doctor.capture import recorder", True),
        ("diagnosis.diagnosis", "from gpu_doctor import report", True),
        ("capture.recorder", "from gpu_doctor import load", True),
        ("trials.knobs.amp", "from gpu_doctor.diagnosis.rules.rule import Safety", False),
        ("capture.taps.forward", "from gpu_doctor.capture.taps.tap import Tap", False),
        ("trials.case", "from gpu_doctor import formatting", False),
    ],
)
def test_the_floors_would_notice(importer: str, line: str, broken: bool) -> None:
    assert [breaks_floors(one) for one in imports_of(line, importer)] == [broken]


@pytest.mark.parametrize(
    ("importer", "line", "broken"),
    [
        ("diagnosis.diagnosis", "import torch", True),
        ("machine.host", "def f():\n    from torch import cuda", True),
        ("machine.torch_memory", "import torch.cuda", False),
        ("report.panel.panel_state", "from bokeh.plotting import figure", True),
        ("trials.run", "from IPython import get_ipython", True),
        ("recording.npz", "import pickle", True),
        ("notebook.magic", "from IPython import get_ipython", False),
    ],
)
def test_the_rooms_would_notice(importer: str, line: str, broken: bool) -> None:
    assert [breaks_rooms(one) for one in imports_of(line, importer)] == [broken]


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_a_file_is_named_for_its_content_and_opens_with_a_sentence(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert path.stem not in BARRED_NAMES
    assert not text or ast.get_docstring(ast.parse(text)), "say in the first sentence what lives here"


def run_python(script: str, *arguments: str) -> str:
    """Runs a script in a Python of its own and returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def strings(tree: ast.Module) -> Iterator[str]:
    """Every text of a module that is no docstring."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def test_frameworks_are_named_on_their_shelf_alone() -> None:
    names = {name for one in FRAMEWORKS for name in (one.name, *one.packages, *one.boxes)}
    shelf = PACKAGE / "capture" / "frameworks"
    word = re.compile(rf"\b({'|'.join(names)})\b")
    texts = {path: path.read_text(encoding="utf-8") for path in FILES if shelf not in path.parents}
    found = [
        f"{path.relative_to(PACKAGE)}: {one!r:.80}"
        for path, text in texts.items()
        if word.search(text)
        for one in strings(ast.parse(text))
        if word.search(one)
    ]
    assert not found, "\n".join(found)


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
    printed = run_python(script, str(path), " ".join(ROOMS), DIAGNOSIS_HALF)
    assert printed.startswith("gpu_doctor · "), "a replay prints the diagnosis where there is no notebook"
    rest = printed.splitlines()
    assert "input 0.75" in rest
    assert "num_workers" in "\n".join(rest)
    assert "gpu-doctor-static" in "\n".join(rest)
