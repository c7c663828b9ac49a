"""The user's loader calls with other arguments: every loader that the loop trains from gets the settings.

A loader of which it is not known whether the loop trains from it gets what changes no batch, as in a trial.
"""

from __future__ import annotations

import ast
from math import gcd
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.cell import Edits, NotPlaced
from gpu_doctor.cell.arguments import HIDDEN, REPLACE, Slot, set_arguments, slot
from gpu_doctor.cell.arguments import given as given_to
from gpu_doctor.cell.calls import Cells, Made
from gpu_doctor.cell.constructors import LOADER, batch_sampler_of, is_loader, loader_makers
from gpu_doctor.recording import LoaderSetup, Settings, Setup

WORKERS_ONLY: Final = {
    "prefetch_factor": "None",
    "persistent_workers": "False",
    "timeout": "0",
    "multiprocessing_context": "None",
}
"""Arguments that torch refuses without workers -> their value for no workers."""
REPEATED: Final = (ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp, ast.Lambda)
NOT_FOUND: Final = "The call that creates the loader was not found in the cells."


class LoaderLines:
    """The calls that make the loaders of a run, and the edits that give them settings."""

    def __init__(self, cells: Cells, setup: Setup, notes: list[str]) -> None:
        """`notes`: takes what a person should know of the change."""
        self.cells, self.setup, self.notes = cells, setup, notes

    def edits(self, settings: Settings) -> Edits:
        """Returns the edits for settings of loaders.

        Raises:
            NotPlaced: if the calls are not found, or cannot be told apart.
        """
        groups = self._groups(settings)
        edits: Edits = []
        for number, alike in enumerate(groups):
            try:
                edits += self._of_group(alike, self._fitting(settings, groups[0][0], alike[0]))
            except NotPlaced as reason:
                if not number:
                    raise
                if alike[0] is not None and alike[0].role == "training":
                    self.notes.append(f"Another training loader was not changed. {reason}")
        return edits

    def _groups(self, settings: Settings) -> list[list[LoaderSetup | None]]:
        """Groups the loaders to change: those that differ only in order together, the first training loader first.

        With no setup there is one of which nothing is known.
        """
        loaders = [loader for loader in self.setup.loaders if loader.role == "training"]
        if "batch_size" not in settings:
            loaders += [loader for loader in self.setup.loaders if loader.role == "unknown"]
        if not loaders:
            return [[self.setup.training_loader]]
        groups: dict[str, list[LoaderSetup | None]] = {}
        for loader in loaders:
            groups.setdefault(loader.stem, []).append(loader)
        return list(groups.values())

    def _fitting(self, settings: Settings, first: LoaderSetup | None, this: LoaderSetup | None) -> Settings:
        """Returns the settings of one loader: the first loader's, with batches in the ratio as written."""
        if "batch_size" not in settings or first is None or this is None or this is first:
            return settings
        if not first.batch_size or not this.batch_size:
            return {name: value for name, value in settings.items() if name != "batch_size"}
        size, rest = divmod(this.batch_size * int(settings["batch_size"]), first.batch_size)
        if rest or not size:
            step = first.batch_size // gcd(first.batch_size, this.batch_size)
            raise NotPlaced(
                f"Its batch size of {this.batch_size} keeps the ratio only if you choose a multiple of {step}."
            )
        return {**settings, "batch_size": size}

    def _of_group(self, alike: list[LoaderSetup | None], settings: Settings) -> Edits:
        makers = self._makers(alike[0])
        ways = [list(set_arguments(self._slots(maker, settings))) for maker in makers]
        if any(set(way) != set(ways[0]) for way in ways):
            calls = {maker.site.call: maker.site.place for maker in makers}
            calls = calls if len(calls) > 1 else {maker.outermost.call: maker.outermost.place for maker in makers}
            if len(calls) == len(alike) == len(makers):  # they all train
                return [edit for way in ways for edit in way]
            counted = {place: list(calls.values()).count(place) for place in calls.values()}
            places = " and ".join(f"{n} on {place}" if n > 1 else place for place, n in counted.items())
            raise NotPlaced(f"Several calls may have made the training loader: {places}.")
        self._say_shared(makers[0], settings)
        return ways[0]

    def _makers(self, setup: LoaderSetup | None) -> list[Made]:
        makers = loader_makers(self.cells, setup)
        if not makers:
            raise NotPlaced(NOT_FOUND)
        return makers

    def _say_shared(self, made: Made, settings: Settings) -> None:
        """Notes other loaders that get the setting from the same place."""
        every = list(self.cells.made_by(is_loader, LOADER))
        shared: dict[str, list[str]] = {}
        for name, value in settings.items():
            mine = slot(made, name)
            slots = (slot(maker, name) for maker in every)
            same = sum(other.site.call is mine.site.call and other.name == mine.name for other in slots)
            if same > 1 or any(isinstance(node, REPEATED) for node in mine.site.cell.ancestors(mine.site.call)):
                shared.setdefault(mine.site.place, []).append(f"{name}={value}")
        for place, given in shared.items():
            self.notes.append(f"Every loader created by {place} gets {', '.join(given)}.")

    def _slots(self, made: Made, settings: Settings) -> dict[Slot, str]:
        found: dict[Slot, str] = {}
        given = {name: repr(value) for name, value in settings.items()}
        if settings.get("num_workers") == 0:
            for name, nothing in WORKERS_ONLY.items():
                found_slot = slot(made, name)
                if name not in given and found_slot.kind == REPLACE:
                    given[name] = nothing
        for name, text in given.items():
            made_of = made
            if name == "batch_size" and given_to(made, "batch_sampler") is not None:
                sampler = batch_sampler_of(self.cells, made)
                if sampler is None:
                    raise NotPlaced("The batches come from a batch_sampler whose call was not found.")
                made_of = sampler
            found_slot = slot(made_of, name)
            if found_slot.kind == HIDDEN:
                said = f"{found_slot.site.place} passes {name} in a way that cannot be read here."
                raise NotPlaced(formatting.sentence(said))
            self._say_unused(found_slot, text)
            found[found_slot] = text
        return found

    def _say_unused(self, found_slot: Slot, text: str) -> None:
        """Notes a name that is used elsewhere too, where it is not changed."""
        if found_slot.kind != REPLACE or not isinstance(found_slot.node, (ast.Name, ast.Attribute)):
            return
        written = ast.unparse(found_slot.node)
        others = [
            f"line {node.lineno} of {cell.label}"
            for cell in self.cells.cells
            for node in cell.walk(type(found_slot.node))
            if isinstance(node.ctx, ast.Load) and node is not found_slot.node and ast.unparse(node) == written
        ]
        if others:
            self.notes.append(f"{written} is also used elsewhere ({', '.join(others[:3])}) and is not changed there.")
