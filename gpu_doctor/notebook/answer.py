"""The value that a magic returns."""

from __future__ import annotations


class Answer:
    """A result that IPython displays as HTML if it has any and the front end supports it, else as text."""

    def __init__(self, text: str, html: str = "") -> None:
        self._text, self._html = text, html

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str | None:
        return self._html or None
