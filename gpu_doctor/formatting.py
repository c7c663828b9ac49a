"""Formats numbers and names for people: the only place that formats figures with their units.

None and NaN mean "not measured" and are written so, never as zero. Thousands are grouped by a narrow no-break space.
Text of unknown origin (dataset names, cell text, loaded files) passes through `clean` before it is shown.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from typing import Any, Final

NOT_MEASURED: Final = "not measured"
DASH: Final = "-"
"""Text of a table cell whose value was not measured."""
NARROW_SPACE: Final = "\u202f"

DECIMALS: Final = ((99.95, 0), (9.995, 1), (0.9995, 2), (0.001, 3))
"""Smallest size -> decimals, for three significant digits. The legends of the live plots use the same table."""
PERCENT_DECIMALS: Final = ((0.95, 0), (0.05, 1))

# Control characters except tab and newline, lone surrogates, characters that set the text direction, non-characters.
_UNSHOWABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]"
)


_FACTOR: Final = re.compile(f"([\\d.{NARROW_SPACE}]+)x")


def clean(text: object, most: int = 400) -> str:
    """Removes characters from text of unknown origin that a terminal, HTML or SVG cannot show.

    HTML and SVG still need the text escaped.

    Args:
        text: any object; its `str` is used.
        most: largest number of characters; longer text is cut and ends in an ellipsis.
    """
    try:
        raw = str(text)
    except Exception:  # a hostile __str__ must not take the report down
        raw = f"<{type(text).__name__}>"
    shown = _UNSHOWABLE.sub("", raw[: most + 1].replace("\r\n", "\n"))
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def pretty(shown: object, printer: Any, cycle: bool) -> None:
    """Makes IPython print the `str` of an object instead of its `repr`; assign it to `_repr_pretty_` of a class."""
    for number, line in enumerate(str(shown).splitlines()):
        if number:
            printer.break_()
        printer.text(line)


def measured(value: float | None) -> bool:
    """Returns True if a number was measured: it is neither None nor NaN."""
    return value is not None and not math.isnan(value)


def grouped(value: float, decimals: int = 0) -> str:
    """Formats a number with grouped thousands: `1 840`, `12 345.6`."""
    return f"{value:,.{decimals}f}".replace(",", NARROW_SPACE)


def number(value: float | None, missing: str = NOT_MEASURED) -> str:
    """Formats a number with three significant digits, more from a thousand on: `1 840`, `64.2`, `6.42`, `0.642`."""
    if value is None or math.isnan(value):
        return missing
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    if 0 < abs(value) < DECIMALS[-1][0]:
        return f"{value:.1e}"
    return grouped(value, _decimals(value, DECIMALS))


def _decimals(value: float, table: tuple[tuple[float, int], ...]) -> int:
    return next((digits for least, digits in table if abs(value) >= least), 0)


def rate(value: float | None, unit: str = "samples/s", missing: str = NOT_MEASURED) -> str:
    """Formats a rate with its unit: `1 840 samples/s`."""
    return missing if not measured(value) else f"{number(value)} {unit}"


def count(value: float | None, noun: str, missing: str = NOT_MEASURED) -> str:
    """Formats a number with its noun in singular or plural: `1 step`, `1 204 steps`."""
    if value is None or math.isnan(value):
        return missing
    return f"{grouped(value)} {noun}" + ("" if round(value) == 1 else "s")


def cores(value: float | None, missing: str = NOT_MEASURED) -> str:
    """Formats a number of cores: `1 core`, `4 cores`; a container may have parts of a core: `0.5 cores`."""
    if value is None or math.isnan(value):
        return missing
    return count(value, "core") if round(value, 1) == round(value) else f"{value:.1f} cores"


def countdown(value: float) -> str:
    """Formats a remaining time in whole seconds: `23 s`, `2 min 5 s`."""
    return f"{round(value)} s" if value < 59.5 else seconds(float(round(value)))


def raised(error: BaseException) -> str:
    """Formats an exception like the last line of its traceback: `ValueError: seven`, `KeyboardInterrupt`."""
    text = clean(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def percent(value: float | None, missing: str = NOT_MEASURED) -> str:
    """Formats a percentage from 0 to 100: `71 %`, `0.4 %`, `under 0.1 %`."""
    if value is None or math.isnan(value):
        return missing
    if 0 < abs(value) < PERCENT_DECIMALS[-1][0]:
        return "under 0.1 %"
    return f"{grouped(value, _decimals(value, PERCENT_DECIMALS))} %"


def share(value: float | None, missing: str = NOT_MEASURED) -> str:
    """Formats a share from 0 to 1 as a percentage: `71 %`, `0.4 %`."""
    return missing if value is None else percent(100.0 * value, missing)


def dollars(value: float) -> str:
    """Formats an amount of money in dollars: `$1.78`, `$0.042`."""
    return f"${value:,.2f}" if value >= 0.1 else f"${value:.2g}"


def seconds(value: float | None, missing: str = NOT_MEASURED) -> str:
    """Formats a duration in a suitable unit: `820 µs`, `41.3 ms`, `1.24 s`, `2 min 5 s`, `1 h 3 min`."""
    if value is None or math.isnan(value):
        return missing
    size = abs(value)
    if size == 0:
        return "0 s"
    if size < 0.9995e-3:
        return f"{number(value * 1e6)} µs"
    if size < 0.9995:
        return f"{number(value * 1e3)} ms"
    if size < 59.95:
        return f"{number(value)} s"
    whole = round(size)
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{grouped(whole // 3600)} h" + (f" {whole % 3600 // 60} min" if whole % 3600 // 60 else "")


def clock(value: float | None, missing: str = NOT_MEASURED) -> str:
    """Formats a duration like a clock: `00:12`, `1:02:03`."""
    if value is None or not math.isfinite(value):
        return missing
    whole = int(max(value, 0.0))
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


def size(value: float | None, missing: str = NOT_MEASURED) -> str:
    """Formats a number of bytes in binary units: `3.1 GiB`, `412 MiB`, `64 KiB`, `12 B`."""
    if value is None or math.isnan(value):
        return missing
    amount, unit = float(value), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(amount) < 1023.5:
            break
        amount, unit = amount / 1024.0, larger
    decimals = 1 if unit in ("GiB", "TiB") and abs(amount) < 99.95 else 0
    return f"{grouped(amount, decimals)} {unit}"


def bandwidth(bytes_per_s: float | None, missing: str = NOT_MEASURED) -> str:
    """Formats bytes per second in decimal units, as vendors of links and disks do: `25 GB/s`, `412 MB/s`, `64 kB/s`."""
    if bytes_per_s is None or math.isnan(bytes_per_s):
        return missing
    scale, unit = next(((s, u) for s, u in ((1e9, "GB/s"), (1e6, "MB/s")) if bytes_per_s >= 0.9995 * s), (1e3, "kB/s"))
    return f"{number(bytes_per_s / scale)} {unit}"


def average(value: float | None, missing: str = NOT_MEASURED) -> str:
    """Formats a mean of counts: `4`, `2.5`, `0.07`."""
    if value is None or math.isnan(value):
        return missing
    if abs(value) < 0.95:
        return f"{value:.2g}"
    return grouped(value, 0 if round(value, 1) == round(value) or abs(value) >= 99.95 else 1)


def factor(value: float | None, missing: str = NOT_MEASURED) -> str:
    """Formats a measured speed-up: `2.87x`, `12.4x`, `124x`."""
    if value is None or math.isnan(value):
        return missing
    return "infinite" if math.isinf(value) else f"{grouped(value, 2 if value < 9.995 else 1 if value < 99.95 else 0)}x"


def forecast(value: float | None, missing: str = NOT_MEASURED) -> str:
    """Formats a predicted speed-up with fewer digits than a measured one, as it is less certain: `2.9x`, `12x`."""
    if value is None or math.isnan(value):
        return missing
    return f"{grouped(value, 2 if value < 1.95 else 1 if value < 9.95 else 0)}x"


def interval(low: float | None, high: float | None, value: float | None = None) -> str:
    """Formats the interval of a speed-up, with more decimals the narrower it is: `2.7-3.0`, `1.11-1.19`.

    A lower end close to 1 has two decimals, because its distance from 1 matters: `1.07-4.1`.

    Args:
        low: lower end.
        high: upper end. The result is '' if an end is None or NaN.
        value: measured speed-up shown with the interval. If `figure` shows an end instead, both write it alike.
    """
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return ""
    decimals = 2 if high < 2 or high - low < 0.2 else 1 if high < 100 else 0
    near_end, low_decimals = _near_end(value, low, high), max(decimals, 2 if 0.8 < low < 1.2 else 0)
    first = factor(low).removesuffix("x") if near_end == low else grouped(low, low_decimals)
    return f"{first}-{factor(high).removesuffix('x') if near_end == high else grouped(high, decimals)}"


def speedup(value: float | None, low: float | None = None, high: float | None = None, missing: str = DASH) -> str:
    """Formats a measured speed-up with its interval: `2.87x (2.7-3.0)`.

    If the interval is wide, the end nearer to 1 replaces the value: `at least 1.41x (1.41-2.9)`, `at most 0.80x
    (0.41-0.80)`.
    """
    if not measured(value):
        return missing
    ends = interval(low, high, value)
    return f"{figure(value, low, high)} ({ends})" if ends else factor(value)


def figure(value: float | None, low: float | None, high: float | None) -> str:
    """Formats a speed-up without its interval: `2.87x`; `at least 1.41x` or `at most 0.80x` if that is wide."""
    end = _near_end(value, low, high)
    if end is None:
        return factor(value)
    return f"at {'least' if end > 1.0 else 'most'} {factor(end)}"


def _near_end(value: float | None, low: float | None, high: float | None) -> float | None:
    """Returns the end nearer to 1 of a wide interval that excludes 1, or None for any other interval."""
    if not is_wide(value, low, high):
        return None
    if low is not None and low > 1.0:
        return low
    return high if high is not None and high < 1.0 else None


def over(words: str) -> str:
    """Rewrites a speed-up relative to other settings than the code's own: `x1.24 (1.18-1.31)`."""
    return _FACTOR.sub(r"x\1", words)


WIDE: Final = 1.2
"""Largest ratio of an end of an interval to its middle; beyond it the interval is wide, and the middle says little."""


def is_wide(value: float | None, low: float | None, high: float | None) -> bool:
    """Returns True if an interval is unknown or too wide to report its middle as the result."""
    return value is not None and (low is None or high is None or high > WIDE * value or WIDE * low < value)


def loss(value: float | None, missing: str = DASH) -> str:
    """Formats a loss with four digits: `2.301`, `0.0312`, `NaN`."""
    if value is None:
        return missing
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinite"
    return grouped(value, 1) if abs(value) >= 1000 else f"{value:#.4g}"


def article(name: str) -> str:
    """Puts the indefinite article before a name, as it is spoken: `an NVIDIA H200`, `an RTX 4090`, `a Tesla T4`."""
    spelt = name[:1].isupper() and not name[1:2].islower()  # spoken letter by letter; NVIDIA begins with "en", too
    return f"{'an' if name[:1].upper() in ('AEFHILMNORSX' if spelt else 'AEIO') else 'a'} {name}"


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, or the name of its class if the message is empty."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def did_you_mean(word: str, names: Iterable[str], most: int = 1, cutoff: float = 0.6) -> str:
    """Returns ` Did you mean this or that?` for an unknown name, to append to a sentence; '' if no name is similar.

    Args:
        word: name that the user wrote.
        names: existing names.
        most: largest number of suggestions, the most similar first.
        cutoff: smallest similarity of a suggestion, 0 to 1, as in `difflib.get_close_matches`.
    """
    near = difflib.get_close_matches(word, list(names), n=most, cutoff=cutoff)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def sentence(words: str) -> str:
    """Turns a clause into a sentence: adds the capital letter and the full stop."""
    return words and words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")
