"""Works on a case's code as text: runs it, gives lines to paste for settings, writes a cure into its cells."""

from __future__ import annotations

import inspect
import linecache
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpu_doctor.cell import Fix
from gpu_doctor.recording import Settings, Setup
from gpu_doctor.trials import fix, knobs
from gpu_doctor.trials.written import Written, written


def plain_execute(code: str | Callable[[], Any], name: str) -> Callable[..., Any]:
    """Returns a function that runs the code in a namespace."""
    if callable(code):
        return lambda namespace: code()
    file = f"<gpu_doctor {name}>"
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    compiled = compile(code, file, "exec")

    def execute(namespace: dict[str, Any]) -> None:
        exec(compiled, namespace)

    return execute


def lines_to_paste(settings: Settings, found: Setup | None) -> str:
    """Returns the lines to paste for some settings of a loop with the setup `found`, one block a knob."""
    lines = [knobs.known(name).code(value, found or Setup()) for name, value in settings.items()]
    return "\n".join(line for line in lines if line)


def fix_of(
    code: str | Callable[[], Any],
    source: str,
    namespace: Mapping[str, Any],
    setup: Setup,
    settings: Settings,
    history: Sequence[str] | None,
    until: int | None = None,
) -> Fix:
    """Returns the change that writes settings into the user's cells; it runs and changes nothing.

    Args:
        code: the cell's text or the callable.
        source: text of the code; empty for a callable.
        namespace: namespace in which it runs.
        setup: setup of its loop.
        settings: knob values, such as a plan's.
        history: texts of the cells that ran before, oldest first; None = those that IPython remembers.
        until: number of IPython's remembered cells to use (see `entered`).

    Returns:
        A diff, the changed cells whole, and notes; with the lines to paste for what could not be placed.

    Raises:
        Refused: if a name is no knob.
    """
    for name in settings:
        knobs.known(name)
    source = source_of(code) if callable(code) else source
    cells = _before(source, namespace, history, until)
    return fix.fix(
        [*(text for text, _ in cells), source],
        settings,
        setup,
        lambda name: lines_to_paste({name: settings[name]}, setup),
        namespace,
        [label for _, label in cells],
    )


def written_into(
    source: str, namespace: Mapping[str, Any], setup: Setup, settings: Settings, until: int | None = None
) -> Written:
    """Writes as many settings into a cell's text as a run can use; see `fix_of` and `Written`."""
    cells = _before(source, namespace, None, until)
    draft = fix.drafted([*(text for text, _ in cells), source], setup, namespace, [label for _, label in cells])
    return written(draft, source, settings)


def _before(
    source: str, namespace: Mapping[str, Any], history: Sequence[str] | None, until: int | None
) -> list[tuple[str, str]]:
    """Returns texts and labels of the cells that ran before one."""
    earlier = cells_entered(namespace, until) if history is None else [(text, "") for text in history]
    # The cell itself is in the history too, as it is now and as it was before it was edited.
    return [(text, label) for text, label in earlier if text.strip() != source.strip()]


def source_of(function: Callable[..., Any]) -> str:
    """Returns the source text of a function behind its decorators; empty if there is none."""
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError, ValueError):
        return ""


def text_of(code: str | Callable[[], Any], namespace: Mapping[str, Any]) -> str:
    """Returns a text that runs the code in its namespace; empty for a callable that no text can define anew.

    A function is defined and called, where its name leads to it and it keeps nothing of a function around it.
    """
    if isinstance(code, str):
        return code
    alone = inspect.isfunction(code) and not code.__closure__ and namespace.get(code.__name__) is code
    text = source_of(code) if alone else ""
    return f"{text.rstrip()}\n\n{code.__name__}()\n" if text and inspect.isfunction(code) else ""


def entered(namespace: Mapping[str, Any]) -> list[str]:
    """Returns the cells that IPython remembers, the running one included; empty outside of IPython."""
    found = namespace.get("In")
    return found if isinstance(found, list) else []


def cells_entered(namespace: Mapping[str, Any], until: int | None = None) -> list[tuple[str, str]]:
    """Returns the cells that ran before, as typed, oldest first, each with its label; empty outside of IPython.

    Args:
        namespace: namespace of the notebook.
        until: only the first so many of `entered`.
    """
    found = []
    for number, text in enumerate(entered(namespace)[1:until], 1):
        raw = namespace.get(f"_i{number}", text)  # `In` holds what IPython has made of the cell
        if isinstance(raw, str) and raw.strip():
            found.append((raw, f"cell [{number}]"))
    return found
