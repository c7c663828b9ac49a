"""What a cell changes and a trial does not put back is named before the click; what comes back is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gpu_doctor
from gpu_doctor.trials.case import Case
from gpu_doctor.trials.snapshot.unrestored import unrestored
from tests.support.reaching import notebook

EARLIER = (
    "import decimal, gc, logging, multiprocessing, os, socket, sys, warnings\n"
    "import numpy as np, torch.nn.functional as F\nfrom warnings import filterwarnings\n"
    "@functools.lru_cache\ndef parts(n): return n\n"
    "@functools.singledispatch\ndef kind(x): return x\n"
    "class Meter: total = 0\nmeter, log, values = Meter(), logging.getLogger('x'), {}\n"
)


def named(cell: str, space: dict[str, Any] | None = None) -> str:
    space = notebook(EARLIER) if space is None else space
    return " ".join(unrestored(Case(cell, space, execute=lambda space: None)).lost)


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        ("F.relu = torch.tanh", "`F.relu` in line 1"),
        ("nn.Linear.forward = None", "`nn.Linear.forward`"),
        ("import torch._dynamo\ntorch._dynamo.config.cache_size_limit = 64", "cache_size_limit` in line 2"),
        ("import matplotlib.pyplot as plt\nplt.rcParams['lines.linewidth'] = 3", "`plt.rcParams['lines.linewidth']`"),
        ("import pandas as pd\npd.options.display.max_rows = 5", "`pd.options.display.max_rows`"),
        ("import matplotlib.pyplot as plt\nfig, ax = plt.subplots()", "`plt.subplots`"),
        ("os.umask(0)", "`os.umask`"),
        ("os.sched_setaffinity(0, {0})", "`os.sched_setaffinity`"),
        ("socket.setdefaulttimeout(3)", "`socket.setdefaulttimeout`"),
        ("gc.freeze()", "`gc.freeze`"),
        ("decimal.getcontext().prec = 3", "`decimal.getcontext().prec`"),
        ("sys.excepthook = print", "`sys.excepthook`"),
        ("sys.path.append('lib')", "`sys.path.append`"),
        ("filterwarnings('ignore')", "`filterwarnings`"),
        ("logging.getLogger('train').addHandler(None)", "addHandler`"),
        ("np.set_printoptions(precision=2)", "`np.set_printoptions`"),
        ("multiprocessing.set_start_method('spawn')", "set_start_method`"),
        ("torch.backends.cuda.enable_flash_sdp(False)", "enable_flash_sdp`"),
        ("torch.backends.cudnn.enabled = False", "`torch.backends.cudnn.enabled`"),
        ("parts(3)", "`parts`"),
        ("@kind.register(int)\ndef _(x): return 'int'", "`kind.register`"),
        ("import builtins\nbuiltins.print = None", "`builtins.print`"),
    ],
)
def test_what_is_left_changed_is_named(cell: str, what: str) -> None:
    assert what in named(cell)


@pytest.mark.parametrize(
    "cell",
    [
        "meter.total = 3; Meter.total = 4; values['a'] = 1; log = None",
        "torch.backends.cudnn.benchmark = True; torch.backends.cuda.matmul.allow_tf32 = True",
        "torch.set_default_dtype(torch.float64); torch.set_num_threads(1); torch.manual_seed(0)",
        "os.environ['TOKENIZERS_PARALLELISM'] = 'false'; os.chdir('runs')",
        "torch.use_deterministic_algorithms(True); np.random.seed(3)",
        "model = nn.Linear(2, 2); model.weight.data[0] = 1; model.forward = None",
        "%%bash\nthis is no Python",
    ],
)
def test_what_comes_back_is_not(cell: str) -> None:
    assert named(cell) == ""


def test_a_function_of_the_users_that_the_cell_calls_is_read_too_and_its_module_is_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "import warnings\nSTEP = 0\ndef hush():\n    warnings.simplefilter('ignore')\n"
    (tmp_path / "my_hushing.py").write_text(lines)
    monkeypatch.syspath_prepend(str(tmp_path))
    space: dict[str, Any] = {"__name__": "__main__"}
    exec("import my_hushing", space)
    assert "`warnings.simplefilter` in line 2 of my_hushing.hush()" in named("my_hushing.hush()", space)
    assert named("my_hushing.STEP = 1", space) == ""


def test_of_many_the_first_are_named_and_how_many_there_are_more() -> None:
    assert named("\n".join(f"F.f{at} = 1" for at in range(9))).endswith("and 3 more.")
    case = gpu_doctor.case("gc.freeze()\ngc.freeze()", notebook(EARLIER))
    (sentence,) = case.beforehand().lost
    assert sentence.count("gc.freeze") == 1
