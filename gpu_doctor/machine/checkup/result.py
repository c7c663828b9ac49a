"""The result of a check-up: its lines as text for a terminal, as HTML and as plain data."""

from __future__ import annotations

import html
import textwrap
from dataclasses import asdict, dataclass
from typing import Any, Final

from gpu_doctor import formatting

OK: Final = "ok"
LOOK: Final = "worth a look"
WRONG: Final = "wrong"
UNKNOWN: Final = "not measured"
STATUSES: Final = (WRONG, LOOK, OK, UNKNOWN)

_WIDTH: Final = 110
_MARKS: Final = {OK: "✓", LOOK: "!", WRONG: "✗", UNKNOWN: "–"}
# Okabe-Ito colours, partly transparent, so that the text has the page's own colour in light and dark themes.
_TINTS: Final = {OK: "0,158,115", LOOK: "230,159,0", WRONG: "213,94,0", UNKNOWN: "128,128,128"}
_CELL: Final = "padding:4px 10px;text-align:left;vertical-align:top;border-bottom:1px solid rgba(128,128,128,.25);"


@dataclass(frozen=True)
class CheckLine:
    """The result for one topic of a check-up."""

    topic: str
    status: str
    """`ok`, `worth a look`, `wrong` or `not measured`."""
    found: str
    """The finding with its figures, in one or two sentences."""
    to_do: str = ""
    """Advice; empty if there is nothing to do."""


@dataclass(frozen=True)
class Checkup:
    """The result of `gpu_doctor.check()`."""

    lines: tuple[CheckLine, ...]

    @property
    def summary(self) -> str:
        """Number of lines with each status, the worst first: `1 wrong, 2 worth a look, 9 ok`."""
        counts = {status: sum(line.status == status for line in self.lines) for status in STATUSES}
        return ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "nothing was checked"

    def to_dict(self) -> dict[str, Any]:
        """Returns the summary and the lines as plain data."""
        return {"summary": self.summary, "lines": [asdict(line) for line in self.lines]}

    def __str__(self) -> str:
        topic_width = max((len(line.topic) for line in self.lines), default=0)
        rows = [f"Check-up of this machine: {self.summary}"]
        for line in self.lines:
            lead = f"  {_MARKS[line.status]} {line.status:<12}  {line.topic:<{topic_width}}  "
            rows += textwrap.wrap(line.found, _WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead))
            if line.to_do:
                indent = " " * len(lead)
                rows += textwrap.wrap(
                    line.to_do, _WIDTH, initial_indent=f"{indent}-> ", subsequent_indent=f"{indent}   "
                )
        return "\n".join(rows)

    def _repr_html_(self) -> str:
        rows = "".join(_row(line) for line in self.lines)
        return (
            '<div style="font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:13px;line-height:1.45;">'
            f'<div style="font-weight:600;padding:4px 0;">Check-up of this machine: {html.escape(self.summary)}</div>'
            # JupyterLab's own style makes all columns of a table the same width: marks and topics would overlap.
            '<table style="border-collapse:collapse;table-layout:auto;width:100%;color:inherit;font-size:inherit;">'
            f"<tbody>{rows}</tbody></table></div>"
        )

    _repr_pretty_ = formatting.pretty


def _row(line: CheckLine) -> str:
    """Returns a line as a row of the HTML table."""
    mark = (
        f'<span style="display:inline-block;white-space:nowrap;padding:1px 8px;border-radius:9px;'
        f'background:rgba({_TINTS[line.status]},.28);">{_MARKS[line.status]} {html.escape(line.status)}</span>'
    )
    to_do = f'<div style="padding-top:2px;font-weight:600;">{html.escape(line.to_do)}</div>' if line.to_do else ""
    return (
        f'<tr style="background:transparent;"><td style="{_CELL}width:1%;">{mark}</td>'
        f'<td style="{_CELL}white-space:nowrap;font-weight:600;">{html.escape(line.topic)}</td>'
        f'<td style="{_CELL}">{html.escape(line.found)}{to_do}</td></tr>'
    )
