"""A real IPython shell in the tests' process, and cells that are run in it as a user would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.testing.globalipapp import start_ipython
from IPython.utils.capture import capture_output


def notebook_shell() -> InteractiveShell:
    """The process' one shell, which shows what a notebook's shows."""
    start_ipython()
    shell = InteractiveShell.instance()
    shell.display_formatter.active_types = list(shell.display_formatter.formatters)
    return shell


@contextmanager
def with_the_magic(shell: InteractiveShell) -> Iterator[InteractiveShell]:
    """The shell with an empty namespace and our extension, for a while."""
    shell.reset(new_session=False)
    shell.run_line_magic("load_ext", "gpu_doctor")
    try:
        yield shell
    finally:
        shell.run_line_magic("unload_ext", "gpu_doctor")
        shell.reset(new_session=False)


@pytest.fixture(scope="module")
def one_shell() -> InteractiveShell:
    """The process' shell."""
    return notebook_shell()


@pytest.fixture
def shell(one_shell: InteractiveShell) -> Iterator[InteractiveShell]:
    """The same with our extension, and nothing else in its namespace."""
    with with_the_magic(one_shell):
        yield one_shell


def ran(shell: InteractiveShell, cell: str, kept: bool = False) -> tuple[Any, str, str, list[Any]]:
    """Runs a cell as a user would; its result, stdout, stderr, and displayed outputs.

    Args:
        kept: its text is kept as an input of the session, as a notebook's is.
    """
    with capture_output() as captured:
        result = shell.run_cell(cell, store_history=kept)
    return result, captured.stdout, captured.stderr, captured.outputs


LOOP = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
data = TensorDataset(torch.randn(640, 16), torch.randint(0, 2, (640,)))
loader = DataLoader(data, batch_size=32, shuffle=True)
model = nn.Linear(16, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""
