"""How rules put what they saw into words: phases, chores, lines of the user's code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath

from gpu_doctor import formatting
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.lines import total
from gpu_doctor.recording import AFTER, BEFORE, LineCost
from gpu_doctor.recording.setup import Chore, InputFacts

MOST_LINES = 3
_SIZES = re.compile(r"\d+(?: x \d+)+$")
AROUND_SHARE = 0.10
"""What lies around the loop is told from this part of the run on."""
SEEN_SHARE = 0.02
"""A line is named from this share of the wall-clock on."""


def who(vitals: Vitals) -> str:
    """What waits where data is late, without inventing a GPU: `GPU` or `loop`."""
    return "GPU" if vitals.on_gpu else "loop"


def phases(vitals: Vitals) -> list[str]:
    """What this loop computes in: a loop that predicts has no backward and no optimizer to be named."""
    found = ["forward"]
    found += ["backward"] if not vitals.predicts else []
    return found + (["optimizer"] if vitals.optimizer_share or vitals.setup.optimizers else [])


def joined(names: Sequence[str]) -> str:
    """`forward, backward and optimizer`; `the forward` alone."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else f"the {names[0]}"


def taking(vitals: Vitals) -> str:
    """`forward, backward and optimizer take`, `the forward takes`."""
    names = phases(vitals)
    return f"{joined(names)} take{'' if len(names) > 1 else 's'}"


def hot_lines(vitals: Vitals, phases: Iterable[str]) -> tuple[str, ...]:
    """The dearest lines of the user's code in some phases, as evidence: of the training thread (see `fetch_lines`)."""
    return dearest_lines(vitals.lines_in(*phases), vitals.source)


def dearest_lines(lines: Iterable[LineCost], source: str = "") -> tuple[str, ...]:
    """The dearest of some line costs in words, each line once: what it costs in other phases and inside torch added."""
    once: dict[tuple[str, int, str], LineCost] = {}
    for one in lines:
        place = one.file, one.line, one.function
        before = once.get(place)
        once[place] = one if before is None else replace(before, share=before.share + one.share)
    named = sorted((one for one in once.values() if one.share >= SEEN_SHARE), key=lambda one: -one.share)
    return tuple(line_text(one, source) for one in named[:MOST_LINES])


def inside_fetch(vitals: Vitals) -> list[LineCost]:
    """Line costs inside the fetch of a batch (`__getitem__`, `collate_fn`), wherever it runs, as parts of the fetch.

    With workers these are lines seen inside of them; without, those of the training thread while it waits for data.
    """
    inside = [one for one in vitals.lines if one.in_worker]
    if inside or vitals.workers:
        return inside
    waits = vitals.lines_in("data_wait")
    whole = total(waits)
    return [replace(one, share=one.share / whole) for one in waits if whole > 0]


def around_the_loop(vitals: Vitals) -> tuple[str, ...]:
    """A sentence on what takes a tenth of the run before its first step or after its last one, with its line."""
    told = []
    for phase, share, when in (
        (BEFORE, vitals.before_share, "before the first step"),
        (AFTER, vitals.after_share, "after the last step"),
    ):
        line = max((one for one in vitals.around if one.phase == phase), key=lambda one: one.share, default=None)
        if share is not None and line is not None and min(share, line.share) >= AROUND_SHARE:
            spent = formatting.share(min(line.share, share))
            told.append(f"`{formatting.clean(line.text, 60)}` takes {spent} of the run {when}.")
    return tuple(told)


def fetch_lines(vitals: Vitals) -> tuple[str, ...]:
    """The dearest lines inside the fetch of a batch, as evidence; where workers were not looked into, of the wait."""
    inside = inside_fetch(vitals)
    if not inside and vitals.workers:
        return hot_lines(vitals, ("data_wait",))
    return tuple(text.replace(" at ", " of the fetch at ", 1) for text in dearest_lines(inside, vitals.source))


def stock_line(vitals: Vitals) -> tuple[str, ...]:
    """How often the loop found no batch ready, as evidence; empty where nobody counted."""
    empty, ready = vitals.empty_share, vitals.ready_batches
    if empty is None or ready is None:
        return ()
    return (f"{formatting.share(empty)} of requests found no batch ready ({formatting.average(ready)} on average)",)


def chore_line(chore: Chore) -> tuple[str, ...]:
    """The line that makes a costly call most often, as evidence; empty where none is known."""
    if not chore.text:
        return ()
    return (f"at {place(chore.file)} line {chore.line} in {chore.function}: {chore.text}",)


def edge_line(vitals: Vitals) -> str:
    """How long epochs begin, as evidence."""
    return (
        f"{formatting.count(vitals.edges, 'epoch')} began during the measured steps, each after a wait of "
        f"{formatting.seconds(vitals.edge_s)}, of which fetching a batch takes "
        f"{formatting.seconds(vitals.fetch_wall_s or 0.0)}"
    )


def retries(vitals: Vitals) -> tuple[str, ...]:
    """How often torch's allocator had to give back what it had cached, as evidence; empty if never."""
    if not vitals.alloc_retries:
        return ()
    allocations = formatting.count(vitals.alloc_retries, "allocation")
    return (f"{allocations} succeeded only after the allocator had released its cache",)


def least_available(vitals: Vitals) -> tuple[str, ...]:
    """What was left of the host's memory at the fullest moment, as evidence; empty where nobody looked."""
    left, total = vitals.host_memory_available_bytes, vitals.host_memory_total_bytes
    if left is None or total is None:
        return ()
    return (f"the lowest available memory was {formatting.size(left)} of {formatting.size(total)}",)


def widths(text: str) -> tuple[int, ...]:
    """Those at the end of `head: Linear 768 x 50257`."""
    found = _SIZES.search(text)
    return tuple(int(one) for one in found.group().split(" x ")) if found else ()


def place(file: str) -> str:
    """`cell`, or a file by its name."""
    return "cell" if "ipykernel" in file or file.startswith("<") else PurePath(file).name


def sizes(shape: Sequence[int]) -> str:
    """`128 x 64`."""
    return " x ".join(str(length) for length in shape)


def uncompiled(inputs: InputFacts) -> str:
    """That a model is not compiled, and which shapes it gets, as evidence."""
    shape = sizes(inputs.shape)
    fixed = f"always {shape}" if inputs.shapes == 1 else f"{shape} except for a last batch"
    return f"the model is not compiled, and its input is {fixed}"


def line_text(cost: LineCost, source: str = "") -> str:
    """`31 % at cell line 7 in train: plot(history)`; another cell's, where the cell's `source` has no such line."""
    cell, lines = place(cost.file), source.split("\n")
    if source and cell == "cell" and cost.text and cost.text.strip() not in "".join(lines[cost.line - 1 : cost.line]):
        cell = "another cell's"
    return f"{formatting.share(cost.share)} at {cell} line {cost.line} in {cost.function}: {cost.text}"
