"""What holds of every cell there can be: reading it never raises, an edit changes what was asked and nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import partial
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from gpu_doctor import cell as room
from gpu_doctor.cell import CellSource, Edits, LoopLines, NotPlaced
from gpu_doctor.cell.arguments import HIDDEN, set_arguments, slot
from gpu_doctor.cell.calls import Cells
from gpu_doctor.cell.constructors import loader_makers
from gpu_doctor.cell.switches import at_top
from tests.support.properties import examples
from tests.support.properties import hypothesis_is_set_up as hypothesis_is_set_up

CHECK: Final = examples(40)
NAMES: Final = ("x", "größe", "loss", "losses", "model", "loader", "opt", "self.seen", "rows[x]")
VALUES: Final = (
    *("1", "1e-3", "None", "(1, 2)", "'é#,)'", "f'{x}, {y!r}'", "x  +  y", "model(x, y=[1, 2])", "x[mask]"),
    *('"""a\n  %b\n!c"""', "[f(one) for one in rows]", "lambda a, b=1: a", "x if y else loss", "y \\\n  + 1"),
)
MAGICS: Final = ("%matplotlib inline", "!pip install -q 'x'", "files = !ls", "x?", "%timeit f(x)", "%%time")
FORMS: Final = ("{0}.append({1})", "{0} = {1}  # ü, ) and (", "{0} += {1}", "{0} = y = {1}", "print({0}, {1})")
HEADS: Final = (
    *("for x, y in loader:", "while x:", "if x > 1:", "with torch.no_grad():", "def step(x, y):", "try:"),
    *("class Net(nn.Module):", "def forward(self, x):", "async def f():", "match x:"),
)


@st.composite
def statements(draw: st.DrawFn, depth: int = 2) -> list[str]:
    """Lines of some statements, indented by tabs that the cell replaces by its own unit."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.integers(0, 5 if depth else 3))
        if kind == 0:
            lines.append(draw(st.sampled_from(MAGICS)))
        elif kind < 4:
            form = draw(st.sampled_from((*FORMS, "{0}.backward(); {0} = {1}")))
            lines.append(form.format(draw(st.sampled_from(NAMES)), draw(st.sampled_from(VALUES))))
        else:
            lines += _block(draw(st.sampled_from(HEADS)), draw(statements(depth - 1)))
    return lines


def _block(head: str, body: list[str]) -> list[str]:
    deeper = ["\t" + line for line in body]
    if head == "match x:":
        return [head, "\tcase 1:", *("\t" + line for line in deeper)]
    return [head, *deeper, *(["except ValueError:", "\tpass"] if head == "try:" else [])]


ARGUMENTS: Final = (
    *("rows", "(rows)", "16", "batch_size=16", "num_workers=0", "shuffle=True", "collate_fn=lambda x: (x, 1)"),
)
LOOP: Final = ("for x, y in loader:", "\tloss = model(x)", "\tloss.backward()")


@st.composite
def loaders(draw: st.DrawFn) -> str:
    """A call that makes a loader, on one line or on many, with comments and commas as people leave them."""
    own = draw(st.lists(st.sampled_from(ARGUMENTS), max_size=4, unique_by=lambda one: one.partition("=")[0]))
    own.sort(key=lambda one: bool(re.match(r"\w+=", one)))
    between = draw(st.sampled_from([", ", ",", ",\n    ", ",  # (a, b\n\t", "\n  , "]))
    begin, end = draw(st.sampled_from([("", ""), ("\n    ", "\n"), ("\n    ", ",\n"), ("", "  # ) no\n"), ("\n", " ")]))
    return f"loader = DataLoader({begin}{between.join(own)}{end if own else end.lstrip(',')})"


@st.composite
def cells(draw: st.DrawFn) -> str:
    """A cell with a loader and a loop that trains among other lines; its line ends and indentation vary."""
    lines = [
        *draw(statements()),
        "from torch.utils.data import DataLoader",
        draw(loaders()),
        *draw(statements()),
        *LOOP,
    ]
    unit, newline = draw(st.sampled_from(["    ", "  ", "\t"])), draw(st.sampled_from(["\n", "\r\n"]))
    indented = [re.sub(r"^\t+", lambda tabs: unit * len(tabs.group()), line) for line in lines]
    return newline.join("\n".join(indented).split("\n"))


def asked(text: str) -> None:
    """Every question that there is about a text."""
    room.kept_graphs(text), room.ignored_rules(text, {"slow-python"})
    source = CellSource(text)
    room.reaches(source, {}), room.called_names(source)


@given(cells(), st.integers(0, 400), st.text(max_size=3))
@CHECK
def test_reading_never_raises(text: str, place: int, typed: str) -> None:
    asked(text)
    asked(text[:place] + typed)  # as it is while somebody types
    asked(text[:place] + typed + text[place:])


@given(st.text(max_size=60))
@CHECK
def test_no_text_at_all_is_too_odd_to_be_read(text: str) -> None:
    asked(text)


@given(cells())
@CHECK
def test_a_nodes_text_is_the_node(text: str) -> None:
    source = CellSource(text)
    assert source.tree is not None, text
    for node in source.walk(ast.Name, ast.Call, ast.Constant, ast.Attribute):
        if not any(isinstance(one, ast.JoinedStr) for one in source.ancestors(node)):
            load = source.of(node).replace("\r\n", "\n")
            assert ast.unparse(ast.parse(f"({load})", mode="eval")) == ast.unparse(node)


def check_edited(text: str, edits: Edits, added: Callable[[ast.AST], bool]) -> str:
    """The edited cell reads as the cell did but for what `added` knows; no comment or line of IPython's is lost."""
    after = CellSource(text).edited([edit for _, edit in edits])
    trees = [CellSource(one).tree for one in (text, after)]
    assert None not in trees, after
    assert _without(trees[0], added) == _without(trees[1], added), after
    kept = re.compile(r"#[^\r\n]*|^[ \t]*[%!][^\r\n]*", re.MULTILINE)
    assert kept.findall(text) == kept.findall(after)
    assert ("\r\n" in text) == ("\r\n" in after) and after.count("\n") - text.count("\n") in (0, 1)
    return after


def _without(tree: ast.Module | None, added: Callable[[ast.AST], bool]) -> str:
    assert tree is not None
    for node in ast.walk(tree):
        for name, held in ast.iter_fields(node):
            if isinstance(held, list):
                setattr(node, name, [one for one in held if not added(one)])
    return ast.dump(tree)


def _is_keyword(name: str, node: ast.AST) -> bool:
    return isinstance(node, ast.keyword) and node.arg == name


@given(cells())
@CHECK
def test_an_argument_is_set_and_nothing_else(text: str) -> None:
    known = Cells([CellSource(text)])
    (made,) = [one for one in loader_makers(known, None) if one.site.function is None]
    for name, code in (("num_workers", "2"), ("pin_memory", "True")):
        place = slot(made, name)
        assert place.kind != HIDDEN
        edits = list(set_arguments({place: code}))
        after = check_edited(text, edits, partial(_is_keyword, name))
        (again,) = loader_makers(Cells([CellSource(after)]), None)
        node = slot(again, name).node
        assert node is not None and ast.unparse(node) == code


@given(cells())
@CHECK
def test_lines_are_put_before_the_loop_or_at_the_top_and_nothing_else_moves(text: str) -> None:
    source, line = CellSource(text), "torch.new = 'é'"

    def added(one: ast.AST) -> bool:
        return isinstance(one, ast.stmt) and ast.unparse(one) == line

    check_edited(text, [(source, at_top(source, [line]))], added)
    try:
        edits = LoopLines(Cells([source])).before_loop(line)
    except NotPlaced:
        return
    after = check_edited(text, edits, added)
    assert after.index(line) < after.rindex("for x, y in loader:")
