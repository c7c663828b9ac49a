"""The panel's script: what is committed is what the sources give, the types hold, what needs no page is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import frontend


@pytest.mark.parametrize("name", frontend.BUILT)
def test_what_is_committed_is_what_the_sources_give(name: str, tmp_path: Path) -> None:
    committed = (frontend.STATIC / name).read_text(encoding="utf-8")
    assert committed == frontend.built(tmp_path)[name], "run `make frontend` and commit gpu_doctor/notebook/static"


def test_the_types_hold() -> None:
    done = frontend.ran("types")
    assert done.returncode == 0, done.stdout + done.stderr


def test_node_finds_its_tests_and_they_pass() -> None:
    done = frontend.tested()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# pass 0" not in done.stdout and "ℹ pass 0" not in done.stdout, done.stdout
