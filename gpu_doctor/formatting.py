"""Numbers and names as a person reads them: the one place that formats figures with their units.

None and NaN mean "not measured" and are said so, never shown as zero. Thousands are grouped by a narrow no-break
space. Texts of unknown origin (dataset names, cell text, loaded files) pass through `clean` before they are shown.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from typing import Any, Final

NOT_MEASURED: Final = "not measured"
DASH: Final = "-"
"""What a table's cell shows for what was not measured."""
NARROW_SPACE: Final = "\u202f"

DECIMALS: Final = ((99.95, 0), (9.995, 1), (0.9995, 2), (0.001, 3))
"""Three significant digits: from which size on a number has how many decimals. The live plots' legends have it too."""
PERCENT_DECIMALS: Final = ((0.95, 0), (0.05, 1))

# Control characters (but tab and newline), lone surrogates, characters that turn the reading direction, non-characters.
_UNSHOWABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]"
)


_FACTOR: Final = re.compile(f"([\\d.{NARROW_SPACE}]+)x")


def clean(text: object, most: int = 400) -> str:
    """Text of unknown origin made fit for a terminal, HTML and SVG (it still has to be escaped for the last two).

    Args:
        text: anything; its `str`.
        most: characters at most; what is longer ends in an ellipsis.
    """
    try:
        raw = str(text)
    except Exception:  # a hostile __str__ must not take the report down
        raw = f"<{type(text).__name__}>"
    shown = _UNSHOWABLE.sub("", raw[: most + 1].replace("\r\n", "\n"))
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def pretty(shown: object, printer: Any, cycle: bool) -> None:
    """As `_repr_pretty_` of a class: IPython prints what `str` says; `repr` is for programs."""
    for number, line in enumerate(str(shown).splitlines()):
        if number:
            printer.break_()
        printer.text(line)


def measured(value: float | None) -> bool:
    """True for a number that was measured: neither None nor NaN."""
    return value is not None and not math.isnan(value)


def grouped(value: float, decimals: int = 0) -> str:
    """A number with its thousands grouped: `1 840`, `12 345.6`."""
    return f"{value:,.{decimals}f}".replace(",", NARROW_SPACE)


def number(value: float | None, missing: str = NOT_MEASURED) -> str:
    """Three significant digits, more from a thousand on: `1 840`, `64.2`, `6.42`, `0.642`."""
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
    """`1 840 samples/s`."""
    return missing if not measured(value) else f"{number(value)} {unit}"


def count(value: float | None, noun: str, missing: str = NOT_MEASURED) -> str:
    """`1 step`, `1 204 steps`."""
    if value is None or math.isnan(value):
        return missing
    return f"{grouped(value)} {noun}" + ("" if round(value) == 1 else "s")


def cores(value: float | None, missing: str = NOT_MEASURED) -> str:
    """`1 core`, `4 cores`; a container may be given parts of one: `0.5 cores`, `2.5 cores`."""
    if value is None or math.isnan(value):
        return missing
    return count(value, "core") if round(value, 1) == round(value) else f"{value:.1f} cores"


def countdown(value: float) -> str:
    """Time that is left, in whole seconds: `23 s`, `2 min 5 s`."""
    return f"{round(value)} s" if value < 59.5 else seconds(float(round(value)))


def raised(error: BaseException) -> str:
    """An exception as its traceback's last line has it: `ValueError: seven`, `KeyboardInterrupt`."""
    text = clean(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def percent(value: float | None, missing: str = NOT_MEASURED) -> str:
    """A reading of 0..100 as `71 %`, `0.4 %`, `under 0.1 %`."""
    if value is None or math.isnan(value):
        return missing
    if 0 < abs(value) < PERCENT_DECIMALS[-1][0]:
        return "under 0.1 %"
    return f"{grouped(value, _decimals(value, PERCENT_DECIMALS))} %"


def share(value: float | None, missing: str = NOT_MEASURED) -> str:
    """A share of 0..1 as `71 %`, `0.4 %`."""
    return missing if value is None else percent(100.0 * value, missing)


def dollars(value: float) -> str:
    """An amount of money: `$1.78`, `$0.042`."""
    return f"${value:,.2f}" if value >= 0.1 else f"${value:.2g}"


def seconds(value: float | None, missing: str = NOT_MEASURED) -> str:
    """How long something takes, in the unit that suits it: `820 µs`, `41.3 ms`, `1.24 s`, `2 min 5 s`, `1 h 3 min`."""
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
    """A duration as a clock shows it: `00:12`, `1:02:03`."""
    if value is None or not math.isfinite(value):
        return missing
    whole = int(max(value, 0.0))
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


def size(value: float | None, missing: str = NOT_MEASURED) -> str:
    """Bytes in binary units: `3.1 GiB`, `412 MiB`, `64 KiB`, `12 B`."""
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
    """Bytes a second in decimal units, as links and disks are sold: `25 GB/s`, `412 MB/s`, `64 kB/s`."""
    if bytes_per_s is None or math.isnan(bytes_per_s):
        return missing
    scale, unit = next(((s, u) for s, u in ((1e9, "GB/s"), (1e6, "MB/s")) if bytes_per_s >= 0.9995 * s), (1e3, "kB/s"))
    return f"{number(bytes_per_s / scale)} {unit}"


def average(value: float | None, missing: str = NOT_MEASURED) -> str:
    """A mean of counts: `4`, `2.5`, `0.07`."""
    if value is None or math.isnan(value):
        return missing
    if abs(value) < 0.95:
        return f"{value:.2g}"
    return grouped(value, 0 if round(value, 1) == round(value) or abs(value) >= 99.95 else 1)


def factor(value: float | None, missing: str = NOT_MEASURED) -> str:
    """A measured speed-up: `2.87x`, `12.4x`, `124x`."""
    if value is None or math.isnan(value):
        return missing
    return "infinite" if math.isinf(value) else f"{grouped(value, 2 if value < 9.995 else 1 if value < 99.95 else 0)}x"


def forecast(value: float | None, missing: str = NOT_MEASURED) -> str:
    """A predicted speed-up, which is known less well than a measured one: `2.9x`, `1.15x`, `12x`."""
    if value is None or math.isnan(value):
        return missing
    return f"{grouped(value, 2 if value < 1.95 else 1 if value < 9.95 else 0)}x"


def interval(low: float | None, high: float | None, value: float | None = None) -> str:
    """The ends of an interval of a speed-up, as finely as it is wide: `2.7-3.0`, `1.11-1.19`.

    A lower end close to 1 is told more finely: how far from 1 it lies is what counts. `1.07-4.1`.

    Args:
        low: its lower end.
        high: its upper end; where one of them is None or NaN, nothing is said.
        value: the measured speed-up that stands beside it; an end that `figure` tells for it is told alike in both.
    """
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return ""
    decimals = 2 if high < 2 or high - low < 0.2 else 1 if high < 100 else 0
    told, nearer = _told_end(value, low, high), max(decimals, 2 if 0.8 < low < 1.2 else 0)
    first = factor(low).removesuffix("x") if told == low else grouped(low, nearer)
    return f"{first}-{factor(high).removesuffix('x') if told == high else grouped(high, decimals)}"


def speedup(value: float | None, low: float | None = None, high: float | None = None, missing: str = DASH) -> str:
    """A measured speed-up with its interval: `2.87x (2.7-3.0)`; where that is too wide for a figure, its nearer end.

    `at least 1.41x (1.41-2.9)`, `at most 0.80x (0.41-0.80)`.
    """
    if not measured(value):
        return missing
    ends = interval(low, high, value)
    return f"{figure(value, low, high)} ({ends})" if ends else factor(value)


def figure(value: float | None, low: float | None, high: float | None) -> str:
    """A measured speed-up without its interval: `2.87x`; `at least 1.41x` or `at most 0.80x` where that is too wide."""
    end = _told_end(value, low, high)
    if end is None:
        return factor(value)
    return f"at {'least' if end > 1.0 else 'most'} {factor(end)}"


def _told_end(value: float | None, low: float | None, high: float | None) -> float | None:
    """The end nearer to 1 of an interval beside 1 that is too wide for its middle; None where the middle is told."""
    if not is_wide(value, low, high):
        return None
    if low is not None and low > 1.0:
        return low
    return high if high is not None and high < 1.0 else None


def over(words: str) -> str:
    """A speed-up over what is faster already: `x1.24 (1.18-1.31)` for `1.24x (1.18-1.31)`."""
    return _FACTOR.sub(r"x\1", words)


WIDE: Final = 1.2
"""An interval that reaches further either way, as a factor, is too wide for a figure to be told by itself."""


def is_wide(value: float | None, low: float | None, high: float | None) -> bool:
    """Whether an interval is too wide for its middle to be told as the result."""
    return value is not None and (low is None or high is None or high > WIDE * value or WIDE * low < value)


def loss(value: float | None, missing: str = DASH) -> str:
    """A loss with four digits: `2.301`, `0.0312`, `NaN`."""
    if value is None:
        return missing
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinite"
    return grouped(value, 1) if abs(value) >= 1000 else f"{value:#.4g}"


def article(name: str) -> str:
    """A name with its article, as it is spoken: `an NVIDIA H200`, `an RTX 4090`, `a Tesla T4`."""
    spelt = name[:1].isupper() and not name[1:2].islower()  # letter by letter; en-vidia begins alike
    return f"{'an' if name[:1].upper() in ('AEFHILMNORSX' if spelt else 'AEIO') else 'a'} {name}"


def first_line(error: BaseException) -> str:
    """The first line of what an error says; its kind where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def did_you_mean(word: str, names: Iterable[str], most: int = 1, cutoff: float = 0.6) -> str:
    """` Did you mean this or that?`, after a sentence that says that there is no such name; empty where none is near.

    Args:
        word: that was written.
        names: that there are.
        most: so many are offered, the nearest first.
        cutoff: how near they are at least, 0..1, as `difflib.get_close_matches` has it.
    """
    near = difflib.get_close_matches(word, list(names), n=most, cutoff=cutoff)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def sentence(words: str) -> str:
    """A clause with its capital and its full stop."""
    return words and words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")
