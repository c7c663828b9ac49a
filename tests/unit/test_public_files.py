"""Files that a host of the repository reads: workflows, issue forms, hooks and the security page say what is true."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from tests.run import TIERS
from tests.support.repository import ROOT

WORKFLOWS: Final = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS: Final = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
NIGHTLY: Final = ROOT / ".github" / "workflows" / "test-all.yml"
PARTS: Final = set(TIERS["all"]) - set(TIERS["quick"])
"""Of `make test-all`, without what is judged on every push."""


def loaded(path: Path) -> Any:
    """A YAML file as plain Python; `on` is a word in YAML 1.2, and not True."""
    return YAML(typ="safe").load(path)


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every step of every workflow, with a name for a failure to show."""
    for path in WORKFLOWS:
        for name, job in loaded(path)["jobs"].items():
            for step in job["steps"]:
                yield f"{path.name}: {name}", step


def commands() -> str:
    """The shell commands of all workflows."""
    return "\n".join(step["run"] for _, step in steps() if "run" in step)


@pytest.fixture(scope="module")
def complaint() -> Callable[..., str]:
    """What `python -m check_jsonschema` says against files, or nothing; the schemas come with it, so no network.

    It runs in this process: importing it takes a second, once and outside of any test instead of at every call.
    """
    from check_jsonschema import main

    def asked(schema: str, *paths: Path) -> str:
        done = CliRunner().invoke(main, ["--builtin-schema", schema, *map(str, paths)])
        return "" if done.exit_code == 0 else done.output or repr(done.exception)

    return asked


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("vendor.github-workflows", WORKFLOWS),
        ("custom.github-workflows-require-timeout", WORKFLOWS),
        ("vendor.github-issue-forms", [path for path in FORMS if path.name != "config.yml"]),
        ("vendor.github-issue-config", [path for path in FORMS if path.name == "config.yml"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_files_fit_the_schema_of_their_host(complaint: Callable[..., str], schema: str, paths: list[Path]) -> None:
    assert paths
    assert not complaint(schema, *paths)


def test_a_workflow_that_breaks_the_schema_is_found(complaint: Callable[..., str], tmp_path: Path) -> None:
    broken = tmp_path / "broken.yml"
    broken.write_text(WORKFLOWS[0].read_text(encoding="utf-8").replace("runs-on:", "run-on:"), encoding="utf-8")
    assert "run-on" in complaint("vendor.github-workflows", broken)


def test_every_make_target_of_a_workflow_exists() -> None:
    called = re.findall(r"\bmake (?:[A-Z_]+=\S+ )*([\w-]+)", commands())
    rules = re.findall(r"^([\w -]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    targets = {name for rule in rules for name in rule.split()}
    assert {"lint", "test", "test-all", "release-check"} <= set(called)
    assert not set(called) - targets, "a workflow calls what the Makefile has not"


def test_every_part_of_the_whole_suite_runs_at_night() -> None:
    job = loaded(NIGHTLY)["jobs"]["part"]
    assert sorted(job["strategy"]["matrix"]["part"]) == sorted(PARTS)
    assert "make test-all PART=${{ matrix.part }}" in [step.get("run") for step in job["steps"]]


def test_every_extra_that_a_workflow_installs_exists() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    asked = re.findall(r"'\.\[([\w,-]+)\]'", commands())
    assert asked
    for extra in ",".join(asked).split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), f"pyproject.toml has no extra {extra}"


def test_the_oldest_python_that_the_package_promises_is_tested() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    promised = re.search(r'^requires-python = ">=([\d.]+)"$', project, re.MULTILINE)
    tested = loaded(ROOT / ".github" / "workflows" / "quick.yml")["jobs"]["unit"]["strategy"]["matrix"]["python"]
    assert promised
    assert tested[0] == promised[1]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_only_read_and_gives_way_to_a_newer_run(path: Path) -> None:
    workflow = loaded(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in workflow["jobs"].values())
    assert workflow["concurrency"]["cancel-in-progress"] is True
    assert "pull_request_target" not in workflow["on"], "it would run a stranger's code with the repository's rights"


def test_actions_are_pinned_and_keep_no_token() -> None:
    for where, step in steps():
        used = step.get("uses")
        assert used is None or re.fullmatch(r"actions/[\w-]+@v\d+", used), f"{where} uses {used}"
        if used is not None and used.startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False, where


def test_what_failed_can_be_looked_at_under_a_name_of_its_own() -> None:
    names = []
    for where, step in steps():
        if step.get("uses", "").startswith("actions/upload-artifact@"):
            assert step["if"] == "failure()", where
            assert step["with"]["path"] == "tests/artifacts", where
            names.append(step["with"]["name"])
    assert len(set(names)) == len(names) == 3
    assert sum("${{ matrix." in name for name in names) == 2, "jobs of one matrix must not overwrite each other's files"


def test_hooks_need_no_network_and_run_what_is_there() -> None:
    repositories = loaded(ROOT / ".pre-commit-config.yaml")["repos"]
    assert [one["repo"] for one in repositories] == ["local"]
    hooks = {hook["id"]: hook for hook in repositories[0]["hooks"]}
    assert {"ruff-check", "ruff-format", "mypy"} <= hooks.keys()
    for hook in hooks.values():
        assert hook["language"] in ("system", "pygrep"), hook["id"]
        if hook["language"] == "system":
            python, *arguments = hook["entry"].split()
            assert python == ".venv/bin/python", "the versions of the lint target, and no others"
            assert arguments[0] == "-m" or (ROOT / arguments[0]).is_file()


def test_large_files_and_notebooks_that_were_not_run_are_refused(tmp_path: Path) -> None:
    cell: dict[str, Any] = {"cell_type": "code", "source": "1", "outputs": [], "execution_count": None, "metadata": {}}
    ran, unrun = tmp_path / "ran.ipynb", tmp_path / "unrun.ipynb"
    ran.write_text(json.dumps({"cells": [{**cell, "execution_count": 1}], "metadata": {"padding": 700_000 * "."}}))
    unrun.write_text(json.dumps({"cells": [cell], "metadata": {}}))
    small, large = tmp_path / "small.bin", tmp_path / "large.bin"
    small.write_bytes(bytes(2_000_000))
    large.write_bytes(bytes(2_000_001))

    def refused(*paths: Path) -> list[str]:
        command = [sys.executable, str(ROOT / ".ci" / "check_files.py"), *map(str, paths)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == bool(done.stderr), done.stderr
        return [Path(line.partition(": ")[0]).name for line in done.stderr.splitlines()]

    assert refused(ran, small) == []
    assert refused(ran, unrun, small, large) == ["unrun.ipynb", "large.bin"]


def test_the_security_page_is_found_and_names_no_address() -> None:
    pages = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md"))
    assert "](SECURITY.md)" in pages
    said = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "Report a vulnerability" in said
    assert not re.search(r"\S+@\S+\.\w+", said)


def test_links_of_the_public_pages_lead_somewhere() -> None:
    pages = [ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md", *FORMS]
    named = {link for page in pages for link in re.findall(r"\]\(\.\./blob/HEAD/([^)#]+)", page.read_text("utf-8"))}
    assert named == {"SECURITY.md", "CONTRIBUTING.md"}
    assert all((ROOT / name).is_file() for name in named)
