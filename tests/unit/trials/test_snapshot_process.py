"""What belongs to the process and to no name is after a trial as it was: loggers, warnings, switches, figures."""

from __future__ import annotations

import gc
import io
import logging
import multiprocessing
import queue
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import gpu_doctor
from gpu_doctor.trials.snapshot.process import process_undos
from gpu_doctor.trials.snapshot.snapshot import Snapshot

LOOP = """
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def names() -> Iterator[list[str]]:
    """Loggers of these names are unknown again afterwards."""
    used = ["gd_test", "gd_test.loop", "gd_new", "gd_library", "gd_library.part", "GD_Library", "GD_Library.part"]
    yield used
    for name in used:
        logging.root.manager.loggerDict.pop(name, None)


def tried(cell: str, **space: Any) -> Any:
    """A trial of a cell: four sides at least."""
    return gpu_doctor.case(cell + LOOP, {"torch": torch, **space}).trial({"threads": 1}, steps=6, seconds=5, pairs=1)


# ---- loggers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gd_new", "gd_test", "__main__", ""])
def test_a_handler_that_a_cell_adds_does_not_pile_up(name: str, names: list[str]) -> None:
    if name == "gd_test":
        logging.getLogger(name)
    before, shown = list(logging.getLogger(name).handlers) if name != "gd_new" else [], io.StringIO()
    cell = f"""
import logging
log = logging.getLogger({name!r})
log.addHandler(logging.StreamHandler(shown))
log.setLevel(logging.INFO)
log.propagate = False
log.info("begin")
"""
    tried(cell, shown=shown)
    log = logging.getLogger(name)
    assert log.handlers == before
    assert (log.level, log.propagate) == ((logging.WARNING, True) if not name else (logging.NOTSET, True))
    assert not shown.getvalue()
    exec(cell, {"shown": shown})
    try:
        assert shown.getvalue().count("begin") == 1, "once, however many trials there were"
    finally:
        del log.handlers[len(before) :]
        log.setLevel(logging.WARNING if not name else logging.NOTSET)
        log.propagate = True


def test_what_a_logger_and_its_handlers_had_is_back_and_nothing_of_the_users_is_closed(
    names: list[str], tmp_path: Path
) -> None:
    log, loop = logging.getLogger("gd_test"), logging.getLogger("gd_test.loop")
    file, spare = logging.FileHandler(tmp_path / "own.log"), logging.FileHandler(tmp_path / "spare.log")
    plain, careful = logging.Formatter("%(message)s"), logging.Filter("gd_test")
    file.setFormatter(plain)
    log.addHandler(file)
    log.addFilter(careful)
    log.setLevel(logging.INFO)
    snapshot = Snapshot.take({"spare": spare})
    opened: list[logging.FileHandler] = []

    def changes() -> None:
        opened.append(logging.FileHandler(tmp_path / "trial.log"))
        log.handlers[:] = [opened[-1], spare]
        log.filters.clear()
        log.setLevel(logging.ERROR)
        log.disabled = loop.disabled = True
        file.setLevel(logging.CRITICAL)
        file.setFormatter(None)
        file.addFilter(logging.Filter("nobody"))
        logging.disable(logging.CRITICAL)

    try:
        for _ in range(2):
            changes()
            assert snapshot.restore() == ()
        assert (log.handlers, log.filters, log.level, log.disabled, loop.disabled) == (
            [file],
            [careful],
            logging.INFO,
            False,
            False,
        )
        assert (file.level, file.formatter, file.filters) == (logging.NOTSET, plain, [])
        loop.info("heard")
        assert (tmp_path / "own.log").read_text() == "heard\n"
        assert file.stream is not None and spare.stream is not None, "the user's own are open, in a logger or not"
        assert [one.stream for one in opened] == [None, None], "the trial's are closed"
    finally:
        log.handlers.clear()
        log.filters.clear()
        for one in (file, spare, *opened):
            one.close()


@pytest.mark.parametrize("name", ["gd_library.part", "GD_Library.part"])
def test_what_a_library_sets_up_at_its_import_stays(
    name: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is imported once: without its handler it would be silent from then on. DeepSpeed's is named in capitals."""
    undos = process_undos()
    library = types.ModuleType("gd_library")
    library.__file__ = np.__file__
    monkeypatch.setitem(sys.modules, "gd_library", library)
    handler = logging.NullHandler()
    logging.getLogger(name).addHandler(handler)
    logging.getLogger("gd_new").addHandler(handler)
    for _, undo in undos:
        undo()
    assert logging.getLogger(name).handlers == [handler]
    assert logging.getLogger("gd_new").handlers == []


# ---- warnings, print options, switches -------------------------------------------------------------------------------


def shown_of_warnings() -> Any:
    return list(warnings.filters), warnings.showwarning


@pytest.mark.parametrize(
    "cell",
    [
        "warnings.simplefilter('error')",
        "warnings.filterwarnings('ignore', 'x'); warnings.resetwarnings()",
        "logging.captureWarnings(True)",
        "warnings.showwarning = print",
        "kept = warnings.catch_warnings(record=True); kept.__enter__()",
    ],
)
def test_what_is_shown_of_warnings_is_as_it_was(cell: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        before, listed = shown_of_warnings(), warnings.filters
        tried(cell, warnings=warnings, logging=logging)
        assert shown_of_warnings() == before and warnings.filters is listed
        heard: list[Any] = []
        warnings.showwarning = lambda *told, **named: heard.append(told)
        warnings.warn("heard", UserWarning, stacklevel=1)
        assert len(heard) == 1
        logging.captureWarnings(True)  # it must be off: else this would do nothing
        assert warnings.showwarning is not before[1]
        logging.captureWarnings(False)


def test_warnings_that_go_to_the_log_go_there_again_and_can_be_let_out(caplog: pytest.LogCaptureFixture) -> None:
    shown = warnings.showwarning
    logging.captureWarnings(True)
    try:
        tried("logging.captureWarnings(False)", logging=logging)
        warnings.showwarning("to the log", UserWarning, "cell.py", 1)
        assert "to the log" in caplog.text
        logging.captureWarnings(False)
        assert warnings.showwarning is shown, "where the log is said to be off already, nothing turns it off"
    finally:
        logging.captureWarnings(False)
        warnings.showwarning = shown


PRODUCTS: Any = torch.backends.cuda.matmul


def noticed(*_: Any) -> None:
    """A hook of all optimizers; beside ours, which is there while a cell runs."""


def halves() -> tuple[Any, ...]:
    """What is allowed, and whether a sum may be split as well, where this torch tells them apart."""
    name = "allow_fp16_reduced_precision_reduction"
    return getattr(PRODUCTS, name), getattr(PRODUCTS, f"{name}_split_k", None)


SWITCHES: dict[str, tuple[str, Callable[[], Any]]] = {
    "numpy's errors": ("np.seterr(all='raise')", np.geterr),
    "numpy's printing": ("np.set_printoptions(precision=2)", np.get_printoptions),
    "torch's printing": ("torch.set_printoptions(precision=2, sci_mode=True)", lambda: repr(torch.tensor([1.23456]))),
    "the start method": ("multiprocessing.set_start_method('spawn')", lambda: multiprocessing.get_start_method(True)),
    "sharing": (
        "torch.multiprocessing.set_sharing_strategy('file_system')",
        torch.multiprocessing.get_sharing_strategy,
    ),
    "the collector": ("gc.disable()", gc.isenabled),
    "the collector's pace": ("gc.set_threshold(5000, 7, 7)", gc.get_threshold),
    "one more argument": ("sys.argv.append('--fast')", lambda: list(sys.argv)),
    "a script's arguments": ("sys.argv = ['train.py', '--epochs', '1']", lambda: list(sys.argv)),
    "depth": ("sys.setrecursionlimit(5000)", sys.getrecursionlimit),
    "the default device": ("torch.set_default_device('meta')", torch.get_default_device),
    "cuDNN": ("torch.backends.cudnn.enabled = False", lambda: torch.backends.cudnn.enabled),
    "attention": ("torch.backends.cuda.enable_flash_sdp(False)", torch.backends.cuda.flash_sdp_enabled),
    "one of them": ("torch.backends.cuda.enable_math_sdp(False)", torch.backends.cuda.math_sdp_enabled),
    "oneDNN": ("torch.backends.mkldnn.enabled = False", lambda: torch.backends.mkldnn.enabled),
    "sums of half products": ("products.allow_fp16_reduced_precision_reduction = False", halves),
    "sums in half precision": ("products.allow_fp16_accumulation = True", lambda: PRODUCTS.allow_fp16_accumulation),
    "tiny numbers": ("torch.set_flush_denormal(True)", lambda: bool((torch.tensor(1e-39) * 1.0).item())),
    "new memory": (
        "torch.utils.deterministic.fill_uninitialized_memory = False",
        lambda: torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
    ),
    "encoders": ("torch.backends.mha.set_fastpath_enabled(False)", torch.backends.mha.get_fastpath_enabled),
    "a hook of all modules": (
        "torch.nn.modules.module.register_module_forward_hook(print)",
        lambda: tuple(torch.nn.modules.module._global_forward_hooks.values()),
    ),
    "a full hook of all modules": (
        "torch.nn.modules.module.register_module_full_backward_hook(lambda *seen: None)",
        lambda: torch.nn.modules.module._global_is_full_backward_hook,
    ),
    "a hook of all optimizers": (
        "hook_optimizers(noticed)",
        lambda: [*sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks.values()].count(noticed),
    ),
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_switch_that_a_cell_turns_is_back_and_each_side_finds_it_as_it_was(switch: str) -> None:
    """Where the second side found it turned, it would not be compared with the first under the same conditions."""
    cell, read = SWITCHES[switch]
    seen: queue.SimpleQueue[str] = queue.SimpleQueue()  # which no snapshot can put back
    before = read()
    assert multiprocessing.get_start_method(True) in (None, "fork", "forkserver")
    if switch == "the start method":
        multiprocessing.set_start_method(None, force=True)  # as in a kernel that has started none yet
        before = None
    space = {
        "np": np,
        "gc": gc,
        "sys": sys,
        "products": PRODUCTS,
        "hook_optimizers": register_optimizer_step_post_hook,
        "noticed": noticed,
        "multiprocessing": multiprocessing,
        "look": lambda: seen.put(f"{read()}"),
    }
    effect = tried(f"look(); {cell}\n", **space)
    assert effect.outcome in ("completed", "budget-reached"), effect
    assert read() == before
    noted = [seen.get() for _ in range(seen.qsize())]
    assert len(noted) >= 2 and set(noted) == {f"{before}"}


def test_switches_that_nobody_may_turn_any_more_hinder_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after torch.backends.disable_global_flags(): to write even what is so already would fail."""
    flags = torch.backends.flags_frozen.__globals__
    monkeypatch.setitem(flags, "__allow_nonbracketed_mutation_flag", False)
    with pytest.raises(RuntimeError):
        torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark
    assert Snapshot.take({}).restore() == ()


# ---- figures --------------------------------------------------------------------------------------------------------


class Gcf:
    """What pyplot keeps its figures in, as matplotlib 3 has it."""

    figs: dict[int, Any] = {}  # noqa: RUF012

    @classmethod
    def destroy(cls, manager: Any) -> None:
        cls.figs.pop(next(number for number, one in cls.figs.items() if one is manager))


def test_figures_that_a_cell_leaves_open_are_closed_and_the_users_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    own = object()
    monkeypatch.setitem(sys.modules, "matplotlib._pylab_helpers", types.SimpleNamespace(Gcf=Gcf))  # type: ignore[arg-type]
    monkeypatch.setattr(Gcf, "figs", {1: own})
    tried("import sys\nfigs = sys.modules['matplotlib._pylab_helpers'].Gcf.figs\nfigs[max(figs) + 1] = object()\n")
    assert Gcf.figs == {1: own}
    snapshot = Snapshot.take({})
    Gcf.figs[2] = object()
    snapshot.restore()
    assert Gcf.figs == {1: own}


def test_the_random_numbers_of_apples_gpu_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    state = [torch.tensor([1])]
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: state[0])
    monkeypatch.setattr(torch.mps, "set_rng_state", lambda value: state.__setitem__(0, value))
    before = state[0]
    undos = dict(process_undos())
    state[0] = torch.tensor([2])
    undos["MPS's random numbers"]()
    assert state[0] is before
