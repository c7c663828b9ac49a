"""Rules of other packages, installed as their users install them: shown with the package's name, and fenced."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.recordings import Loop

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "acme-rules"
version = "1.0"

[project.entry-points."gpu_doctor.rules"]
slow-decoder = "acme_rules.slow_decoder"
broken = "acme_rules.broken"
nosy = "acme_rules.nosy"
older = "acme_rules.older"
raising = "acme_rules.raising"
dearer = "acme_rules.dearer"

[tool.hatch.build.targets.wheel]
packages = ["acme_rules"]
"""
RULE = '''
"""Acme's decoder is slow.

What it means
    The decoder of Acme's files takes the time.
"""

from gpu_doctor.diagnosis import Finding, Prescription, Safety, Vitals

VERSION = {version}
NEEDS = {needs}


def check(vitals: Vitals) -> Finding | None:
    {check}
'''
FINDS = """return Finding(
        "anything",
        f"Acme's decoder takes {100 * vitals.data_wait_share:.0f} % of the time.",
        vitals.data_wait_share,
        prescriptions=(Prescription("Use acme.fast_decode.", Safety.BY_HAND),),
    )"""
RULES = {
    "slow_decoder": RULE.format(version=1, needs='("data_wait_share",)', check=FINDS),
    "broken": "import acme_that_is_not_there",
    "nosy": RULE.format(version=1, needs='("gpu_gap_share_of_mine",)', check="return None"),
    "older": RULE.format(version=0, needs="()", check="return None"),
    "raising": RULE.format(version=1, needs="()", check="raise RuntimeError('no decoder')"),
    "dearer": RULE.format(version=1, needs="()", check='return Finding("x", "Everything.", 7.0)'),
}
ASKED = """
import dataclasses
import sys
import gpu_doctor

said = gpu_doctor.diagnose(gpu_doctor.load(sys.argv[1]))
print(said)
print(said.notes)
print([one.rule for one in said.findings])
print({one.rule: one.reason for one in said.silent if one.rule.startswith("acme")})
print(gpu_doctor.explain("acme-rules/slow-decoder"))
quiet = dataclasses.replace(gpu_doctor.load(sys.argv[1]), source="# gpudoctor: ignore acme-rules/slow-decoder\\n")
print("quiet", [one.rule for one in gpu_doctor.diagnose(quiet).findings], gpu_doctor.diagnose(quiet).notes[:1])
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which pip has installed a package with rules."""
    project, site = tmp_path_factory.mktemp("acme"), tmp_path_factory.mktemp("site")
    (project / "acme_rules").mkdir()
    (project / "acme_rules" / "__init__.py").touch()
    (project / "pyproject.toml").write_text(PROJECT)
    for name, text in RULES.items():
        (project / "acme_rules" / f"{name}.py").write_text(text)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(site), str(project)], check=True, timeout=120)
    return site


def test_its_finding_is_named_with_the_package_and_what_it_does_wrong_is_said(installed: Path, tmp_path: Path) -> None:
    path = Loop(wait=20.0, has_loader=False).recording().save(tmp_path / "run.npz")
    script = f"import sys; sys.path.insert(0, {str(installed)!r})\n{textwrap.dedent(ASKED)}"
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert "acme-rules/slow-decoder" in said and "Acme's decoder takes 67 % of the time." in said
    assert "Use acme.fast_decode." in said
    assert "The rule 'broken' of acme-rules was left out (ModuleNotFoundError" in said
    assert "The rule 'nosy' of acme-rules was left out" in said and "it needs gpu_gap_share_of_mine" in said
    assert "The rule 'older' of acme-rules was left out" in said and "it says VERSION = 0" in said
    assert "no decoder" in said and "cost_share is 7.0" in said
    assert "The decoder of Acme's files takes the time." in said
    assert "quiet []" in said and "there is no rule" not in said
