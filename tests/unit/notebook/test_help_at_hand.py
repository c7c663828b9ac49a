"""Help where it is typed: what `%gpudoctor` alone says, the examples behind `?`, and what the Tab key completes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from IPython.core.completer import provisionalcompleter, rectify_completions
from IPython.core.interactiveshell import InteractiveShell

import gpu_doctor
from gpu_doctor.diagnosis.rules import CAUSES
from gpu_doctor.notebook.completion import completed
from gpu_doctor.notebook.line_magic import ANSWERS
from gpu_doctor.notebook.magic import WORDS, parsed_cell_line
from gpu_doctor.trials import knobs

OPTIONS = [
    "--steps",
    "--seconds",
    "--set",
    "--trial-steps",
    "--trial-seconds",
    "--name",
    "--save",
    "--price",
    "--nvtx",
    "--no-view",
]


@pytest.fixture(autouse=True)
def _no_cell_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is offered depends on the last cell that ran."""
    monkeypatch.setattr("gpu_doctor.trials.case._last", [])


@pytest.fixture(scope="module", autouse=True)
def _jedi_is_loaded() -> None:
    """IPython imports it, and parses its stubs, at the first completion: seconds that are no single test's own."""
    offered(InteractiveShell(), "len")


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    one = InteractiveShell()
    gpu_doctor.load_ipython_extension(one)
    yield one
    gpu_doctor.unload_ipython_extension(one)


def offered(shell: InteractiveShell, text: str, below: str = "") -> list[str]:
    """What a front end shows when the Tab key is pressed behind `text`, as the kernel asks for it."""
    with provisionalcompleter():
        found = list(rectify_completions(text + below, shell.Completer.completions(text + below, len(text))))
    return [one.text for one in found]


def test_alone_it_says_what_it_can_do(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run_line_magic("gpudoctor", "") is None
    said = capsys.readouterr().out
    assert said.strip() in shell.object_inspect_text("%gpudoctor")
    assert len(said.splitlines()) <= 15 and all(len(line) <= 120 for line in said.splitlines())
    assert tuple(ANSWERS) == WORDS == tuple(dict.fromkeys(re.findall(r"^  (\w+)", said, flags=re.MULTILINE)))


def test_a_question_mark_shows_every_option_and_three_examples_that_are_right(shell: InteractiveShell) -> None:
    said = shell.object_inspect_text("%%gpudoctor")
    assert all(option in said for option in OPTIONS)
    examples = re.findall(r"^ *%%gpudoctor(.*)$", said[said.index("Examples") :], flags=re.MULTILINE)
    assert len(examples) == 3
    for one in examples:
        parsed_cell_line(one)


@pytest.mark.parametrize("below", ["", "\nfor x in loader:\n    x.backward()"])
def test_options_knobs_and_values_are_completed_in_a_cells_line(shell: InteractiveShell, below: str) -> None:
    assert offered(shell, "%%gpudoctor --s", below) == ["--steps", "--seconds", "--set", "--save"]
    assert offered(shell, "%%gpudoctor ", below) == OPTIONS
    assert "--set" in offered(shell, "%%gpudoctor --set tf32=True --", below)
    assert offered(shell, "%%gpudoctor --set ", below) == [f"{name}=" for name in knobs.KNOBS]
    assert offered(shell, "%%gpudoctor --set num_w", below) == ["num_workers="]
    assert offered(shell, "%%gpudoctor --set amp=", below) == ["off", "bf16", "fp16"]
    assert offered(shell, "%%gpudoctor --set amp=b", below) == ["bf16"]


def test_every_value_that_is_offered_is_taken(shell: InteractiveShell) -> None:
    for name in knobs.KNOBS:
        _, values = completed(shell, f"%%gpudoctor --set {name}=")
        assert values or name == "batch_size"  # of which nothing is known before a run
        for value in values:
            parsed_cell_line(f"--set {name}={value}")


def test_words_and_rules_are_completed_in_a_line(shell: InteractiveShell) -> None:
    assert offered(shell, "%gpudoctor ") == list(WORDS)
    assert offered(shell, "%gpudoctor ex") == ["explain"]
    assert offered(shell, "%gpudoctor explain slow-ge") == ["slow-getitem", "slow-generator"]
    assert set(offered(shell, "gpudoctor explain ")) >= {rule.name for rule in CAUSES}


def test_paths_and_the_cell_below_are_left_to_ipython(shell: InteractiveShell) -> None:
    shell.Completer.use_jedi = False
    assert any(one.startswith("/etc") for one in offered(shell, "%%gpudoctor --save /et"))
    shell.user_ns["something"] = 1
    assert "something" in offered(shell, "%%gpudoctor\nsometh")
    assert not any(one.startswith("--") for one in offered(shell, "%%gpudoctor\n--s"))


def test_nothing_is_left_in_the_completer(shell: InteractiveShell) -> None:
    gpu_doctor.unload_ipython_extension(shell)
    assert "--steps" not in offered(shell, "%%gpudoctor --s")
    assert shell.Completer.custom_matchers == []
