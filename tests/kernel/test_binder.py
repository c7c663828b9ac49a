"""Binder, acted out: its builder understands `binder/`, and the notebooks run within its limits in what that builds.

Not acted out: Docker, conda's own builds of the base image's packages (PyPI's are taken), and the page.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import nbformat
import pytest

from tests.support import binder
from tests.support.real_kernel import Kernel
from tests.support.repository import ROOT
from tests.support.session_kernel import BINDER, VERSIONS, printed, session_python
from tests.support.stored_notebooks import RESULT, doctored
from tools.evaluate import limits

pytestmark = [pytest.mark.extra, pytest.mark.timeout(900)]

BUILDER: Final = "jupyter-repo2docker==2026.4.0"
FIRST_PLOT_S: Final = 20.0
"""From the start of the kernel to the first points of the panel, every cell before included."""
CELL_S: Final = 180.0
NOTEBOOKS: Final = ("01_quickstart", "02_feeding_the_device", "08_reading_a_recording")
"""What a visitor of Binder is sent to: they need no more than one core and no further package."""
CONDAS: Final = {
    "brotli-python": "brotli",
    "jupyterhub-base": "jupyterhub",
    "nbconvert-core": "nbconvert",
    "python-fastjsonschema": "fastjsonschema",
    "python-tzdata": "tzdata",
}
HELD: Final = f"""
import os, shutil
why_not, shared = os.environ.get({binder.UNAVAILABLE!r}, ""), shutil.disk_usage("/dev/shm").total
print(why_not, len(os.sched_getaffinity(0)), shared, sep="|")
"""


def versions(text: str) -> dict[str, str]:
    """The pins of a text."""
    return {_name(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.M)}


def _name(name: str) -> str:
    """A package's name on PyPI, of which conda has some otherwise."""
    plain = name.lower().replace("_", "-")
    return CONDAS.get(plain, plain)


def tool(*words: str) -> str:
    """What a command prints that stands beside the builder."""
    return printed(sys.executable, "-m", "uv", "tool", "run", "--quiet", "--from", BUILDER, *words)


@dataclass
class Visit:
    """A kernel on Binder, and when it was asked for."""

    kernel: Kernel
    began: float


@pytest.fixture
def visit(tmp_path: Path) -> Iterator[Visit]:
    """With what lies beside the notebooks in the kernel's folder."""
    shutil.copytree(ROOT / "notebooks" / "recordings", tmp_path / "recordings")
    manager = binder.manager(tmp_path)
    began = time.monotonic()
    one = Kernel(tmp_path, manager)
    pid = one.run("import os; print(os.getpid())")
    try:
        yield Visit(one, began)
    finally:
        one.close()
        limits.leave(int(pid))


@pytest.fixture(autouse=True, scope="module")
def _in_its_session() -> None:
    """Skips the module outside of `nox -s binder`."""
    session_python(BINDER)


def test_its_builder_understands_the_folder() -> None:
    said = tool("sh", "-c", f"jupyter-repo2docker --no-build --debug '{ROOT}' 2>&1")
    for words in ("python=3.11", 'pip install --no-cache-dir -r "binder/requirements.txt"', "./binder/postBuild"):
        assert words in said


def test_the_listed_versions_are_those_of_its_base_image() -> None:
    where = "import repo2docker as one; print(one.__path__[0])"
    lock = Path(tool("python", "-c", where).strip(), "buildpacks", "conda", "environment.py-3.11-linux-64.lock")
    built = re.findall(r"/([\w.-]+)-([\w.]+)-\w+\.(?:conda|tar)", lock.read_text(encoding="utf-8"))
    base, listed = (
        {_name(name): version for name, version in built},
        versions((VERSIONS / "binder.txt").read_text(encoding="utf-8")),
    )
    assert {"jupyterlab", "notebook", "ipykernel", "ipywidgets", "jupyter-server"} <= set(listed)
    assert {name: base.get(name) for name in listed} == listed


def test_the_image_keeps_the_jupyter_of_its_base(visit: Visit) -> None:
    """The page that Binder opens is served by it."""
    listed = versions((VERSIONS / "binder.txt").read_text(encoding="utf-8"))
    asked = f"from importlib.metadata import version\nfor one in {sorted(listed)}: print(one, version(one), sep='==')"
    assert versions(visit.kernel.run(asked)) == listed


def test_the_kernel_has_the_limits_of_binder(visit: Visit) -> None:
    why_not, cores, shared = visit.kernel.run(HELD).strip().split("|")
    if why_not:
        pytest.skip(why_not)
    held = visit.kernel.run("from gpu_doctor.machine import cgroup; print(cgroup.memory_bytes()[0])")
    assert (int(cores), int(shared), int(held)) == (1, 64 << 20, 2 << 30)


def code_of(name: str) -> list[str]:
    """The cells of a notebook that run."""
    read: Any = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    return [cell.source for cell in read.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_whole_within_its_limits(visit: Visit, name: str) -> None:
    for source in code_of(name):
        visit.kernel.run(source, timeout_s=CELL_S)  # a cell that fails ends the test
    assert visit.kernel.plotted is not None, "no points came to the page while a cell ran"
    assert visit.kernel.statuses[-1] == "idle"
    assert any(RESULT in page for page in visit.kernel.pages)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_its_first_plot_comes_soon(visit: Visit, name: str) -> None:
    cells = code_of(name)
    first = next(index for index, source in enumerate(cells) if doctored(source))
    for source in cells[: first + 1]:
        visit.kernel.run(source, timeout_s=CELL_S)
    assert visit.kernel.plotted is not None
    assert visit.kernel.plotted - visit.began < FIRST_PLOT_S
