"""The quickstart uploaded to Colab, which has no gpu_doctor: from the install cell to the panel.

A Python as Colab's, with its packages below it; what pip installs goes into a folder of its own, as there.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from tests.support.colab import COLABS, QUICKSTART_CELL_S
from tests.support.real_kernel import Kernel
from tests.support.repository import ROOT
from tests.support.session_kernel import COLAB, printed, python_in, session_python, write_kernelspec
from tests.support.stored_notebooks import INSTALL_ID

pytestmark = [pytest.mark.extra, pytest.mark.timeout(900)]

MISSING: Final = "print(__import__('importlib').util.find_spec('gpu_doctor'), __import__('torch').__version__)"
WHERE: Final = "import gpu_doctor, torch; print(gpu_doctor.__file__, torch.__version__)"


@pytest.fixture(scope="module")
def upload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zip of the repository, as GitHub and `git archive` make it."""
    made = tmp_path_factory.mktemp("upload") / "gpu_doctor.zip"
    subprocess.run(["git", "archive", "--prefix=gpu_doctor/", "-o", made, "HEAD"], cwd=ROOT, check=True)
    return made


@pytest.fixture
def colab(tmp_path: Path) -> Iterator[Kernel]:
    """A kernel as Colab's that does not find the checkout."""
    below = session_python(COLAB)
    printed(str(below), "-m", "venv", str(tmp_path / "over"))
    python = python_in(tmp_path / "over")
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages, own = (Path(printed(str(one), "-c", ask).strip()) for one in (below, python))
    (own / "colab.pth").write_text(f"{packages}\n")  # a path of a .pth file is added without the .pth files in it
    name = write_kernelspec(tmp_path / "data", COLAB, python=python)
    specs = KernelSpecManager(kernel_dirs=[str(tmp_path / "data" / "kernels")], ensure_native_kernel=False)
    one = Kernel(tmp_path, KernelManager(kernel_name=name, kernel_spec_manager=specs))
    try:
        one.run(COLABS)
        yield one
    finally:
        one.close()


def cells() -> list[Any]:
    """The quickstart's code."""
    read: Any = nbformat.read(ROOT / "notebooks" / "01_quickstart.ipynb", as_version=4)
    return [cell for cell in read.cells if cell.cell_type == "code"]


def test_a_zip_beside_the_notebook_leads_to_the_panel(colab: Kernel, upload: Path, tmp_path: Path) -> None:
    none, torch = colab.run(MISSING).split()
    assert none == "None"
    shutil.copy(upload, tmp_path)
    code = cells()
    assert code[0].id == INSTALL_ID
    said = colab.run(code[0].source)
    assert "gpu_doctor is missing" in said and "%pip install --quiet ./NAME_OF_THE.zip" in said
    colab.run("%pip install --quiet ./gpu_doctor.zip", timeout_s=QUICKSTART_CELL_S)
    where, after = colab.run(WHERE).split()
    assert Path(where).is_relative_to(tmp_path / "over") and after == torch
    watched = next(index for index, cell in enumerate(code) if cell.source.startswith("%%gpudoctor"))
    for cell in code[: watched + 1]:
        colab.run(cell.source, timeout_s=QUICKSTART_CELL_S)
    assert colab.statuses[0] == "recording" and colab.statuses[-1] == "idle"
    assert "waits for data" in colab.shown["verdict"]["text"]
    assert any("gpu-doctor-static" in page for page in colab.pages)
