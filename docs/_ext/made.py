"""The directive `{made} NAME`: a part of a page that is made from the product's own lists, or from benchmarks' files.

```{made} knobs
```
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from docs._ext import markdown, pairs, rule_pages
from gpu_doctor.command.command_line import parser
from gpu_doctor.diagnosis import Safety
from gpu_doctor.diagnosis.rules import CAUSES
from gpu_doctor.notebook.magic import GpuDoctorMagics
from gpu_doctor.trials.knobs import KNOBS

SAFETY: Final = {Safety.SAFE: "safe", Safety.CHANGES_TRAINING: "changes the training"}


def rules() -> str:
    """A table of rules for each family."""
    blocks = []
    for family in dict.fromkeys(one.family for one in CAUSES):
        rows = [
            (f"[{one.name}](rules/{one.name}.md)", markdown.prose(one.summary))
            for one in CAUSES
            if one.family == family
        ]
        blocks += [f"## {family}", markdown.table(("rule", "what it finds"), rows)]
    return "\n\n".join(blocks)


def knobs() -> str:
    """Every knob: what it is, whether it is safe, and what it changes."""
    rows = [
        (
            f"`{name}`",
            markdown.prose(_what(name)),
            SAFETY[knob.safety],
            markdown.prose(knob.changes) or "nothing",
        )
        for name, knob in KNOBS.items()
    ]
    return markdown.table(("knob", "what it turns", "safety", "what it changes in the training"), rows)


def _what(name: str) -> str:
    """The first sentence of a knob's file, without its name before it."""
    said = " ".join(str(import_module(f"gpu_doctor.trials.knobs.{name}").__doc__).split("\n\n")[0].split())
    said = said.removeprefix(f"Knob `{name}`: ")
    return said[:1].upper() + said[1:]


def magics() -> str:
    """The help of both magics."""
    forms = {"`%%gpudoctor`": GpuDoctorMagics.run_cell, "`%gpudoctor`": GpuDoctorMagics.ask}
    return "\n\n".join(f"## {form}\n\n{markdown.code(str(one.__doc__), 'text')}" for form, one in forms.items())


def command() -> str:
    """The command's help, and that of each subcommand."""
    whole = parser()
    kinds = next(one.choices for one in whole._actions if isinstance(one, argparse._SubParsersAction))
    helped = {"gpudoctor": whole, **kinds}
    return "\n\n".join(f"## `{name}`\n\n{markdown.code(one.format_help(), 'text')}" for name, one in helped.items())


def corpus() -> str:
    """The totals of the last evaluation that was kept."""
    import json

    from tools.evaluate import score
    from tools.evaluate.evaluator import Evaluation

    if not pairs.FIGURES.exists():
        return "No evaluation is kept with this version: run it to see the figures of your machine."
    found = [Evaluation.from_plain(one) for one in json.loads(pairs.FIGURES.read_text(encoding="utf-8"))]
    lines = "\n".join((score.HEAD, *(score.line(one) for one in found)))
    return f"{markdown.code(score.totals(found), 'text')}\n\n{markdown.code(lines, 'text')}"


def gains() -> str:
    """What the cures of unseen programs gave, with the rule that names each trouble."""
    rows = [
        (
            markdown.prose(one.name),
            f"[{rule.name}](reference/rules/{rule.name}.md)",
            "not timed" if one.gain is None else f"{one.gain:.2f}x",
        )
        for rule in CAUSES
        for one in pairs.unseen(rule.name)
    ]
    return markdown.table(("program", "rule", "gain of its cure on a CPU"), rows)


def cards() -> str:
    """What was proved on GPUs, a table a card."""
    from benchmarks.gpu.table import table

    told = [table(proof["machine"], proof["parts"]).replace("\n#", "\n##") for proof in pairs.proofs()]
    return "\n\n".join(told) or "No card's figures are kept yet: what needs a GPU was tested with simulated ones."


MAKERS: Final[Mapping[str, Callable[[], str]]] = {
    one.__name__: one for one in (rules, knobs, magics, command, corpus, gains, cards)
}


class Made(SphinxDirective):
    """See the module."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        made: list[nodes.Node] = self.parse_text_to_nodes(MAKERS[self.arguments[0]](), allow_section_headings=True)
        return made


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("made", Made)
    app.connect("config-inited", lambda app, config: rule_pages.write())
    return {"parallel_read_safe": True}
