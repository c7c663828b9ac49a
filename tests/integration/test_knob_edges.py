"""Every knob on loops of every kind, made in the cell and before it: what a real run then had, and what is put back."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor
from gpu_doctor.recording import Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.amp.knob import lstm_in_bf16
from gpu_doctor.trials.knobs.knob import Refused
from gpu_doctor.trials.side_effects.leftover_workers import shut_down
from tests.support.cells import CELLS, names
from tests.support.leftovers import one_thread as one_thread

pytestmark = pytest.mark.slow

WANTED: Final[dict[str, Any]] = {
    "num_workers": 1,
    "batch_size": 6,
    "amp": "bf16",
    "prefetch_factor": 4,
    "persistent_workers": True,
    "channels_last": True,
    "fused_optimizer": True,
    "threads": 2,
}
TURNED: Final = [name for name, cell in CELLS.items() if cell.knobs]
PLAIN: Final = CELLS["plain SGD"]


def seen(setup: Setup) -> dict[str, Any]:
    """What a run really had, read off the objects it trained with."""
    loader, facts = setup.training_loader, setup.optimizer_facts
    assert loader is not None and facts
    return {
        "num_workers": loader.num_workers,
        "batch_size": loader.batch_size,
        "prefetch_factor": loader.prefetch_factor,
        "persistent_workers": loader.persistent_workers,
        "amp": {"bfloat16": "bf16"}.get(setup.autocast, "off"),
        "channels_last": setup.model is not None and 0 < setup.model.channels_last == setup.model.convolutions,
        "fused_optimizer": all(one.fused is True for one in facts),
        "threads": setup.torch_threads,
    }


def made(name: str, where: str, code: str = "") -> gpu_doctor.Case:
    """A cell as a case, or other code behind its earlier cells; its objects are made before the code or in it."""
    space, code = names(), code or CELLS[name].code
    if where == "before":
        exec(CELLS[name].setup, space)
        return gpu_doctor.case(code, space)
    return gpu_doctor.case(CELLS[name].setup + code, space)


@pytest.mark.parametrize("where", ["before", "inside"])
@pytest.mark.parametrize("name", TURNED)
def test_every_knob_on_every_kind_of_loop(name: str, where: str) -> None:
    case = made(name, where)
    as_written = seen(case.run(steps=3).setup)
    found = case.found
    assert found is not None
    refused = {knob: said for knob, said in CELLS[name].refuses.items() if "=" not in knob}
    if "LSTM" in found.layers and not lstm_in_bf16():
        refused["amp"] = "LSTM fails in bf16 on this CPU"
    if name != "convolutions":
        refused["channels_last"] = "no 2D convolutions"
    for knob, said in refused.items():
        value = 2 if knob == "num_workers" else WANTED[knob]  # one worker repeats nothing of a stream
        effect = case.trial({knob: value}, steps=2)
        assert effect.outcome == "refused" and said in effect.reason
    wanted = {knob: value for knob, value in WANTED.items() if knob not in refused}
    if name == "an output as Hugging Face's":
        del wanted["amp"]  # numpy takes no bfloat16: its loop hands the model's outputs over
    for knob, value in as_written.items():
        assert knobs.KNOBS[knob].found(found) in (value, None)
    recording = case.run(wanted, steps=3)
    now = seen(recording.setup)
    assert {knob: now[knob] for knob in wanted if knob in now} == {k: v for k, v in wanted.items() if k in now}
    assert len(recording.steps) >= 3
    if where == "before":  # what was made before is as it was, and a run as written again has what it had
        again = seen(case.run(steps=3).setup)
        assert again == as_written
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    "name",
    [
        "convolutions",
        "GAN with two optimizers",
        "a model that returns a dict",
        "an output as Hugging Face's",
    ],
)
def test_compile_on_loops_of_several_kinds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written, graphs = torch.compile, []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", lambda model, **how: written(model, **{**how, "backend": backend}))
    for where in ("before", "inside"):
        case = made(name, where)
        case.run(steps=3)
        torch._dynamo.reset()  # what it compiled for a model that was at the same address would be taken again
        graphs.clear()
        effect = case.trial({"compile": True}, steps=3, seconds=20, pairs=1)
        assert effect.outcome in ("completed", "budget-reached"), effect.reason
        assert graphs
        setup = case.trials[-1][1].setup
        assert setup.model is not None and setup.model.compiled
    torch._dynamo.reset()


def test_a_sampler_with_a_generator_draws_the_same_rows_and_is_put_back() -> None:
    case = made("a weighted sampler with a generator", "before")
    space = case.namespace
    state = space["generator"].get_state()
    loader, was = space["loader"], dict(vars(space["loader"]))
    effect = case.trial({"num_workers": 1}, steps=6, seconds=20, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    assert effect.loss_verdict == "same" and not effect.loss_drift, effect
    assert torch.equal(space["generator"].get_state(), state) and vars(loader) == was


def test_a_schedule_made_in_the_cell_follows_the_batch_size() -> None:
    case = made("a schedule over len(loader)", "inside")
    case.run()
    for size in (3, 24):
        recording = case.run({"batch_size": size})
        assert recording.outcome == "completed" and len(recording.steps) == 2 * 96 // size


def test_a_schedule_made_before_the_cell_fails_as_it_would_by_hand_and_all_is_put_back() -> None:
    schedule, _, loop = CELLS["a schedule over len(loader)"].code.lstrip().partition("\n")
    case = made("a schedule over len(loader)", "before", loop)
    space = case.namespace
    exec(schedule, space)
    before = {name: value.clone() for name, value in space["net"].state_dict().items()}
    effect = case.trial({"batch_size": 3}, steps=200, seconds=30)
    assert effect.outcome == "failed" and "Tried to step" in effect.reason
    assert space["schedule"].last_epoch == 0 and len(space["loader"]) == 24
    assert all(torch.equal(value, before[name]) for name, value in space["net"].state_dict().items())


def test_a_stream_that_shards_gives_every_item_once() -> None:
    rows = "rows = [row for x, y in loader for row in x]\n"
    case = made("a stream that shards", "inside", rows + CELLS["a stream that shards"].code)
    case.run()
    case.run({"num_workers": 2})
    found = {tuple(row.tolist()) for row in case.namespace["rows"]}
    assert len(case.namespace["rows"]) == len(found) == 96


def test_a_loader_left_of_an_earlier_version_of_the_cell_is_in_nobodys_way() -> None:
    left = names()
    exec(CELLS["a stream that does not shard"].setup, left)
    case = made("a stream that shards", "inside")
    case.run(steps=3)
    assert case.run({"num_workers": 2}, steps=3).setup.loaders[0].num_workers == 2
    assert left["loader"].num_workers == 0


def test_loaders_drawn_from_together_get_workers_together() -> None:
    for where in ("before", "inside"):
        case = made("two loaders zipped", where)
        case.run()
        loaders = case.run({"num_workers": 1}, steps=4).setup.loaders
        assert [one.num_workers for one in loaders] == [1, 1]


ALTERNATING: Final = """
for epoch in range(2):
    for x, y in wide:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
    for x, y in other:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
"""


def test_loaders_of_several_batch_sizes_keep_their_ratio() -> None:
    case = made("plain SGD", "before", ALTERNATING)
    space = case.namespace
    exec("wide, other = DataLoader(Items(xs, ys), 24), DataLoader(Items(xs, ys), 16)", space)
    case.run()
    sizes = {one.batch_size for one in case.run({"batch_size": 12}).setup.loaders}
    assert sizes == {12, 8}
    with pytest.raises(Refused, match=r"batch size 24 and 16.*a multiple of 3"):
        case.run({"batch_size": 10})
    assert (space["wide"].batch_size, space["other"].batch_size) == (24, 16)


NEVER: Final = "ran = []\n" + PLAIN.setup + "ran.append(1)\n" + PLAIN.code


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"num_workers": 257}, "from 0 to 256"),
        ({"num_workers": 10**20}, "from 0 to 256"),
        ({"threads": 100_000}, "from 1 to 256"),
        ({"batch_size": 10**12}, "from 1 to 2147483647"),
        pytest.param(
            {"amp": "fp16"},
            "slow on a CPU",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="fp16 is its own"),
        ),
    ],
)
def test_what_would_take_the_machine_down_or_fail_half_way_is_refused_before_the_cell_runs(
    settings: dict[str, Any], said: str
) -> None:
    case = gpu_doctor.case(NEVER, names())
    with pytest.raises(Refused, match=said):
        case.run(settings)
    assert "ran" not in case.namespace
    assert said in case.trial(settings, steps=2).reason


SCRIPT: Final = """
import multiprocessing, sys, torch
import gpu_doctor
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)

class Rows(Dataset):
    def __len__(self):
        return 8000
    def __getitem__(self, i):
        return torch.ones(4)

def main():
    multiprocessing.set_start_method(METHOD)
    net = torch.nn.Linear(4, 1)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    names = {"net": net, "opt": opt, "loader": DataLoader(Rows(), 8)}
    case = gpu_doctor.case("for x in loader:\\n    net(x).sum().backward()\\n    opt.step()\\n", names)
    case.run(steps=3)
    effect = case.trial({"num_workers": 1}, steps=3, seconds=60, pairs=1)
    print("OUTCOME", effect.outcome, effect.reason)

"""


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ('if __name__ == "__main__":\n    main()\n', "OUTCOME budget-reached"),
        ("main()\n", "OUTCOME refused Workers start by METHOD and"),
    ],
)
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_dataset_of_the_script_that_workers_import(method: str, end: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.replace("METHOD", repr(method)) + end)
    root = Path(gpu_doctor.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=200, env={"PYTHONPATH": str(root)}
    )
    assert said.replace("METHOD", method) in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_dataset_of_the_notebook_under(method: str) -> None:
    """In a notebook `__main__` has no file that a worker could import."""
    code = textwrap.dedent(SCRIPT.replace("METHOD", repr(method))) + "main()\n"
    wrapped = f"import sys; del sys.modules['__main__'].__file__\nexec({code!r}, vars(sys.modules['__main__']))\n"
    root = Path(gpu_doctor.__file__).parents[1]
    path = f"import sys; sys.path.insert(0, {str(root)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", path + wrapped.replace("del sys.modules['__main__'].__file__", "pass")],
        capture_output=True,
        text=True,
        timeout=200,
    )
    said = done.stdout + done.stderr
    assert f"OUTCOME refused Workers start by {method}" in done.stdout, said
    assert "but dataset is defined in the notebook" in done.stdout, said


@pytest.mark.timeout(300)
def test_a_loader_of_a_forkserver_with_persistent_workers_is_turned_and_put_back() -> None:
    """Without workers torch takes no multiprocessing_context: it goes with them and comes back with them."""
    rows = TensorDataset(torch.arange(96.0).reshape(96, 1))
    loader = DataLoader(rows, 8, num_workers=1, multiprocessing_context="forkserver", persistent_workers=True)
    net = torch.nn.Linear(1, 1)
    space = {"net": net, "opt": torch.optim.SGD(net.parameters(), 1e-6), "loader": loader}
    case = gpu_doctor.case("for (x,) in loader:\n    net(x).sum().backward()\n    opt.step()\n", space)
    case.run()
    workers, written = loader._iterator, {**vars(loader)}
    assert workers is not None
    try:
        for value in (2, 0):
            effect = case.trial({"num_workers": value}, steps=6, seconds=40, pairs=1)
            assert effect.outcome in ("completed", "budget-reached") and effect.speedup, str(effect)
            assert [one.num_workers for one in case.trials[-1][1].setup.loaders] == [value]
            assert vars(loader) == written and loader._iterator is workers
            assert loader.multiprocessing_context.get_start_method() == "forkserver"
        assert [len(x) for (x,) in loader] == [8] * 12, "its own workers still deliver"
    finally:
        shut_down(loader._iterator)


def test_a_number_of_numpys_or_torchs_own_is_pythons_own_in_settings_and_in_code() -> None:
    given: dict[str, Any] = {
        "num_workers": np.int64(2),
        "pin_memory": np.True_,
        "batch_size": torch.tensor(8),
        "rate": np.float64(0.5),
    }
    settings = knobs.as_settings(given)
    assert settings == {"num_workers": 2, "pin_memory": True, "batch_size": 8, "rate": 0.5}
    assert [type(value) for value in settings.values()] == [int, bool, int, float]
    cell = "loader = DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=4)\n"
    cell += "for (x,) in loader:\n    model(x).backward()\n"
    fix = gpu_doctor.case(cell, {"DataLoader": DataLoader, "TensorDataset": TensorDataset, "torch": torch}).fix(
        {"num_workers": np.int64(2)},  # type: ignore[dict-item]
        history=[],
    )
    assert "batch_size=4, num_workers=2)" in str(fix)
