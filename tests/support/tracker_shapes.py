"""The table of trackers compared with the trackers that are installed: `python -m tests.support.tracker_shapes`.

For each it prints the version, which places are not there, and which names of those that are written out (patterns are
passed over) a place does not have. The table holds older and newer versions beside each other, so a name may be missing
in one; a place that a tracker has in no version is a mistake.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gpu_doctor.trials.side_effects.tracker_table import TRACKERS, Part


def lacks(part: Part) -> Iterator[str]:
    """What of a part is not installed: the place, or names of it."""
    module_name, _, cls = part.place.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        yield f"{part.place}: {error}"
        return
    found = getattr(found, cls, None) if cls else found
    if found is None:
        yield f"{part.place} is not there"
        return
    written = f"{part.holds} {part.keeps} {part.begins} {part.asks} {part.hides} {' '.join(part.passes)}".split()
    for name in written:
        plain = not any(sign in name for sign in "*[?")
        if plain and inspect.getattr_static(found, name, None) is None:
            yield f"{part.place} has no {name}"


def versions(packages: tuple[str, ...]) -> str:
    """What is installed of some packages; empty where none is."""
    found = []
    for package in packages:
        for name in (package, f"{package}-skinny", package.replace("_", "-")):
            try:
                found.append(f"{name} {version(name)}")
                break
            except PackageNotFoundError:
                continue
    return ", ".join(found)


def main() -> None:
    """Prints the comparison."""
    for tracker in TRACKERS:
        installed = versions(tracker.packages)
        if not installed:
            print(f"{tracker.name}: not installed")
            continue
        missing = [one for part in tracker.parts for one in lacks(part)]
        print(f"{tracker.name} ({installed}): {len(tracker.parts)} places, {len(missing)} lacks")
        for one in missing:
            print(f"    {one}")


if __name__ == "__main__":
    main()
