"""A function that is called when the program imports a module: once, then, and without a trace."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_doctor.command.on_import import when_imported

NAME = "gpu_doctor_test_module"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / f"{NAME}.py"
    sys.modules.pop(NAME, None)


def test_it_is_called_once_the_module_has_run(module: Path) -> None:
    module.write_text("import sys\nready = True\n")
    before, seen = list(sys.meta_path), []
    with when_imported(NAME, lambda: seen.append(sys.modules[NAME].ready)):
        assert not seen
        found = importlib.import_module(NAME)
        importlib.reload(found)
    assert seen == [True]
    assert sys.meta_path == before and "exec_module" not in vars(found.__spec__.loader)  # type: ignore[union-attr]


def test_a_module_that_is_there_already_counts(module: Path) -> None:
    seen = list[int]()
    with when_imported("sys", lambda: seen.append(1)):
        assert seen


def test_a_module_that_comes_later_or_never(module: Path) -> None:
    before, seen = list(sys.meta_path), list[int]()
    with when_imported(NAME, lambda: seen.append(1)):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(NAME)
        module.write_text("")
        importlib.invalidate_caches()
        importlib.import_module(NAME)
    with when_imported("gpu_doctor_no_such_module", lambda: seen.append(2)):
        pass
    assert seen == [1] and sys.meta_path == before


def test_a_program_that_asks_for_the_module_first_is_seen_to_import_it(module: Path) -> None:
    module.write_text("")
    before, seen = list(sys.meta_path), list[int]()
    with when_imported(NAME, lambda: seen.append(1)):
        assert importlib.util.find_spec(NAME) is not None and not seen
        importlib.import_module(NAME)
        assert sys.meta_path == before
    assert seen == [1]


def test_a_module_that_fails_is_none(module: Path) -> None:
    module.write_text("1 / 0")
    seen = list[int]()
    with pytest.raises(ZeroDivisionError), when_imported(NAME, lambda: seen.append(1)):
        importlib.import_module(NAME)
    assert not seen
