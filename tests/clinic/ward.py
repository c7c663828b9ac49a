"""The list of all patients, by family; `--family` takes these names."""

from tests.clinic import (
    card_cells,
    chore_cells,
    compute_cells,
    copy_cells,
    device_cells,
    everyday_host_cells,
    everyday_input_cells,
    healthy_cells,
    host_cells,
    input_cells,
    installed_cells,
    kernel_cells,
    near_miss_cells,
    shape_cells,
    stream_cells,
    worker_cells,
)
from tests.clinic.cell import Patient

FAMILIES: dict[str, tuple[Patient, ...]] = {
    "input": input_cells.CELLS,
    "streams": stream_cells.CELLS,
    "workers": worker_cells.CELLS,
    "host": host_cells.CELLS,
    "chores": chore_cells.CELLS,
    "compute": compute_cells.CELLS,
    "healthy": healthy_cells.CELLS,
    "near-miss": near_miss_cells.CELLS,
    "device": device_cells.CELLS,
    "card": card_cells.CELLS,
    "copies": copy_cells.CELLS,
    "kernels": kernel_cells.CELLS,
    "installed": installed_cells.CELLS,
    "shapes": shape_cells.CELLS,
    "everyday-input": everyday_input_cells.CELLS,
    "everyday-host": everyday_host_cells.CELLS,
}
