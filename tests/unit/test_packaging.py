"""What a user installs: light base dependencies, a complete wheel, pins that are the ones tested, honest documents."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import gpu_doctor
from tests.support import stored_notebooks
from tests.support.repository import ROOT

PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def pins() -> dict[str, str]:
    """Package -> version of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    here = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "gpu_doctor").rglob("*")
        if path.is_file() and not {"__pycache__", "frontend"} & set(path.parts)
    }
    assert here <= inside
    assert {f"gpu_doctor/notebook/static/panel.{kind}" for kind in ("js", "css")} <= inside
    assert not any("/frontend/" in name for name in inside), "users need what is built, not what it is built of"
    assert "gpu_doctor/py.typed" in inside
    assert {name.split("/")[0] for name in inside} == {
        "gpu_doctor",
        f"jupyter_gpu_doctor-{gpu_doctor.__version__}.dist-info",
    }
    assert any(name.endswith("licenses/LICENSE") for name in inside)


def test_a_user_gets_no_jupyterlab_and_keeps_their_torch(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    metadata = archive.read(next(n for n in archive.namelist() if n.endswith("/METADATA"))).decode()
    assert "Name: jupyter-gpu-doctor\n" in metadata
    assert "Requires-Python: >=3.10\n" in metadata
    needs = [Requirement(line) for line in re.findall(r"^Requires-Dist: (.+)$", metadata, re.M)]
    base = {need.name: need for need in needs if need.marker is None}
    assert set(base) == {
        "torch", "numpy", "ipython", "ipywidgets", "anywidget", "bokeh", "nvidia-ml-py", "psutil"
    }  # fmt: skip
    for need in base.values():
        assert [clause.operator for clause in need.specifier] == [">="], (
            f"{need}: a floor only, so pip replaces nothing"
        )
    assert base["torch"].specifier.contains("2.4.0")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the pins are for Python 3.11 or newer")
def test_the_installed_set_is_the_pinned_one() -> None:
    wrong = {}
    for name, pinned in pins().items():
        try:
            found = Version(version(name)).public
        except PackageNotFoundError:
            continue
        if found != pinned:
            wrong[name] = f"{found} is installed, {pinned} is pinned"
    assert not wrong


def test_every_direct_dependency_is_pinned() -> None:
    named = {
        Requirement(text).name.lower()
        for text in re.findall(r'^  "([\w\[\]<>=.,-]+)",$', PROJECT.split("[tool.")[0], re.M)
    }
    named |= set(re.findall(r"--no-deps ([\w-]+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    bench_only = {"traceml-ai", "gpuprof"}
    assert {"torch", "jupyterlab", "pytest", "playwright"} <= pins().keys()
    assert "fastai" in named
    assert not named - pins().keys() - bench_only - {"jupyter-gpu-doctor"}


def test_binder_takes_the_tested_versions() -> None:
    wanted = (ROOT / "binder" / "requirements.txt").read_text(encoding="utf-8")
    asked = dict(re.findall(r"^([\w.-]+)==(\S+)$", wanted, re.M))
    assert asked.pop("torch") == f"{pins()['torch']}+cpu"
    assert asked and asked == {name: pins()[name] for name in asked}


def test_the_changelog_names_this_version() -> None:
    assert f"## [{gpu_doctor.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_readme_is_a_screen_and_a_half_and_tells_how_many_rules_there_are() -> None:
    """What somebody reads before they try it: the rest stands in the documentation."""
    from gpu_doctor.diagnosis.rules import CAUSES

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{len(CAUSES)} [causes](docs/reference/rules.md)" in " ".join(readme.split())
    assert len(readme.splitlines()) <= 110


def test_links_and_pictures_of_the_documents_exist() -> None:
    written = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")]
    for page in (*written, *(ROOT / "docs").glob("[!_]*/*.md"), *(ROOT / "benchmarks").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            if not target.startswith("http") and "/rules/" not in target:
                assert (page.parent / target).exists(), f"{page.name} points to {target}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_with_the_results_of_all_their_cells(path: Path) -> None:
    assert stored_notebooks.complaints(path.read_text(encoding="utf-8")) == [], "run: make course"


@pytest.mark.skipif(sys.platform == "win32", reason="a file has no executable bit there")
@pytest.mark.parametrize("name", ["run", "release-check"])
def test_the_commands_of_a_ci_can_be_called(name: str) -> None:
    assert (ROOT / ".ci" / name).stat().st_mode & 0o111


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_of_a_notebook_lead_somewhere_in_what_make_lab_serves(path: Path) -> None:
    """JupyterLab shows nothing above the folder that it serves, and README.md stands above the notebooks."""
    text = "".join("".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])
    links = [one for one in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in one]
    assert links
    for one in ((path.parent / link).resolve() for link in links):
        assert one.is_file() and one.is_relative_to(ROOT)
