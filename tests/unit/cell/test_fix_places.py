"""More places from which a loader gets its arguments, and every setting back off; the fixed cells are run for real."""

from __future__ import annotations

from dataclasses import replace

from gpu_doctor.trials import fix as fixing
from gpu_doctor.trials import knobs
from tests.support.fix_places_parts import ZIPPED
from tests.support.patched_cells import LOOP, PRELUDE, fixed, ran


def test_every_choice_of_every_knob_is_written_or_said() -> None:
    cell = "loader = DataLoader(ds, 16)\n" + LOOP
    case, recording = ran([cell])
    for name, knob in knobs.KNOBS.items():
        for choice in knob.choices(recording.setup):
            fix = case.fix({name: choice.value}, [PRELUDE])
            assert fix.complete or (fix.notes and fix.paste), (name, choice)
            assert all(note[0].isalnum() and note.endswith(".") and "\n" not in note for note in fix.notes), fix.notes


def test_batches_of_several_training_loaders_keep_their_ratio() -> None:
    case, recording = ran([ZIPPED])
    setup = recording.setup
    train = replace(setup, loaders=tuple(replace(one, role="training") for one in setup.loaders))
    fix = fixing.fix([ZIPPED], {"batch_size": 8}, train, str, case.namespace)
    assert fix.complete and "DataLoader(ds, 8), DataLoader(val_ds, batch_size=2)\n" in fix.cells[0].after
    fix = fixing.fix([ZIPPED], {"batch_size": 6}, train, str, case.namespace)
    assert "DataLoader(ds, 6), DataLoader(val_ds, batch_size=4)\n" in fix.cells[0].after
    assert fix.notes == (
        "Another training loader was not changed. Its batch size of 4 keeps the ratio only if you choose a multiple of "
        "4.",
    )


def test_loaders_that_nothing_tells_apart_and_that_all_train() -> None:
    cell = "a = DataLoader(ds, 16)\nb = DataLoader(ds, 16)\n" + LOOP.replace("for x in loader", "for x, y in zip(a, b)")
    fix, cells = fixed([cell], {"num_workers": 1})
    assert fix.complete and cells[0].count("num_workers=1") == 2, str(fix)
