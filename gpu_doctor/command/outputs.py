"""Writes results: text to a stream, JSON and an HTML page to files."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from gpu_doctor.report import Reported

STDOUT: Final = "-"
"""File name that stands for the standard output."""
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>:root {{ color-scheme: light dark }} body {{ font: 14px/1.45 system-ui, sans-serif; margin: 24px }}</style>
{body}
</html>
"""


def check_places(*places: str | None) -> None:
    """Checks that a file can be written at each place. It avoids numpy, which the program should import itself.

    Args:
        places: paths of files; None and `-` are skipped.

    Raises:
        OSError: A file cannot be written; the text is one sentence that says why.
    """
    for place in places:
        if place in (None, STDOUT):
            continue
        target = Path(place)
        folder = target.resolve().parent
        if target.is_dir():
            raise IsADirectoryError(f"{place} is a folder: name a file in it.")
        if not folder.is_dir():
            raise NotADirectoryError(f"There is no folder {folder}: create it, or name another place.")
        if not os.access(folder, os.W_OK):
            raise PermissionError(f"Nothing can be written into {folder}: name another place.")


def make_folder(place: str) -> None:
    """Makes a folder for the ranks of a job, all of which may do so at the same time.

    Raises:
        OSError: The folder cannot be made or written to; the text is one sentence that says why.
    """
    try:
        Path(place).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"The folder {place} cannot be made ({error.strerror}): name another place.") from None
    if not os.access(place, os.W_OK):
        raise PermissionError(f"Nothing can be written into {place}: name another place.")


def say(text: str, stream: TextIO) -> None:
    """Writes a line of text; characters that the stream's encoding lacks become question marks.

    Nothing is written if the program has closed the stream.
    """
    if stream.closed:
        return
    try:
        stream.write(f"{text}\n")
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(f"{text}\n".encode(encoding, "replace").decode(encoding))
    stream.flush()


def emphasized(text: str, stream: TextIO) -> str:
    """Returns the text of a report, with its verdict in bold if the stream is a terminal that supports it."""
    coloured = (
        not stream.closed and stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )
    head, gap, rest = text.partition("\n\n")
    if not coloured or not rest:
        return text
    verdict, mark, todo = rest.partition("\n  Try: ")
    if not mark:
        verdict, mark, todo = rest.partition("\n\n")
    return f"{head}{gap}{_BOLD}{verdict}{_PLAIN}{mark}{todo}"


def write_report(shown: Reported, json_to: str | None, html_to: str | None) -> None:
    """Writes the diagnosis as JSON and the report as a page.

    Args:
        shown: report to write.
        json_to: path of the JSON file; None for none.
        html_to: path of the page; None for none.

    Raises:
        OSError: A file cannot be written.
    """
    from gpu_doctor import report

    if json_to is not None:
        write_json(shown.diagnosis.to_dict(), json_to)
    if html_to is not None:
        write_page(shown.run.name if shown.run is not None else "", report.html(shown), html_to)


def write_page(name: str, body: str, place: str) -> None:
    """Writes HTML as a self-contained page.

    Args:
        name: first part of the page's title; may be empty.
        body: HTML of the page's body.
        place: path of the file.

    Raises:
        OSError: The file cannot be written.
    """
    title = escape(f"{name} - gpu_doctor" if name else "gpu_doctor")
    Path(place).write_text(_PAGE.format(title=title, body=body), encoding="utf-8")


def write_json(data: Mapping[str, Any], place: str) -> None:
    """Writes plain data as JSON to a file or to the standard output; NaN and infinite numbers become null.

    Raises:
        OSError: The file cannot be written.
    """
    text = json.dumps(_finite(data), indent=2, allow_nan=False)
    if place == STDOUT:
        say(text, sys.stdout)
    else:
        Path(place).write_text(f"{text}\n", encoding="utf-8")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
