"""What a person is told before the click, on unusual cells."""

from __future__ import annotations

import linecache
from pathlib import Path

import pytest
import torch

import gpu_doctor
from gpu_doctor.trials.beforehand import CHECKS
from gpu_doctor.trials.said_before import Beforehand
from gpu_doctor.trials.snapshot.walk import Walk


def said_of(source: str, space: dict[str, object]) -> Beforehand:
    """What is said of a cell; a shell line would not compile here, so the text is given afterwards."""
    case = gpu_doctor.case("1", space)
    case.source = case.made_of = source
    return case.beforehand()


@pytest.mark.parametrize(
    ("earlier", "cell", "says"),
    [
        ("", "!cp a.txt b.txt", "processes (!cp in line 1)"),
        ("import queue\nwaiting = queue.Queue()", "waiting.put(1)", "waiting (Queue)"),
        (
            "from tensorboardX import SummaryWriter\nwriter = SummaryWriter('runs')",
            "writer.add_scalar('loss', 1.0)",
            "reports nothing to writer (SummaryWriter)",
        ),
        (
            "from concurrent.futures import ProcessPoolExecutor\npool = ProcessPoolExecutor(1)",
            "pool.submit(abs, 1)",
            "processes (pool.submit",
        ),
    ],
)
def test_what_an_earlier_cell_made_is_named(
    earlier: str, cell: str, says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {"__name__": "__main__"}
    exec(earlier, space)
    said = said_of(cell, space)
    for close in ("writer.close()", "pool.shutdown()"):
        if close.partition(".")[0] in space:
            exec(close, space)
    assert says in " ".join((*said.refusals, *said.notes, *said.lost))


def test_a_plain_cell_gets_one_note() -> None:
    said = said_of("x = 1", {"x": 1})
    assert said.refusals == said.lost == () and len(said.notes) == 1


def test_functions_that_the_cell_calls_are_read_as_deep_as_they_call_each_other() -> None:
    text = "import os\ndef outer():\n    inner()\ndef inner():\n    os.system('true')\n    outer()\n"
    linecache.cache["<functions>"] = (len(text), None, text.splitlines(keepends=True), "<functions>")
    space: dict[str, object] = {"__name__": "__main__"}
    exec(compile(text, "<functions>", "exec"), space)
    [said] = said_of("outer()", space).refusals
    assert "os.system in line 2 of inner()" in said
    assert said_of("print(outer)", space).refusals == ()


def test_a_callable_is_read_too() -> None:
    def train() -> None:
        import subprocess

        subprocess.run(["true"])

    [said] = [one for one in gpu_doctor.case(train).beforehand().refusals if "subprocess.run" in one]
    assert "line 4" in said


def test_a_tracker_in_the_text_is_named_before_it_is_used() -> None:
    said = said_of("import mlflow\nmlflow.log_metric('loss', 1.0)", {})
    assert "reports nothing to mlflow" in said.notes[1]


def test_a_check_that_fails_refuses_and_keeps_no_other_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(case: object) -> Beforehand:
        raise AttributeError("an odd object of the user's")

    monkeypatch.setattr("gpu_doctor.trials.beforehand.CHECKS", (fails, *CHECKS))
    failed, other = said_of("import os\nos.system('true')", {}).refusals
    assert "AttributeError" in failed and "no trial begins" in failed
    assert "os.system in line 2" in other


@pytest.mark.parametrize("odd", ["".__len__, str.join, str.__add__, "".join, dict.fromkeys, int.real, len])
def test_no_callable_of_the_users_makes_a_check_fail(odd: object) -> None:
    said = said_of("odd()\nodd.part()", {"odd": odd})
    assert said.refusals == said.lost == () and len(said.notes) == 1


@pytest.mark.parametrize(
    "cell",
    [
        "requests = []\nrequests.append(1)",
        "from lightning.fabric import Fabric\nfabric = Fabric()\nfabric.backward(1)",
        "def f(redis):\n    redis.get()",
        "for httpx in [1]:\n    httpx.bit_length()",
    ],
)
def test_a_name_that_the_text_assigns_is_no_package(cell: str) -> None:
    assert said_of(cell, {}).refusals == ()
    assert said_of(f"{cell}\nimport boto3\nboto3.client('s3')", {}).refusals != ()


METHODS = """
import os
class Bot:
    def __init__(self, other=None): self.other = other
    def send(self): os.system('true')
    def passes(self): self.send()
    def __call__(self): self.other.send()
    @staticmethod
    def alone(): os.system('true')
class Opens:
    def __init__(self): os.system('true')
bot = Bot(Bot())
send = bot.send
"""


@pytest.mark.parametrize(
    ("call", "place"),
    [
        ("bot.send()", "line 1 of bot.send()"),
        ("bot.passes()", "line 1 of self.send()"),
        ("bot()", "line 1 of self.other.send()"),
        ("bot.other.send()", "line 1 of bot.other.send()"),
        ("bot.alone()", "of bot.alone()"),
        ("send()", "line 1 of send()"),
        ("Opens()", "line 1 of Opens()"),
    ],
)
def test_methods_of_the_users_classes_are_read_too(call: str, place: str) -> None:
    linecache.cache["<methods>"] = (len(METHODS), None, METHODS.splitlines(keepends=True), "<methods>")
    space: dict[str, object] = {"__name__": "__main__"}
    exec(compile(METHODS, "<methods>", "exec"), space)
    [said] = said_of(call, space).refusals
    assert "os.system in " in said and place in said


def test_a_trial_walks_once_through_what_the_cell_reaches_and_once_for_the_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walks: list[object] = []
    begin = Walk.__init__

    def counted(self: Walk) -> None:
        walks.append(self)
        begin(self)

    monkeypatch.setattr(Walk, "__init__", counted)
    case = gpu_doctor.case("total += 1", {"total": torch.zeros(1)})
    case.beforehand()
    assert len(walks) == 2
    case.trial({"threads": 1}, steps=2, seconds=1.0, pairs=1)
    assert len(walks) == 4
