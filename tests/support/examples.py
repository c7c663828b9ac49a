"""The examples of public names: what stands after `>>>` in their docstrings, run as a reader would."""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io

import gpu_doctor
from tests.support.repository import ROOT


def example_of(name: str) -> doctest.DocTest:
    """The example of a public name of gpu_doctor; of no steps where it has none."""
    text = inspect.getdoc(getattr(gpu_doctor, name)) or ""
    return doctest.DocTestParser().get_doctest(text, {}, name, None, None)


def failures(name: str) -> str:
    """What went otherwise than the example of a public name says; empty where nothing did."""
    said = io.StringIO()
    with contextlib.chdir(ROOT):
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example_of(name), out=said.write)
    return said.getvalue()
