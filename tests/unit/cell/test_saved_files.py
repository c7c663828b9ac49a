"""Which lines write data to files is read off the text; logs and what torch.save does are others'."""

from __future__ import annotations

import pytest

from gpu_doctor.cell import saving_rows

WITH = """import os
for x, y in loader:
    train(x, y)
    with open(path, "wb") as f:
        torch.save(model.state_dict(), f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path, final)
"""
BY_NAME = """f = open("rows.bin", mode="wb")
for x, y in loader:
    out = train(x, y)
    for row in out:
        f.write(row.numpy().tobytes())
    seen += 1
f.close()
"""
LOG = """log = open("log.txt", "w")
for x, y in loader:
    loss = train(x, y)
    log.write(f"{loss}")
    log.flush()
    os.fsync(log.fileno())
    with open("labels.bin", "rb") as f:
        labels = f.read()
"""


def test_a_file_opened_for_bytes() -> None:
    assert saving_rows(WITH) == {4, 6, 7, 8}, "torch.save is heard by the clock"
    assert saving_rows(BY_NAME) == {1, 5, 7}


def test_a_log_and_what_is_read() -> None:
    assert saving_rows(LOG) == frozenset()


def test_a_loop_inside_of_an_open_file_is_not_all_writing() -> None:
    text = 'with Path("a").open("wb") as f:\n    for x in loader:\n        y = model(x)\n        f.write(y)\n'
    assert saving_rows(text) == {1, 4}


@pytest.mark.parametrize(
    "line",
    [
        "np.save(path, out.numpy())",
        "numpy.savez_compressed(path, a=out)",
        "pickle.dump(state, f)",
        "out.numpy().tofile(path)",
        "Path(path).write_bytes(blob)",
        "import joblib as j; j.dump(state, path)",
        "from shutil import copyfile as keep; keep(a, b)",
    ],
)
def test_what_writes_by_itself(line: str) -> None:
    assert saving_rows(line) == {1}


@pytest.mark.parametrize(
    "line",
    [
        *("torch.save(state, path)", "save_file(state, path)", "json.dump(state, f)", "plt.savefig(path)"),
        *(
            "from torch import save; save(state, path)",
            "print(loss)",
            "out = np.load(path)",
            "x = (",
            "open(path, 'rb')",
        ),
        "from safetensors.torch import save_file; save_file(state, path)",
    ],
)
def test_what_does_not(line: str) -> None:
    assert saving_rows(line) == frozenset()
