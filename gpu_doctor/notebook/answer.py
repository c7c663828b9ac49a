"""What a magic returns."""

from __future__ import annotations


class Answer:
    """What IPython displays: the HTML where there is any and the page takes it, else the text."""

    def __init__(self, text: str, html: str = "") -> None:
        self._text, self._html = text, html

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str | None:
        return self._html or None
