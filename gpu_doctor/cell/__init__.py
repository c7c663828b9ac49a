"""Reads the user's cell as text, and writes changes into it.

No code of the user's is run, and torch is known only by the names that people write: every answer comes from the syntax
tree and from the objects that names already hold.
"""

from gpu_doctor.cell.fix import Fix, FixedCell
from gpu_doctor.cell.ignore import ignored_rules
from gpu_doctor.cell.in_place import Changed, changed_in_place
from gpu_doctor.cell.loop import Edits, LoopLines, NotPlaced
from gpu_doctor.cell.reaching_out import NETWORK, PROCESSES, Reach, called_names, full_names_called, is_among, reaches
from gpu_doctor.cell.retained_graphs import Kept, kept_graphs
from gpu_doctor.cell.source import CellSource, Edit

__all__ = [
    "NETWORK",
    "PROCESSES",
    "CellSource",
    "Changed",
    "Edit",
    "Edits",
    "Fix",
    "FixedCell",
    "Kept",
    "LoopLines",
    "NotPlaced",
    "Reach",
    "called_names",
    "changed_in_place",
    "full_names_called",
    "ignored_rules",
    "is_among",
    "kept_graphs",
    "reaches",
]
