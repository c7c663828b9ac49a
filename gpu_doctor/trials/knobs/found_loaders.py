"""Finds the loaders of a run that a setting applies to. Needs no torch: the panel uses it too."""

from __future__ import annotations

from gpu_doctor.recording import LoaderSetup, Setup


def meant(setup: Setup) -> list[LoaderSetup]:
    """The loaders that the loop trains from; where none is known to train, those that do not evaluate."""
    training = [loader for loader in setup.loaders if loader.role == "training"]
    return training or [loader for loader in setup.loaders if loader.role != "evaluation"]


def trained_from(setup: Setup) -> LoaderSetup | None:
    """The loader that a knob is about: the first that trains, else the first that does not evaluate."""
    return next(iter(meant(setup)), None)
