"""Experiment trackers (wandb, mlflow) in a trial: what the code logs there reaches nobody's account.

Known by their modules where they are loaded; nothing is imported. A wandb run that a trial opens is a disabled one, of
mlflow's it opens none, and what is logged to a run that is open already is held back. Where a tracker is loaded by the
trial itself, only wandb's own switch in the environment acts.
"""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from gpu_doctor.capture import Patches

_MODE: Final = "WANDB_MODE"
_WANDB: Final = (
    *("log", "_log", "save", "alert", "finish", "_finish", "log_artifact", "log_model", "log_code", "upsert_artifact"),
    *("finish_artifact", "link_artifact", "link_model", "mark_preempting", "_summary_update_callback"),
)
"""What reports to wandb, as functions of the module and methods of a run."""
_OF_THE_RUN: Final = ("url", "project_url", "sweep_url")
"""What wandb takes from its class of runs when it makes a disabled one."""
_MLFLOW: Final = ("log_", "set_tag", "set_terminated", "delete_", "register_", "update_run", "create_run")


class _Nothing:
    """Stands for a run or an artifact: takes every call and does nothing."""

    def __getattr__(self, name: str) -> _Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **named: Any) -> _Nothing:
        return self

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *error: object) -> None:
        return None


NOTHING: Final = _Nothing()


@contextmanager
def unlogged(notes: list[str]) -> Iterator[None]:
    """While the context lasts, nothing is reported to wandb and mlflow.

    Args:
        notes: gets a sentence for each of them that something was held back from.
    """
    held: dict[str, None] = {}
    patches = Patches()
    try:
        with patches:
            _switched_off(patches)
            if isinstance(wandb := sys.modules.get("wandb"), types.ModuleType):
                _wandb(wandb, patches, held)
            if isinstance(mlflow := sys.modules.get("mlflow"), types.ModuleType):
                _mlflow(mlflow, patches, held)
            yield
    finally:
        notes.extend(f"{name}: the trial logged nothing there." for name in held)
        notes.extend(patches.notes)


def open_runs() -> tuple[str, ...]:
    """Runs that are open on somebody's account, by name, such as `wandb.run (Run)`."""
    run = getattr(sys.modules.get("wandb"), "run", None)
    found = [] if run is None or getattr(run, "disabled", False) is True else [f"wandb.run ({type(run).__name__})"]
    ask = getattr(sys.modules.get("mlflow"), "active_run", None)
    try:
        active = ask() if callable(ask) else None
    except Exception:
        active = None
    return (*found, *([f"mlflow.active_run() ({type(active).__name__})"] if active is not None else []))


def _switched_off(patches: Patches) -> None:
    before = os.environ.get(_MODE)

    def undo() -> None:
        os.environ.pop(_MODE, None)
        if before is not None:
            os.environ[_MODE] = before

    patches.hook(_MODE, undo)
    os.environ[_MODE] = "disabled"


def _held_back(name: str, held: dict[str, None], original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def instead(*args: Any, **named: Any) -> Any:
        held[name] = None
        return NOTHING

    return instead


def _wandb(wandb: types.ModuleType, patches: Patches, held: dict[str, None]) -> None:
    run_class = getattr(sys.modules.get("wandb.sdk.wandb_run"), "Run", None)
    for name in _WANDB if isinstance(run_class, type) else ():
        if name in vars(run_class):
            patches.wrap(run_class, name, functools.partial(_held_back, "wandb", held))
    shared = {name: vars(run_class)[name] for name in _OF_THE_RUN if name in vars(run_class)} if run_class else {}
    space = dict(vars(wandb))

    def undo() -> None:
        # Every run that begins or ends binds the module's own names anew, `run` and `config` among them.
        for name, value in space.items():
            if vars(wandb).get(name, undo) is not value:
                setattr(wandb, name, value)
        for name, value in shared.items():
            setattr(run_class, name, value)

    patches.hook("wandb's names", undo)
    for name in _WANDB:
        if callable(space.get(name)):
            setattr(wandb, name, _held_back("wandb", held, space[name]))
    begin = space.get("init")
    if callable(begin):

        @functools.wraps(begin)
        def init(*args: Any, **named: Any) -> Any:
            held["wandb"] = None
            return begin(*args, **{**named, "mode": "disabled"})

        setattr(wandb, "init", init)  # noqa: B010 - the module has no such name for a type checker


def _mlflow(mlflow: types.ModuleType, patches: Patches, held: dict[str, None]) -> None:
    client = getattr(sys.modules.get("mlflow.tracking.client"), "MlflowClient", None)
    owners = [mlflow, *([client] if isinstance(client, type) else [])]
    owners += [one for name, one in sys.modules.copy().items() if name.startswith("mlflow.") and _has(one, "log_model")]
    for owner in owners:
        for name, value in dict(vars(owner)).items():
            reports = name in ("start_run", "end_run") or name.startswith(_MLFLOW)
            if reports and isinstance(value, types.FunctionType):
                patches.wrap(owner, name, functools.partial(_held_back, "mlflow", held))
    if _has(mlflow, "active_run"):

        def told(original: Callable[[], Any]) -> Callable[[], Any]:
            return lambda: original() or (NOTHING if "mlflow" in held else None)

        patches.wrap(mlflow, "active_run", told)


def _has(module: Any, name: str) -> bool:
    return isinstance(module, types.ModuleType) and isinstance(vars(module).get(name), types.FunctionType)
