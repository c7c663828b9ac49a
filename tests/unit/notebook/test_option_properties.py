"""What holds of every line of the two magics: options or one sentence, never a traceback; options are as written.

GPU_DOCTOR_EXAMPLES=10000 GPU_DOCTOR_SEED=any searches for more.
"""

from __future__ import annotations

import math
import os
import shlex
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from IPython.core.error import UsageError

from gpu_doctor import trials
from gpu_doctor.notebook import line_magic
from gpu_doctor.notebook.magic import WORDS, GpuDoctorMagics, parsed_cell_line
from gpu_doctor.trials.knobs import KNOBS

CHECK: Final = settings(
    max_examples=int(os.environ.get("GPU_DOCTOR_EXAMPLES", "100")),
    deadline=None,
    derandomize="GPU_DOCTOR_SEED" not in os.environ,
    database=None,
)
LONGEST: Final = 2000
"""Characters of an answer: that to an unknown rule names all rules. A line of a tenth of it may be said again."""

EXAMPLES: Final = {
    "--steps": "50",
    "--seconds": "30",
    "--set": "num_workers=4",
    "--trial-steps": "50",
    "--trial-seconds": "20",
    "--name": "tuned",
    "--save": "run.npz",
    "--price": "2.5",
}
"""An option that takes a value -> such a value."""

LETTERS: Final = st.characters(codec="utf-8", exclude_characters="\r\n")
ANY: Final = st.text(LETTERS, max_size=20)
FIGURES: Final = st.sampled_from(("0", "1", "-1", "50", "1.5", "nan", "inf", "1e400", "²", "1_0", "9" * 90))
ASSIGNED: Final = st.builds("{}={}".format, st.sampled_from((*KNOBS, "lr", "", "no_knob")), ANY | FIGURES)
KNOWN: Final = st.sampled_from(
    (*EXAMPLES, *EXAMPLES.values(), *WORDS, *KNOBS, "--no-view", "--help", "--", "-", "~", "~no/x")
)
JOINED: Final = st.builds("{}={}".format, st.sampled_from(tuple(EXAMPLES)), ANY | FIGURES | ASSIGNED)
WORD: Final = st.one_of(ANY, FIGURES, ASSIGNED, KNOWN, JOINED)
LINE: Final = st.lists(WORD | WORD.map(shlex.quote), max_size=6).map(" ".join)
"""Also with quotations that are never closed."""


@pytest.fixture(autouse=True, scope="module")
def nothing_is_run_or_found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """No case, no check of this machine, an empty folder; and hypothesis has read all modules before the first test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("empty"))
        patch.setitem(line_magic.ANSWERS, "check", lambda: "checked")
        patch.setattr(trials, "last_case", lambda: None)
        settings(CHECK, max_examples=1)(given(st.none())(lambda _: None))()
        yield


def refused(error: UsageError, line: str) -> None:
    """One line of several words, of bounded length."""
    said = str(error)
    assert said == said.strip() and " " in said and "\n" not in said, said
    assert len(said) <= LONGEST or len(line) > LONGEST / 10, said


@CHECK
@given(LINE)
@example("--steps")
@example("--no-view=1")
@example("--name 'open")
@example("--save ''")
@example("--save=" + "a" * 300)
@example("--set num_workers=" + "9" * 5000)
@example("--save '\0'")
def test_any_line_of_a_cell_gives_options_or_one_sentence(line: str) -> None:
    try:
        found = parsed_cell_line(line)
    except UsageError as error:
        refused(error, line)
        return
    assert all(one is None or one >= 1 for one in (found.steps, found.trial_steps))
    assert all(one is None or (one > 0 and math.isfinite(one)) for one in (found.seconds, found.trial_seconds))
    assert set(found.settings) <= set(KNOBS)
    assert found.save is None or isinstance(found.save, Path)


@CHECK
@given(LINE, st.sampled_from(("", *WORDS)))
@example("a.npz b.npz", "compare")
@example("'\0'", "report")
@example("a" * 300, "report")
@example("~nobody.npz", "report")
def test_any_line_of_a_question_gives_an_answer_or_one_sentence(line: str, word: str) -> None:
    try:
        GpuDoctorMagics(None).ask(f"{word} {line}")
    except UsageError as error:
        refused(error, line)


WHOLE: Final = st.integers(1, 10**6)
SECONDS: Final = st.floats(1e-6, 1e9)
GIVEN: Final = st.fixed_dictionaries(
    {},
    optional={
        "steps": WHOLE,
        "seconds": SECONDS,
        "trial_steps": WHOLE,
        "trial_seconds": SECONDS,
        "price": SECONDS,
        "name": ANY,
        "save": st.just("run of today.npz"),
        "no_view": st.just(True),
        "nvtx": st.just(True),
        "settings": st.fixed_dictionaries(
            {}, optional={"num_workers": st.integers(0, 64), "pin_memory": st.booleans(), "batch_size": WHOLE}
        ),
    },
)
NOT_GIVEN: Final[dict[str, Any]] = {
    **dict.fromkeys(("steps", "seconds", "trial_steps", "trial_seconds", "save", "price")),
    "name": "",
    "no_view": False,
    "nvtx": False,
    "settings": {},
}


def written(options: dict[str, Any]) -> str:
    """The line of a cell that asks for them."""
    words = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if name == "settings":
            words += [one for knob, to in value.items() for one in ("--set", f"{knob}={to}")]
        else:
            words.append(option if value is True else f"{option}={value}")
    return shlex.join(words)


@CHECK
@given(GIVEN)
def test_options_that_are_written_are_read_as_they_were_meant(options: dict[str, Any]) -> None:
    meant = {**NOT_GIVEN, **options}
    found = vars(parsed_cell_line(written(options)))
    assert found | {"save": found["save"] and str(found["save"])} == meant
