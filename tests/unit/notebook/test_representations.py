"""What a cell's last expression shows of our objects: words; without the extension, and in programs, `repr` as ever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import gpu_doctor
from gpu_doctor.notebook.representations import WRITERS
from tests.support.recordings import starved
from tests.support.trial_parts import effects, plan, trials


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    one = InteractiveShell()
    gpu_doctor.load_ipython_extension(one)
    yield one
    gpu_doctor.unload_ipython_extension(one)


def plain(shell: InteractiveShell, thing: Any) -> str:
    """What a terminal shows of a cell's last expression."""
    return str(shell.display_formatter.formatters["text/plain"](thing))


def test_an_effect_and_a_plan_are_shown_as_print_writes_them(shell: InteractiveShell) -> None:
    effect = effects(trials())[0]
    assert plain(shell, effect) == str(effect)
    assert str(effect).startswith("num_workers=4: 3.33x (2.9-3.6) faster, predicted 2.9x (2.2-3.5); took ")
    made = plan(effects(trials()))
    assert plain(shell, made) == str(made).rstrip()
    assert plain(shell, gpu_doctor.check()).startswith("Check-up of this machine: ")
    diagnosis = gpu_doctor.diagnose(starved())
    assert plain(shell, diagnosis) == str(diagnosis).rstrip()


def test_a_recording_a_case_and_vitals_in_a_few_words(shell: InteractiveShell) -> None:
    one = starved(name="first", settings={"num_workers": 2})
    assert plain(shell, one) == "first, num_workers=2: 60 steps in 2.40 s, completed"
    case = gpu_doctor.case("x = 1", {}, name="my cell")
    assert plain(shell, case) == "my cell (0 runs, 0 trials): Not run yet: .run() runs it."
    case.run()
    assert plain(shell, case).startswith("my cell (1 run, 0 trials): No training step was seen")
    lines = plain(shell, gpu_doctor.measure(one)).splitlines()
    assert any(line.split() == ["data_wait_share", "0.75"] for line in lines) and "None" not in str(lines)


def test_programs_and_shells_without_the_extension_see_the_repr(shell: InteractiveShell) -> None:
    effect = effects(trials())[0]
    gpu_doctor.unload_ipython_extension(shell)
    assert plain(shell, effect).startswith("Effect(") and repr(effect).startswith("Effect(")


def test_every_class_is_where_its_writer_looks_for_it() -> None:
    from importlib import import_module

    for module, name in WRITERS:
        assert getattr(import_module(module), name).__module__ == module
