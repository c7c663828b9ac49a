"""Code that a library writes while it runs is not the user's."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType, ModuleType

import numpy as np

from gpu_doctor.capture.lines.places import Places


def frame_of(path: Path, name: str) -> FrameType:
    """A frame inside a function of a module called `name` that was written to `path`."""
    path.write_text("import sys\ndef collect():\n    return sys._getframe()\n")
    module = ModuleType(name)
    exec(compile(path.read_text(), str(path), "exec"), vars(module))
    return module.collect()  # type: ignore[no-any-return]


def test_a_module_that_an_installed_package_made_folds_into_the_users_line(tmp_path: Path) -> None:
    """PyG writes the code of its layers to a temporary file, torch's inductor that of its kernels."""
    place = Places().of(frame_of(tmp_path / "GCNConv_propagate.py", f"{np.__name__}.made_up_just_now"))
    assert place is not None
    assert place.file == __file__


def test_a_users_own_package_stays_the_users(tmp_path: Path) -> None:
    package = ModuleType("my_project_of_tests")
    package.__file__ = str(tmp_path / "my_project_of_tests" / "__init__.py")
    sys.modules[package.__name__] = package
    try:
        for name in ("my_project_of_tests.models", "__main__", "unknown.to.everybody", "alone"):
            place = Places().of(frame_of(tmp_path / f"{name}.py", name))
            assert place is not None
            assert place.function == "collect", name
    finally:
        del sys.modules[package.__name__]
