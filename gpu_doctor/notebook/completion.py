"""Tab completion on the lines of the two magics: options, knobs with their values, words, and the names of rules.

IPython's hook for commands does not serve: beside it Jedi offers Python's names in the middle of a magic's line. A
matcher of its own silences the others (`custom_matchers` since IPython 8.6, `magic_arg_matchers` before). Where ours
has nothing to offer, such as for a path, the others are asked as ever.
"""

from __future__ import annotations

import re
from types import MethodType
from typing import Any, Final

from IPython.core import completer as ipython

_BEGUN: Final = re.compile(r"[^\s=]*$")
"""What is typed already of the word at the cursor: of `--set amp=b` it is `b`."""


_since_8_6: Final[Any] = getattr(ipython, "context_matcher", None)


def teach(shell: Any) -> None:
    """Lets a shell complete our lines."""
    matchers, ours = _place(shell.Completer)
    if ours not in matchers:
        matchers.append(ours)


def forget(shell: Any) -> None:
    """Takes that back."""
    matchers, ours = _place(shell.Completer)
    if ours in matchers:
        matchers.remove(ours)


def _place(completer: Any) -> tuple[list[Any], Any]:
    """Where our matcher stands among others, and our matcher."""
    if _since_8_6 is None:
        return completer.magic_arg_matchers, MethodType(_matched_before_8_6, completer)
    return completer.custom_matchers, _matched


def _matched_before_8_6(completer: Any, line: str) -> list[str]:
    return completed(completer.text_until_cursor)[1]


def _matched(context: Any) -> dict[str, Any]:
    begun, found = completed(context.text_until_cursor)
    shown = [ipython.SimpleCompletion(text=one, type="magic") for one in found]
    return {"completions": shown, "matched_fragment": begun, "suppress": bool(found), "ordered": True}


if _since_8_6 is not None:
    _matched = _since_8_6(identifier="gpudoctor")(_matched)


def completed(until: str) -> tuple[str, list[str]]:
    """What can stand at the cursor of a magic's line.

    Args:
        until: the line up to the cursor.

    Returns:
        What is typed already of the word at the cursor, and whole words that begin so. None on other lines.
    """
    if not until.lstrip().lstrip("%").startswith("gpudoctor"):
        return "", []
    begun = _BEGUN.search(until)
    typed = begun[0] if begun is not None else ""
    magic, *given = until[: len(until) - len(typed)].split() or [""]
    offered = {"%%gpudoctor": _of_a_cell_line, "%gpudoctor": _of_a_line, "gpudoctor": _of_a_line}.get(magic)
    return typed, [one for one in offered(given) if one.startswith(typed)] if offered is not None else []


def _of_a_line(given: list[str]) -> list[str]:
    from gpu_doctor.diagnosis import every_cause
    from gpu_doctor.notebook.options import WORDS

    if not given:
        return list(WORDS)
    return [cause.name for cause in every_cause()] if given == ["explain"] else []


def _of_a_cell_line(given: list[str]) -> list[str]:
    from gpu_doctor.notebook.options import EXAMPLES
    from gpu_doctor.trials import knobs

    before, last = given[-2] if len(given) > 1 else "", given[-1] if given else ""
    if last == "--set":
        return [f"{name}=" for name in knobs.KNOBS]
    if last.endswith("="):
        return _values(last[:-1]) if before == "--set" else []
    if last in EXAMPLES:
        return []
    return [one for one in (*EXAMPLES, "--no-view") if one == "--set" or one not in given]


def _values(name: str) -> list[str]:
    """The values of a knob that can be typed; only those that the last cell's loop can honour, where there is one."""
    from gpu_doctor.recording import Setup
    from gpu_doctor.trials import knobs, last_case

    knob, case = knobs.KNOBS.get(name), last_case()
    if knob is None:
        return []
    setup = case.found if case is not None else None
    offered = [one for one in knob.choices(setup or Setup()) if setup is None or not one.refusal]
    return [text for text in (str(one.value) for one in offered) if _is_taken(knob, text)]


def _is_taken(knob: Any, text: str) -> bool:
    try:
        knob.parsed(text)
    except ValueError:
        return False
    return True
