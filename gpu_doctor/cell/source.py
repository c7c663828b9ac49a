"""The text of a cell with its syntax tree, the positions of nodes in the text, and exact edits to the text.

`ast` counts columns in UTF-8 bytes and lines as Python does, whereas an edit needs characters. IPython's own lines,
which are masked in the tree (see `syntax.py`), stay in the text as they are.
"""

from __future__ import annotations

import ast
import bisect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from gpu_doctor.cell.syntax import tree_of

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
INDENT: Final = "    "


@dataclass(frozen=True)
class Edit:
    """Replacement of the characters `begin` to `end` by `text`; edits at the same place keep their order."""

    begin: int
    end: int
    text: str


@dataclass(eq=False)
class CellSource:
    """One cell's text with its syntax tree."""

    text: str
    label: str = "this cell"
    """Name of the cell in messages."""
    index: int = 0
    """Rank of the cell; a cell that ran later has a higher one."""
    tree: ast.Module | None = field(init=False, default=None)
    """The syntax tree; None if the text is not valid Python."""
    parents: dict[ast.AST, ast.AST] = field(init=False, default_factory=dict, repr=False)
    """Parent of each node of the tree."""

    def __post_init__(self) -> None:
        ends = [match.end() for match in _LINE_END.finditer(self.text)]
        self._starts = [0, *ends]
        self._walked: dict[tuple[type[ast.AST], ...], list[ast.AST]] = {}
        self.tree = tree_of(self.text)
        if self.tree is not None:
            self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @property
    def newline(self) -> str:
        """The line end that the cell uses."""
        match = _LINE_END.search(self.text)
        return match.group() if match else "\n"

    @property
    def unit(self) -> str:
        """One level of indentation: a tab if the cell indents by tabs, else spaces."""
        return "\t" if any(self.text[begin : begin + 1] == "\t" for begin in self._starts) else INDENT

    def line_begin(self, line: int) -> int:
        """Returns the index of the first character of line `line` (from 1); the text's end if there is no such line."""
        return self._starts[line - 1] if line - 1 < len(self._starts) else len(self.text)

    def line_end(self, line: int) -> int:
        """Returns the index behind the last character of line `line`, before its line break."""
        match = _LINE_END.search(self.text, self.line_begin(line))
        return match.start() if match else len(self.text)

    def line_of(self, at: int) -> int:
        """Returns the line (from 1) of the character at an index."""
        return bisect.bisect_right(self._starts, at)

    def _at(self, line: int, byte: int) -> int:
        """Returns the index of a character, from its line and its column in UTF-8 bytes."""
        begin = self.line_begin(line)
        return begin + len(self.text[begin : self.line_end(line)].encode()[:byte].decode(errors="ignore"))

    def begin(self, node: Any) -> int:
        """Returns the index of a node's first character."""
        return self._at(node.lineno, node.col_offset)

    def end(self, node: Any) -> int:
        """Returns the index behind a node's last character."""
        return self._at(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.AST) -> str:
        """Returns the text of a node."""
        return self.text[self.begin(node) : self.end(node)]

    def indent(self, line: int) -> str:
        """Returns the white space at the start of line `line`."""
        text = self.text[self.line_begin(line) : self.line_end(line)]
        return text[: len(text) - len(text.lstrip())]

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yields the nodes around a node, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def walk(self, *kinds: type[ast.AST]) -> Iterator[Any]:
        """Yields every node of some kinds, in the order of the text."""
        found = self._walked.get(kinds)
        if found is None:
            found = [node for node in ast.walk(self.tree) if isinstance(node, kinds)] if self.tree is not None else []
            found.sort(key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))
            self._walked[kinds] = found
        yield from found

    def edited(self, edits: Iterable[Edit]) -> str:
        """Returns the text with all edits applied."""
        text = self.text
        ordered = sorted(enumerate(dict.fromkeys(edits)), key=lambda item: (item[1].begin, item[1].end, item[0]))
        for _, edit in reversed(ordered):
            text = text[: edit.begin] + edit.text + text[edit.end :]
        return text
