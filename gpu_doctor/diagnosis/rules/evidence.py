"""Sentences of evidence that several rules share: on phases, costly calls, and lines of the user's code."""

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
"""Most lines of the user's code that one finding names."""
_SIZES = re.compile(r"\d+(?: x \d+)+$")
AROUND_SHARE = 0.10
"""Smallest part of the run that code before or after the loop must take to be reported."""
SEEN_SHARE = 0.02
"""Smallest share of the wall-clock from which a line is named."""


def gpu_or_loop(vitals: Vitals) -> str:
    """Returns what waits when data is late: `GPU` if the loop trains on one, else `loop`."""
    return "GPU" if vitals.on_gpu else "loop"


def phases(vitals: Vitals) -> list[str]:
    """Names the phases that this loop computes in: a loop that predicts has no backward and no optimizer."""
    found = ["forward"]
    found += ["backward"] if not vitals.predicts else []
    return found + (["optimizer"] if vitals.optimizer_share or vitals.setup.optimizers else [])


def joined(names: Sequence[str]) -> str:
    """Joins names for a sentence: `forward, backward and optimizer`, or `the forward` if there is only one."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else f"the {names[0]}"


def phases_take(vitals: Vitals) -> str:
    """Names the computing phases with their verb: `forward, backward and optimizer take`, `the forward takes`."""
    names = phases(vitals)
    return f"{joined(names)} take{'' if len(names) > 1 else 's'}"


def hot_lines(vitals: Vitals, phases: Iterable[str]) -> tuple[str, ...]:
    """Returns the costliest lines of the user's code in some phases, as evidence.

    They are lines of the training thread; `fetch_lines` covers the workers.
    """
    return costliest_lines(vitals.lines_in(*phases), vitals.source)


def costliest_lines(lines: Iterable[LineCost], source: str = "") -> tuple[str, ...]:
    """Describes the costliest of some lines, each line once.

    A line's share adds up its costs: in each phase, in Python, and inside torch.
    """
    once: dict[tuple[str, int, str], LineCost] = {}
    for cost in lines:
        place = cost.file, cost.line, cost.function
        before = once.get(place)
        once[place] = cost if before is None else replace(before, share=before.share + cost.share)
    named = sorted((cost for cost in once.values() if cost.share >= SEEN_SHARE), key=lambda cost: -cost.share)
    return tuple(line_text(cost, source) for cost in named[:MOST_LINES])


def inside_fetch(vitals: Vitals) -> list[LineCost]:
    """Returns line costs inside the fetch of a batch (`__getitem__`, `collate_fn`), as parts of the fetch.

    With workers these are lines sampled in the workers; without, lines of the training thread while it waits for data.
    """
    inside = [cost for cost in vitals.lines if cost.in_worker]
    if inside or vitals.workers:
        return inside
    waits = vitals.lines_in("data_wait")
    whole = total(waits)
    return [replace(cost, share=cost.share / whole) for cost in waits if whole > 0]


def around_the_loop(vitals: Vitals) -> tuple[str, ...]:
    """Returns sentences on lines that take a tenth of the run or more before its first step or after its last one."""
    sentences = []
    for phase, share, when in (
        (BEFORE, vitals.before_share, "before the first step"),
        (AFTER, vitals.after_share, "after the last step"),
    ):
        line = max((cost for cost in vitals.around if cost.phase == phase), key=lambda cost: cost.share, default=None)
        if share is not None and line is not None and min(share, line.share) >= AROUND_SHARE:
            spent = formatting.share(min(line.share, share))
            sentences.append(f"`{formatting.clean(line.text, 60)}` takes {spent} of the run {when}.")
    return tuple(sentences)


def fetch_lines(vitals: Vitals) -> tuple[str, ...]:
    """Returns the costliest lines inside the fetch of a batch, as evidence.

    If the workers were not sampled, these are lines of the training thread while it waits for data.
    """
    inside = inside_fetch(vitals)
    if not inside and vitals.workers:
        return hot_lines(vitals, ("data_wait",))
    return tuple(text.replace(" at ", " of the fetch at ", 1) for text in costliest_lines(inside, vitals.source))


def stock_line(vitals: Vitals) -> tuple[str, ...]:
    """Says how often the loop found no batch ready, as evidence; empty if it was not counted."""
    empty, ready = vitals.empty_share, vitals.ready_batches
    if empty is None or ready is None:
        return ()
    return (f"{formatting.share(empty)} of requests found no batch ready ({formatting.average(ready)} on average)",)


def chore_line(chore: Chore) -> tuple[str, ...]:
    """Names the line that makes a costly call most often, as evidence; empty if it is not known."""
    if not chore.text:
        return ()
    return (f"at {place(chore.file)} line {chore.line} in {chore.function}: {chore.text}",)


def epoch_start_line(vitals: Vitals) -> str:
    """Says how long the waits at the start of epochs took, as evidence."""
    return (
        f"{formatting.count(vitals.edges, 'epoch')} began during the measured steps, each after a wait of "
        f"{formatting.seconds(vitals.edge_s)}, of which fetching a batch takes "
        f"{formatting.seconds(vitals.fetch_wall_s or 0.0)}"
    )


def retries(vitals: Vitals) -> tuple[str, ...]:
    """Says how often torch's allocator had to release its cache, as evidence; empty if never."""
    if not vitals.alloc_retries:
        return ()
    allocations = formatting.count(vitals.alloc_retries, "allocation")
    return (f"{allocations} succeeded only after the allocator had released its cache",)


def least_available(vitals: Vitals) -> tuple[str, ...]:
    """Says how little of the host's memory was ever available, as evidence; empty if it was not measured."""
    lowest, total = vitals.host_memory_available_bytes, vitals.host_memory_total_bytes
    if lowest is None or total is None:
        return ()
    return (f"the lowest available memory was {formatting.size(lowest)} of {formatting.size(total)}",)


def widths(text: str) -> tuple[int, ...]:
    """Returns the sizes at the end of a layer's description: `head: Linear 768 x 50257` gives (768, 50257)."""
    found = _SIZES.search(text)
    return tuple(int(size) for size in found.group().split(" x ")) if found else ()


def place(file: str) -> str:
    """Returns `cell` for code of a notebook cell, else the file's name without its folder."""
    return "cell" if "ipykernel" in file or file.startswith("<") else PurePath(file).name


def sizes(shape: Sequence[int]) -> str:
    """Formats a shape: `128 x 64`."""
    return " x ".join(str(length) for length in shape)


def uncompiled(inputs: InputFacts) -> str:
    """Says that the model is not compiled and which shape its input has, as evidence."""
    shape = sizes(inputs.shape)
    fixed = f"always {shape}" if inputs.shapes == 1 else f"{shape} except for a last batch"
    return f"the model is not compiled, and its input is {fixed}"


def line_text(cost: LineCost, source: str = "") -> str:
    """Describes what a line costs: `31 % at cell line 7 in train: plot(history)`.

    Says `another cell's line` if `source`, the text of this cell, has no such line there.
    """
    cell, lines = place(cost.file), source.split("\n")
    if source and cell == "cell" and cost.text and cost.text.strip() not in "".join(lines[cost.line - 1 : cost.line]):
        cell = "another cell's"
    return f"{formatting.share(cost.share)} at {cell} line {cost.line} in {cost.function}: {cost.text}"
