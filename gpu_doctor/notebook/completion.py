"""Tab completion on the lines of the two magics: options, knobs with their values, words, and the names of rules.

IPython's hook for commands does not suffice, because Jedi also offers Python names in the middle of a magic's line. A
custom matcher suppresses the others (`custom_matchers` since IPython 8.6, `magic_arg_matchers` before). If it has
nothing to offer, such as for a path, the other matchers answer as usual.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, Final

from IPython.core import completer as ipython

_MAGIC: Final = "gpudoctor"
_LINE: Final = re.compile(rf"\s*(%{{0,2}}){_MAGIC}\s(.*?)([^\s=]*)")
"""Groups: the percent signs, the text after the magic's name, and the typed part of the word at the cursor."""
_context_matcher: Final[Any] = getattr(ipython, "context_matcher", None)


def teach(shell: Any) -> None:
    """Adds our completion to a shell."""

    def since_8_6(context: Any) -> dict[str, Any]:
        """Returns the completions in the form of IPython 8.6 and later."""
        typed, found = completed(shell, context.text_until_cursor)
        shown = [ipython.SimpleCompletion(text=word, type="magic") for word in found]
        return {"completions": shown, "matched_fragment": typed, "suppress": bool(found), "ordered": True}

    def before_8_6(line: str) -> list[str]:
        """Returns the completions in the form before IPython 8.6."""
        return completed(shell, shell.Completer.text_until_cursor)[1]

    ours: Any = before_8_6 if _context_matcher is None else _context_matcher(identifier=_MAGIC)(since_8_6)
    ours.matcher_identifier = _MAGIC
    forget(shell)
    _matchers(shell).append(ours)


def forget(shell: Any) -> None:
    """Removes our completion from a shell."""
    matchers = _matchers(shell)
    matchers[:] = [matcher for matcher in matchers if getattr(matcher, "matcher_identifier", "") != _MAGIC]


def _matchers(shell: Any) -> list[Any]:
    completer = shell.Completer
    found: list[Any] = completer.magic_arg_matchers if _context_matcher is None else completer.custom_matchers
    return found


def completed(shell: Any, until: str) -> tuple[str, list[str]]:
    """Completes the word at the cursor of a magic's line, according to the magic's own parser.

    Args:
        shell: shell in which the magics are registered.
        until: text of the line up to the cursor.

    Returns:
        The typed part of the word at the cursor, and the words that begin with it; both empty on other lines.
    """
    line = _LINE.fullmatch(until)
    if line is None:
        return "", []
    signs, before, typed = line.groups()
    kind, offered = ("cell", _of_a_cell_line) if signs == "%%" else ("line", _of_a_line)
    parser = shell.magics_manager.magics[kind][_MAGIC].parser
    return typed, [word for word in offered(parser, before.split()) if word.startswith(typed)]


def _of_a_line(parser: Any, given: list[str]) -> list[str]:
    from gpu_doctor.diagnosis import every_cause

    if not given:
        return list(parser._actions[0].choices)
    return [cause.name for cause in every_cause()] if given == ["explain"] else []


def _of_a_cell_line(parser: Any, given: list[str]) -> list[str]:
    from gpu_doctor.trials import knobs

    last = given[-1] if given else ""
    if last == "--set":
        return [f"{name}=" for name in knobs.KNOBS]
    if last.endswith("="):
        return _values(last[:-1])
    options = parser._option_string_actions
    takes_a_value = last in options and options[last].nargs is None
    return [] if takes_a_value else list(options)


def _values(name: str) -> list[str]:
    """Returns the values of a knob that can be typed; if there is a last cell, only those that its loop supports."""
    from gpu_doctor.recording import Setup
    from gpu_doctor.trials import knobs, last_case

    knob, case, values = knobs.KNOBS.get(name), last_case(), []
    if knob is None:
        return []
    setup = case.found if case is not None else None
    for choice in knob.choices(setup or Setup()):
        if setup is None or not choice.refusal:
            with contextlib.suppress(ValueError):  # a value that is only shown, such as the batch size as written
                knob.parsed(str(choice.value))
                values.append(str(choice.value))
    return values
