"""The user's cell as text: what its lines do, and how a change is written into them.

Nothing is run here, and nothing is known of torch beyond the names that people write: every answer is read off the
syntax tree.
"""

from gpu_doctor.cell.fix import Fix, FixedCell
from gpu_doctor.cell.ignore import hushed
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
    "hushed",
    "is_among",
    "kept_graphs",
    "reaches",
]
