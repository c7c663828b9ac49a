"""What is copied of files, when, how much at most, and that a measured step never holds a copy."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpu_doctor.trials.side_effects.file_states import CONTENT
from gpu_doctor.trials.side_effects.kept_files import KeptFiles
from gpu_doctor.trials.side_effects.written_files import WrittenFiles

import gpu_doctor
from gpu_doctor.capture import RunEnded
from gpu_doctor.recording import Recording
from gpu_doctor.trials.rounds import COPIED, MOST_COPIED, Rounds
from gpu_doctor.trials.run import Result
from gpu_doctor.trials.side_effects import kept_files
from gpu_doctor.trials.snapshot.snapshot import Snapshot
from tests.support.recordings import Loop
from tests.support.written_files_parts import digest, space
from tests.support.written_files_parts import folder as folder


class Copies:
    """Copies, and counts."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, path: str, to: Path, size: int) -> None:
        self.made.append(Path(path).name)
        kept_files._copied_first(path, to, size)


def side(kept: KeptFiles, do: Any, in_step: bool = True) -> bool:
    """One side; whether something was copied in a step."""
    kept.begin(lambda: in_step)
    with WrittenFiles(kept):
        do()
    copied = kept.copied
    assert kept.put_back() == []
    return copied


def appended(path: str) -> None:
    with Path(path).open("a") as file:
        file.write("more")


@pytest.mark.parametrize(
    ("do", "made"),
    [
        (lambda: Path("old.txt").write_text("new"), ["old.txt"]),
        (lambda: Path("old.txt").open("r+").close(), ["old.txt"]),
        (lambda: os.truncate("old.txt", 1), ["old.txt"]),
        (lambda: appended("old.txt"), []),
        (lambda: Path("old.txt").unlink(), []),
        (lambda: Path("old.txt").rename("new.txt"), []),
        (lambda: (Path("new.txt").write_text("n"), Path("new.txt").replace("old.txt")), []),
        (lambda: Path("old.txt").chmod(0o600), []),
        (lambda: Path("new.txt").write_text("n"), []),
        (lambda: Path("empty.txt").write_text("n"), []),
        (lambda: (Path("old.txt").rename("n"), Path("n").write_text("n")), ["n"]),
        (lambda: (appended("old.txt"), Path("old.txt").write_text("n")), ["old.txt"]),  # type: ignore[func-returns-value]
    ],
)
def test_only_what_is_overwritten_in_place_is_copied_and_once_for_all_sides(
    folder: Path, do: Any, made: list[str]
) -> None:
    Path("empty.txt").touch()
    before, copies = digest(folder), Copies()
    kept = KeptFiles(copy=copies)
    assert [side(kept, do) for _ in range(3)] == [bool(made), False, False]
    assert copies.made == made
    assert digest(folder) == before


def test_before_the_first_step_a_copy_is_no_part_of_what_is_measured(folder: Path) -> None:
    assert not side(KeptFiles(), lambda: Path("old.txt").write_text("new"), in_step=False)


def test_what_another_program_changed_between_two_sides_is_kept_anew(folder: Path) -> None:
    kept, copies = KeptFiles(), Copies()
    kept._copy_first = copies
    side(kept, lambda: Path("old.txt").write_text("new"))
    Path("old.txt").write_text("by another program")
    assert side(kept, lambda: Path("old.txt").write_text("new"))
    assert Path("old.txt").read_text() == "by another program"


def test_on_another_disk_what_is_deleted_is_copied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(*args: Any, **named: Any) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", elsewhere)
    before, kept = digest(folder), KeptFiles()
    for copied in (True, False):
        assert side(kept, lambda: Path("old.txt").unlink()) == copied
        assert digest(folder) == before


def test_a_file_beyond_the_budget_is_not_touched_and_named_with_the_figures(folder: Path) -> None:
    (folder / "best.pt").write_bytes(b"x" * 3_000_000)
    before, reached = digest(folder), []
    kept = KeptFiles(room=lambda where: 2_000_000)

    def do() -> None:
        Path("old.txt").write_text("new")
        try:
            Path("best.pt").write_bytes(b"new")
        except Exception:
            reached.append("an exception of the cell's own kind")

    kept.begin(lambda: True)
    with pytest.raises(RunEnded), WrittenFiles(kept):
        do()
    assert not reached
    assert "best.pt (3 MiB), and a trial may copy only 2 MiB more" in kept.refusal
    kept.put_back()
    assert digest(folder) == before


def test_a_trial_beyond_the_budget_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_files, "COPIES_BYTES", 2)
    before = digest(folder)
    cell = """
for i in range(9):
    optimizer.zero_grad(); model(torch.ones(2, 3)).sum().backward(); optimizer.step()
    try:
        open("old.txt", "w").write("new")
    except BaseException:
        pass
"""
    effect = gpu_doctor.case(cell, space()).trial({"threads": 1}, steps=3, seconds=5)
    assert effect.outcome == "refused"
    assert "old.txt (3 bytes)" in effect.reason or "old.txt (3 B)" in effect.reason, effect.reason
    assert effect.not_restored == ()
    assert digest(folder) == before


def test_a_whole_tree_that_is_renamed_has_its_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_files, "MOST_IN_A_FOLDER", 3)
    for number in range(5):
        (folder / "runs" / str(number)).touch()
    kept = KeptFiles()
    with pytest.raises(RunEnded), WrittenFiles(kept):
        Path("runs").rename("elsewhere")
    assert "more than 3 files" in kept.refusal
    assert (folder / "runs" / "4").exists()


def test_what_cannot_be_put_back_is_named_until_the_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptFiles()
    kept.begin(lambda: False)
    with WrittenFiles(kept):
        Path("old.txt").chmod(0o600)
    Path("old.txt").unlink()  # by something that nobody watches
    said = kept.put_back()
    assert len(said) == 1 and "old.txt could not be put back" in said[0]
    assert kept.put_back() == said


def test_the_copies_go_with_the_trial(folder: Path) -> None:
    kept = KeptFiles()
    side(kept, lambda: Path("old.txt").write_text("new"))
    aside = kept._aside
    assert aside is not None and list(aside.iterdir())
    del kept
    assert not aside.exists()


class Sides:
    """Runs that say whether a file was copied in a step."""

    def __init__(self, copied: list[bool], outcome: str = "budget-reached") -> None:
        self.copied, self.outcome = iter(copied), outcome
        self.ran: list[str] = []

    def __call__(self, settings: Any, role: str, steps: int, seconds: float) -> Result:
        self.ran.append(role)
        recording = replace(Loop(steps=20).recording(), outcome=self.outcome)
        return Result(recording, None, next(self.copied))


@pytest.mark.parametrize(
    ("copied", "outcome", "ran", "ends"),
    [
        ([False], "budget-reached", 1, "budget-reached"),
        ([True, False], "budget-reached", 2, "budget-reached"),
        ([True] * MOST_COPIED, "budget-reached", MOST_COPIED, "refused"),
        ([True], "failed", 1, "failed"),
    ],
)
def test_a_side_in_which_a_file_was_copied_is_run_again(copied: list[bool], outcome: str, ran: int, ends: str) -> None:
    sides, kept = Sides(copied, outcome), list[Recording]()
    rounds = Rounds(sides, Snapshot.take({}), lambda said: None, lambda: False)
    assert rounds.side({}, "baseline", 20, 5.0, kept) == (ends == "budget-reached")
    assert (len(sides.ran), [one.outcome for one in kept]) == (ran, [ends])
    assert (kept[0].reason == COPIED) == (ends == "refused")


def test_threads_that_overwrite_one_file_at_once_keep_it_once(tmp_path: Path) -> None:
    """Two copies of it would be made one after the other, and the second one of what the first thread wrote."""
    (tmp_path / "best.pt").write_text("the user's")
    path, made = str(tmp_path / "best.pt"), Copies()

    def copies(path: str, to: Path, size: int) -> None:
        made(path, to, size)
        if len(made.made) == 1:
            second.start()
            second.join(0.1)  # it waits for its turn; without turns it would have copied by now

    kept = KeptFiles(copy=copies)
    second = threading.Thread(target=kept.before, args=(path, CONTENT))
    kept.begin(lambda: True)
    kept.before(path, CONTENT)
    Path(path).write_text("a trial's 1")
    second.join()
    assert kept.put_back() == [] and Path(path).read_text() == "the user's" and made.made == ["best.pt"]
