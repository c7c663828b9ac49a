"""The law of the house as tables: which floor a module stands on, which rooms its guests may enter, how files look."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from gpu_doctor.recording import Fetch, LoaderSetup, Recording, Setup, Steps
from tests.support.repository import ROOT

PACKAGE = ROOT / "gpu_doctor"
LINES_AT_MOST = 300

# Imports point down only: a module may import from floors below its own. What stands in one string is one thing that
# takes several files, or a shelf: inside it, imports are free; between two strings of one floor there are none.
FLOORS = {
    7: ["__init__"],
    6: ["notebook"],
    5: [
        "casefile asked casecode treatment treatment_plan lossreasons moves rounds counting batchfinder cardmemory race"
        " curing sweep executors",
        "watching",
    ],
    4: [
        "trial stopping",
        "report sheet report_facts report_efficiency report_plots report_trials report_losses report_plan report_fix"
        " report_sides report_sweep report_batches source_lines",
    ],
    3: ["taps", "probes", "diagnosis offered unjudged hushing verdict steady", "rulepage", "checkup"],
    2: [
        "parking",
        "recorder calibration readings governor",
        "rules",
        "effect morepairs pairing pagecache scaling",
        "knobs",
        "forecast stages handing copying removal expectation batchsizes workerstarts",
    ],
    1: [
        "feed",
        "vitals vitals_fields vitals_memory vitals_hardware vitals_world vitals_arithmetic vitals_evaluation"
        " vitals_machine vitals_lines vitals_fetching vitals_device vitals_setup growth memoryfit leaving",
        "models modelmakes modelcode",
        "batches",
        "ledger evaluations ownupdates account stepcounts steptable steadysteps rhythm rests usual"
        " deviceclock devicecopies devicemarks devicewindows blockrows alonerows eventnotes retelling",
        "feeding feeding_syntax beside modelbeside steptext",
        "interval",
        "cellsource callsites arguments loadermakers loopflow looplines copylines bf16reads autocastlines switchlines"
        " frameworklines trainerlines loaderlines fixes patchwork literals",
        "parity",
        "neighbours",
        "written_files",
        "flops",
        "drawing",
        "loaders loader_limits loader_sharding workerthreads",
        "snapshot snapshot_kinds snapshot_parts snapshot_process snapshot_reporting snapshot_undo snapshot_walk"
        " tensor_store trackers",
    ],
    0: [
        "recording recording_file recording_form steps facts linecost",
        "phases",
        "patching",
        "seam",
        "cgroup",
        "heldcopies",
        "wording",
        "nvidia",
        "peaks",
        "keepers graphlines",
        "precision",
    ],
}
# The exceptions, each with its reason.
ALSO_ALLOWED = {
    ("knobs", "rules"): "a knob says how safe it is in the words of a prescription (rules.rule.Safety)",
    ("rules", "forecast"): "a rule prices its prescription with the what-if model",
    ("rules", "stages"): "and with the constants that it is made of",
    ("rules", "handing"): "and with what handing a batch over costs",
    ("rules", "removal"): "or with what is left of a step when work goes",
    ("checkup", "probes"): "the check-up reads the machine through the same fence as the probes",
    ("snapshot", "loaders"): "putting a loader back ends the workers that a trial started for it",
    ("notebook", "__init__"): "the line magic answers with the public face itself, so both say the same",
    ("diagnosis", "report"): "str() and the HTML of a diagnosis are written by report, imported when asked for",
}
# Guests and their rooms: nobody else imports them, so the diagnosis half runs on a machine that has none of them.
ROOMS = {
    "torch": "taps knobs checkup probes.torch_memory models modelmakes modelcode batches loaders loader_limits"
    " loader_sharding workerthreads snapshot snapshot_kinds snapshot_process snapshot_reporting snapshot_undo"
    " snapshot_walk tensor_store"
    " flops parking precision executors.luggage",
    "ray": "executors.ray",
    "pynvml": "probes.nvml",
    "bokeh": "notebook.plots notebook.bokeh_view",
    "anywidget": "notebook",
    "ipywidgets": "notebook",
    "IPython": "notebook",
}
NEVER = {"jupyter_bokeh", "matplotlib", "pandas", "pickle", "requests", "urllib", "http", "socket", "jupyterlab"}
LOOKED_AT = {("snapshot_kinds", "socket"): "knows a socket when it meets one, to leave it alone"}
BARRED_NAMES = {"utils", "helpers", "common", "core", "base", "manager"}
# What reads a recording: none of it needs a guest.
DIAGNOSIS_HALF = (
    "recording recording_file recording_form steps facts feed vitals forecast rules diagnosis effect report"
)

FLOOR_OF = {name: floor for floor, things in FLOORS.items() for thing in things for name in thing.split()}
THING_OF = {name: thing for things in FLOORS.values() for thing in things for name in thing.split()}


@dataclass(frozen=True)
class Import:
    """One import statement's target: `importer` (`taps.compute`) imports `target` (`gpu_doctor.recorder`, `torch`)."""

    importer: str
    target: str
    line: int

    def __str__(self) -> str:
        return f"gpu_doctor/{self.importer.replace('.', '/')}.py:{self.line} imports {self.target}"


def module_name(path: Path) -> str:
    """`taps.compute` for gpu_doctor/taps/compute.py; a folder's `__init__` has the folder's name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


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


def shelf(module: str) -> str:
    """`taps` for `taps.compute`, `casefile` for `casefile`."""
    return module.partition(".")[0]


def own_target(target: str) -> str | None:
    """The shelf that `gpu_doctor.taps.compute.X` names, None for a foreign import."""
    first, _, rest = target.partition(".")
    if first != "gpu_doctor":
        return None
    name = shelf(rest)
    return name if name in FLOOR_OF else "__init__"


FILES = sorted(PACKAGE.rglob("*.py"))
IMPORTS = [one for path in FILES for one in imports_of(path.read_text(), module_name(path))]


def breaks_floors(one: Import) -> bool:
    """True if the import points up, or sideways without leave."""
    target = own_target(one.target)
    importer = shelf(one.importer)
    if target is None or THING_OF[target] == THING_OF[importer] or (importer, target) in ALSO_ALLOWED:
        return False
    return FLOOR_OF[target] >= FLOOR_OF[importer]


def breaks_rooms(one: Import) -> bool:
    """True if a guest is met outside its rooms."""
    guest = one.target.partition(".")[0]
    if guest in NEVER:
        return (one.importer, guest) not in LOOKED_AT
    rooms = ROOMS.get(guest)
    return rooms is not None and not any(
        one.importer == room or one.importer.startswith(f"{room}.") for room in rooms.split()
    )


def test_every_module_has_a_floor() -> None:
    unknown = sorted({shelf(module_name(path)) for path in FILES} - FLOOR_OF.keys())
    assert not unknown, f"Give these a floor in FLOORS: {unknown}"


def test_imports_point_down_only() -> None:
    broken = [str(one) for one in IMPORTS if breaks_floors(one)]
    assert not broken, "\n".join(broken)


def test_guests_stay_in_their_rooms() -> None:
    broken = [str(one) for one in IMPORTS if breaks_rooms(one)]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    ("importer", "line", "broken"),
    [
        ("vitals", "from gpu_doctor.notebook.cell import run", True),
        ("vitals", "def f():\n    import gpu_doctor.trial", True),
        ("effect", "from gpu_doctor.forecast import forecast", True),
        ("vitals", "from gpu_doctor import report", True),
        ("recorder", "from gpu_doctor import load", True),
        ("knobs.amp", "from gpu_doctor.rules.rule import Safety", False),
        ("taps.compute", "from gpu_doctor.taps.tap import Tap", False),
        ("casefile", "from gpu_doctor import trial", False),
    ],
)
def test_the_floors_would_notice(importer: str, line: str, broken: bool) -> None:
    assert [breaks_floors(one) for one in imports_of(line, importer)] == [broken]


@pytest.mark.parametrize(
    ("importer", "line", "broken"),
    [
        ("vitals", "import torch", True),
        ("probes.host", "def f():\n    from torch import cuda", True),
        ("probes.torch_memory", "import torch.cuda", False),
        ("notebook.panel", "from bokeh.plotting import figure", True),
        ("trial", "from IPython import get_ipython", True),
        ("recording_file", "import pickle", True),
        ("notebook.cell", "from IPython import get_ipython", False),
    ],
)
def test_the_rooms_would_notice(importer: str, line: str, broken: bool) -> None:
    assert [breaks_rooms(one) for one in imports_of(line, importer)] == [broken]


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_a_file_is_short_named_for_its_content_and_opens_with_a_sentence(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LINES_AT_MOST
    assert path.stem not in BARRED_NAMES
    assert not text or ast.get_docstring(ast.parse(text)), "say in the first sentence what lives here"


def run_python(script: str, *arguments: str) -> str:
    """Runs a script in a Python of its own and returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_imports_no_guest() -> None:
    loaded = run_python("import gpu_doctor, sys; print(*sys.modules)").split()
    heavy = {"torch", "numpy", "bokeh", "IPython", "ipywidgets", "anywidget", "pynvml", "psutil"} & set(loaded)
    assert not heavy


def starved_recording() -> Recording:
    """Sixty steps of a loop that waits 30 ms of every 40 ms for a loader without workers."""
    n = 60
    loader = LoaderSetup(key="rows", batch_size=128, dataset="Rows", dataset_len=7680, batches=60, sampler="Random")
    columns = {"data_wait_s": 0.030, "forward_s": 0.003, "backward_s": 0.005, "optimizer_s": 0.001, "transfer_s": 0.0}
    return Recording(
        steps=Steps.of(
            wall_s=np.full(n, 0.040),
            samples=np.full(n, 128.0),
            batches=np.ones(n),
            **{name: np.full(n, value) for name, value in columns.items()},
            evaluation_s=np.zeros(n),
            edge_s=np.zeros(n),
            cpu_s=np.full(n, 0.012),
        ),
        setup=Setup(loaders=(loader,), usable_cores=4.0, os_cores=4, models=("Linear",), optimizers=("Adam",)),
        fetches=(Fetch("rows", 0, n, n * 0.030, n * 0.003, n * 0.001, 1_048_576.0, np.full(n, 0.030)),),
        duration_s=n * 0.040,
        name="starved",
    )


def test_the_diagnosis_half_runs_without_torch_and_jupyter(tmp_path: Path) -> None:
    path = starved_recording().save(tmp_path / "starved.npz")
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
        print(diagnosis.bottleneck, f"{vitals.data_wait_share:.2f}")
        print(str(diagnosis))
        print(diagnosis._repr_html_())
    """
    first, *rest = run_python(script, str(path), " ".join(ROOMS), DIAGNOSIS_HALF).splitlines()
    assert first == "input 0.75"
    assert "num_workers" in "\n".join(rest)
    assert "gpu-doctor-static" in "\n".join(rest)
