"""What every knob claims, one table a claim: found, offered, refused, typed, pasted, turned, put back.

What is particular to a knob stands in a file of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import gpu_doctor
from gpu_doctor.capture import patching
from gpu_doctor.capture.describe import loaders
from gpu_doctor.recording import DeviceSetup, Settings, Setup
from gpu_doctor.recording.setup import ModelFacts, OptimizerFacts
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.knob import Refused, TrialScope
from tests.support.cells import CELLS, ended, notebook
from tests.support.everything import Everything
from tests.support.looking_on import Seen, looking


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(10))


def loader(**options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(100)), **{"batch_size": 16, **options})


def setup_of(made: DataLoader[Any], role: str = "training", **more: Any) -> Setup:
    return Setup(loaders=(loaders.describe(made, role=role),), **more)


def but(setup: Setup, **changed: Any) -> Setup:
    return dataclasses.replace(setup, **changed)


NO_RUN: Final = Setup()
NO_TORCH: Final = Setup(torch_version="2")
"""A run was recorded, in which nothing was found that a knob could turn."""
PLAIN: Final = setup_of(loader())
WORKERS: Final = setup_of(loader(num_workers=2))
STREAM: Final = setup_of(DataLoader(Stream()))
SAMPLED: Final = setup_of(DataLoader(TensorDataset(torch.arange(4)), batch_sampler=[[0, 1]]))
CARD: Final = (DeviceSetup(0, "NVIDIA A100", capability=(8, 0)),)
TURING: Final = (DeviceSetup(0, "Tesla T4", capability=(7, 5)),)
A100: Final = Setup(device="cuda:0", devices=CARD, dtype="float32", flags={"matmul_precision": "highest"})
RESNET: Final = Setup(device="cuda:0", layers={"Conv2d": 53, "Linear": 1}, flags={"cudnn_benchmark": False})
IMAGES: Final = Setup(optimizers=("SGD",), layers={"Conv2d": 2}, model=ModelFacts(convolutions=2))
ADAM: Final = Setup(optimizers=("Adam",), optimizer_facts=(OptimizerFacts("Adam", 4, 100, can_fuse=True),))
FUSED: Final = but(ADAM, optimizer_facts=(OptimizerFacts("Adam", 4, 100, fused=True, can_fuse=True),))
RMS: Final = Setup(optimizers=("RMSprop",), optimizer_facts=(OptimizerFacts("RMSprop", 4, 100),))
FLOATS: Final = Setup(optimizers=("SGD",), models=("Net",), dtype="float32", parameters=10)
CASTING: Final = but(FLOATS, autocast="bfloat16")
ON_T4: Final = but(FLOATS, device="cuda:0", devices=TURING)
MODEL: Final = Setup(optimizers=("SGD",), model=ModelFacts())
PARALLEL: Final = "DistributedDataParallel"


@pytest.mark.parametrize(
    ("name", "setup", "found", "offered"),
    [
        ("num_workers", but(setup_of(loader(num_workers=3)), usable_cores=2.0), 3, [0, 1, 2, 3, 4, 8]),
        ("batch_size", PLAIN, 16, [4, 8, 16, 32, 64]),
        ("batch_size", setup_of(loader(batch_size=1)), 1, [1, 2, 4, 8]),
        ("prefetch_factor", WORKERS, 2, [1, 2, 4, 8, 16]),
        ("persistent_workers", PLAIN, False, [False, True]),
        ("pin_memory", PLAIN, False, [False, True]),
        ("amp", FLOATS, "off", ["off", "bf16", "fp16"]),
        ("amp", CASTING, "bf16", ["off", "bf16", "fp16"]),
        ("channels_last", IMAGES, False, [False, True]),
        ("channels_last", but(IMAGES, model=ModelFacts(convolutions=2, channels_last=2)), True, [False, True]),
        ("compile", MODEL, False, [False, True]),
        ("compile", but(MODEL, model=ModelFacts(compiled=True)), True, [False, True]),
        ("fused_optimizer", ADAM, False, [False, True]),
        ("fused_optimizer", FUSED, True, [False, True]),
        ("tf32", A100, False, [False, True]),
        ("tf32", but(A100, flags={"matmul_precision": "high"}), True, [False, True]),
        ("cudnn_benchmark", RESNET, False, [False, True]),
        ("threads", Setup(torch_threads=3, usable_cores=4.0), 3, [1, 2, 3, 4]),
    ],
)
def test_what_is_found_is_offered_among_others(name: str, setup: Setup, found: Any, offered: list[Any]) -> None:
    knob = knobs.KNOBS[name]
    assert knob.found(setup) == found
    assert [choice.value for choice in knob.choices(setup)] == offered
    assert {choice.value: choice.refusal for choice in knob.choices(setup)}[found] == ""


@pytest.mark.parametrize(
    ("name", "setup", "label"),
    [("amp", CASTING, "bf16 (yours)"), ("compile", MODEL, "on (first steps take seconds to minutes)")],
)
def test_a_value_is_labelled_with_what_to_know_of_it(name: str, setup: Setup, label: str) -> None:
    assert label in [choice.label for choice in knobs.KNOBS[name].choices(setup)]


@pytest.mark.parametrize("name", [name for name in knobs.KNOBS if name not in ("amp", "threads")])
def test_where_there_is_nothing_to_turn_nothing_is_found(name: str) -> None:
    assert knobs.KNOBS[name].found(NO_RUN) is None


@pytest.mark.parametrize(
    ("name", "value", "setup", "says"),
    [
        ("num_workers", 2, STREAM, "get_worker_info"),
        ("num_workers", 0, STREAM, ""),
        ("num_workers", 1, STREAM, ""),
        ("num_workers", 1, setup_of(DataLoader(Stream(), num_workers=2)), "get_worker_info"),
        ("num_workers", 2, setup_of(loader(), "evaluation"), "no DataLoader"),
        ("num_workers", 2, NO_TORCH, "no DataLoader"),
        ("batch_size", 4, SAMPLED, "batch_sampler"),
        ("batch_size", 4, setup_of(loader(batch_size=None)), "whole batches"),
        ("batch_size", 101, setup_of(loader(drop_last=True)), "100 samples"),
        ("batch_size", 4, NO_TORCH, "no DataLoader"),
        ("batch_size", 4, NO_RUN, ""),
        ("prefetch_factor", 8, PLAIN, "num_workers above 0"),
        ("persistent_workers", True, PLAIN, "num_workers above 0"),
        ("persistent_workers", True, WORKERS, ""),
        ("pin_memory", True, PLAIN, "No GPU"),
        ("pin_memory", True, but(PLAIN, devices=CARD), "trains on the CPU"),
        ("pin_memory", True, but(PLAIN, device="cuda:0"), ""),
        ("pin_memory", True, NO_TORCH, "no DataLoader"),
        ("amp", "bf16", FLOATS, ""),
        ("amp", "fp16", FLOATS, "slow on a CPU"),
        ("amp", "bf16", ON_T4, "Tesla T4"),
        ("amp", "fp16", ON_T4, ""),
        ("amp", "fp16", but(ON_T4, optimizers=("Adam", "Adam")), "more than one optimizer"),
        ("amp", "fp16", but(ON_T4, optimizers=("LBFGS",)), "LBFGS"),
        ("amp", "bf16", but(FLOATS, dtype="bfloat16"), "bfloat16"),
        ("amp", "bf16", but(FLOATS, device="mps"), "mps"),
        ("amp", "bf16", NO_TORCH, "No torch optimizer"),
        ("amp", "off", CASTING, ""),
        ("amp", "fp16", CASTING, "itself"),
        ("channels_last", True, IMAGES, ""),
        ("channels_last", True, Setup(optimizers=("SGD",), layers={"Linear": 3}), "no 2D convolutions"),
        ("channels_last", True, NO_TORCH, "No torch optimizer"),
        ("channels_last", True, but(IMAGES, model=ModelFacts(convolutions=2, wrapper=PARALLEL)), "before the model is"),
        ("channels_last", False, but(IMAGES, model=ModelFacts(convolutions=2, channels_last=2)), "change it there"),
        ("compile", True, NO_TORCH, "No torch optimizer"),
        ("compile", True, but(MODEL, model=ModelFacts(wrapper=PARALLEL)), "by hand before"),
        ("compile", False, but(MODEL, model=ModelFacts(compiled=True)), "itself"),
        ("compile", True, but(MODEL, device="mps"), "not on mps"),
        ("fused_optimizer", True, ADAM, ""),
        ("fused_optimizer", True, RMS, "no fused update for RMSprop on cpu"),
        ("fused_optimizer", True, but(RMS, optimizer_facts=None), "RMSprop"),
        ("fused_optimizer", True, NO_TORCH, "No torch optimizer"),
        ("tf32", True, A100, ""),
        ("tf32", True, but(A100, devices=TURING), "Tesla T4 (compute capability 7.5) has no TF32"),
        ("tf32", True, but(NO_TORCH, flags=A100.flags), "trains on the CPU"),
        ("tf32", True, but(A100, device="mps"), "on mps"),
        ("tf32", True, but(A100, dtype="bfloat16"), "bfloat16"),
        ("cudnn_benchmark", True, RESNET, ""),
        ("cudnn_benchmark", True, but(RESNET, layers={"Linear": 3}), "no convolutions"),
        ("cudnn_benchmark", True, but(RESNET, device="cpu"), "does not train on a CUDA device"),
    ],
)
def test_a_value_that_cannot_be_honoured_is_refused_with_the_reason(
    name: str, value: Any, setup: Setup, says: str
) -> None:
    knob = knobs.KNOBS[name]
    said = knob.reason(value, setup)
    assert says in said and bool(said) == bool(says)
    offered = {choice.value: choice.refusal for choice in knob.choices(setup)}
    assert offered.get(value, said) == said or knob.found(setup) == value
    with nullcontext() if not says else pytest.raises(Refused):
        knobs.allow({name: value}, setup)


@pytest.mark.parametrize(
    ("name", "value", "module"),
    [("amp", "fp16", "amp.knob"), ("tf32", True, "tf32"), ("cudnn_benchmark", True, "cudnn_benchmark")],
)
def test_with_no_run_yet_the_machine_itself_is_searched_for_a_card(
    name: str, value: Any, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"gpu_doctor.trials.knobs.{module}.cuda_available", lambda: False)
    monkeypatch.setattr("gpu_doctor.trials.knobs.tf32.cuda_devices", lambda: ())
    with pytest.raises(Refused, match=r"slow on a CPU|No GPU"), knobs.turned({name: value}, TrialScope({})):
        pytest.fail("not reached")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("num_workers=4", 4),
        ("prefetch_factor=4", 4),
        ("amp=off", "off"),
        ("amp = BF16", "bf16"),
        ("amp=float16", "fp16"),
        ("pin_memory=on", True),
    ],
)
def test_a_value_is_typed_as_a_person_types_it(text: str, value: Any) -> None:
    ((_, parsed),) = knobs.parse_assignments([text]).items()
    assert parsed == value and type(parsed) is type(value)


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["num_workers"], "KNOB=VALUE"),
        (["num_workers=two"], "whole number"),
        (["num_workers=-1"], "of at least 0"),
        (["batch_size=0"], "of at least 1"),
        (["prefetch_factor=0"], "of at least 1"),
        (["workers=2"], "knobs are"),
        (["amp=off", "amp=bf16"], "twice"),
        (["amp=int8"], "off, bf16 or fp16"),
        (["pin_memory=maybe"], "True or False"),
    ],
)
def test_a_slip_is_answered_with_the_right_form(typed: list[str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        knobs.parse_assignments(typed)


def test_an_unknown_knob_names_the_nearest() -> None:
    with pytest.raises(Refused, match=r"Did you mean num_workers\?.*batch_size"):
        knobs.allow({"num_worker": 2}, NO_RUN)
    with pytest.raises(Refused, match="no knob named"):
        knobs.allow({"nothing": 2}, NO_RUN)


@pytest.mark.parametrize(
    ("name", "value", "setup", "pasted"),
    [
        ("batch_size", 512, NO_RUN, "DataLoader(..., batch_size=512)"),
        ("threads", 2, NO_RUN, "torch.set_num_threads(2)"),
        ("fused_optimizer", True, ADAM, "optimizer = torch.optim.Adam(model.parameters(), ..., fused=True)"),
        ("tf32", True, A100, 'torch.set_float32_matmul_precision("high")'),
        ("amp", "bf16", FLOATS, "dtype=torch.bfloat16"),
        ("amp", "fp16", FLOATS, "GradScaler"),
        ("compile", True, MODEL, "model.compile()"),
    ],
)
def test_the_lines_to_paste(name: str, value: Any, setup: Setup, pasted: str) -> None:
    assert pasted in knobs.KNOBS[name].code(value, setup)


@pytest.mark.parametrize(
    ("name", "setup"),
    [("amp", FLOATS), ("amp", CASTING), ("channels_last", IMAGES), ("tf32", A100), ("cudnn_benchmark", RESNET)],
)
def test_the_lines_of_every_value_are_python(name: str, setup: Setup) -> None:
    for choice in knobs.KNOBS[name].choices(setup):
        compile(knobs.KNOBS[name].code(choice.value, setup), "<code>", "exec")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("batch_size", "linear scaling"),
        ("persistent_workers", "From the second epoch on, shuffling"),
        ("tf32", ""),
        ("amp", ""),
    ],
)
def test_what_changes_the_training_says_how(name: str, says: str) -> None:
    knob = knobs.KNOBS[name]
    assert knob.changes and says in knob.changes
    assert (knob.safety.value == "changes-training") == (name != "persistent_workers")


# ---- turned for objects that were made before ------------------------------------------------------------------------


def switches() -> tuple[Any, ...]:
    newer = getattr(torch.backends.cuda.matmul, "fp32_precision", "")
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, newer


def of_loader(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda space: vars(space["loader"])[name]


def groups(space: dict[str, Any]) -> Any:
    scales = vars(space["opt"]).get("_step_supports_amp_scaling", False)
    return [(group["fused"], group["foreach"], scales) for group in space["opt"].param_groups]


TURNED: Final[list[tuple[Settings, dict[str, Any], Setup, Callable[[dict[str, Any]], Any], Any]]] = [
    ({"num_workers": 2}, {}, PLAIN, of_loader("num_workers"), 2),
    ({"batch_size": 50}, {}, PLAIN, lambda space: len(space["loader"]), 2),
    ({"prefetch_factor": 8}, {"num_workers": 1}, setup_of(loader(num_workers=1)), of_loader("prefetch_factor"), 8),
    ({"prefetch_factor": 8, "num_workers": 1}, {}, PLAIN, of_loader("prefetch_factor"), 8),
    ({"persistent_workers": True}, {"num_workers": 1}, WORKERS, of_loader("persistent_workers"), True),
    ({"pin_memory": True}, {}, but(PLAIN, device="cuda:0"), of_loader("pin_memory"), True),
    ({"fused_optimizer": True}, {}, ADAM, groups, [(True, None, True)]),
    ({"tf32": True}, {}, A100, lambda space: switches()[:2], ("high", True)),
    ({"tf32": False}, {}, but(A100, flags={"matmul_precision": "high"}), lambda _: switches()[:2], ("highest", False)),
    ({"cudnn_benchmark": True}, {}, RESNET, lambda space: torch.backends.cudnn.benchmark, True),
    ({"threads": 3}, {}, Setup(torch_threads=1), lambda space: torch.get_num_threads(), 3),
]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(("settings", "options", "setup", "read", "inside"), TURNED)
def test_it_is_turned_for_a_run_and_put_back_however_the_run_ends(
    settings: Settings, options: dict[str, Any], setup: Setup, read: Callable[[Any], Any], inside: Any, fails: bool
) -> None:
    net = torch.nn.Linear(2, 1)
    space = {"loader": loader(**options), "opt": torch.optim.Adam(net.parameters()), "net": net}
    before, was, switched = read(space), dict(vars(space["loader"])), switches()
    with pytest.raises(RuntimeError, match="of the loop") if fails else nullcontext():
        with knobs.turned(settings, TrialScope({**space}, setup)):
            assert read(space) == inside
            if fails:
                raise RuntimeError("of the loop")
    assert read(space) == before and vars(space["loader"]) == was and switches() == switched
    assert patching.active() == ()


@pytest.mark.parametrize(
    ("settings", "setup", "sets", "noted"),
    [
        ({"threads": 2}, Setup(torch_threads=1), lambda: torch.set_num_threads(3), True),
        ({"tf32": True}, A100, lambda: torch.set_float32_matmul_precision("highest"), True),
        ({"cudnn_benchmark": True}, RESNET, lambda: setattr(torch.backends.cudnn, "benchmark", False), True),
        ({"cudnn_benchmark": True}, RESNET, lambda: setattr(torch.backends.cudnn, "benchmark", True), False),
    ],
)
def test_code_that_sets_another_value_itself_is_noted(
    settings: Settings, setup: Setup, sets: Callable[[], object], noted: bool
) -> None:
    before, scope = (torch.get_num_threads(), switches(), torch.backends.cudnn.benchmark), TrialScope({}, setup)
    with knobs.turned(settings, scope):
        sets()
    assert (torch.get_num_threads(), switches(), torch.backends.cudnn.benchmark) == before
    assert len(scope.notes) == noted and all("replaced the trial's" in note for note in scope.notes)


def test_several_at_once_deliver_the_same_items_and_leave_no_worker() -> None:
    made = loader(batch_size=20)
    was, settings = dict(vars(made)), {"prefetch_factor": 4, "batch_size": 50, "num_workers": 1}
    with knobs.turned({**settings, "persistent_workers": True}, TrialScope({"made": made}, setup_of(made))):
        assert (made.num_workers, made.prefetch_factor, len(made)) == (1, 4, 2)
        first = None
        for _ in range(2):
            assert [int(x) for (batch,) in made for x in batch] == list(range(100))
            iterator: Any = made._iterator
            assert first in (None, iterator), "the same workers serve both epochs"
            first = iterator
        workers = iterator._workers
    assert vars(made) == was and not any(worker.is_alive() for worker in workers)


# ---- a trial of it ---------------------------------------------------------------------------------------------------


TRIED: Final[list[tuple[Settings, str, Callable[[Seen, Setup], bool]]]] = [
    ({"num_workers": 1}, "", lambda seen, setup: setup.loaders[0].num_workers == 1),
    ({"batch_size": 8}, "", lambda seen, setup: setup.loaders[0].batch_size == 8),
    ({"amp": "bf16"}, "with torch.autocast", lambda seen, _: {*seen.autocast, *seen.results} == {torch.bfloat16}),
    ({"channels_last": True}, "net.to(memory_format=", lambda seen, setup: all(seen.channels_last)),
    ({"fused_optimizer": True}, "", lambda seen, setup: all(seen.fused)),
    ({"threads": 1}, "set_num_threads(1)", lambda seen, _: not any(seen.autocast + seen.fused + seen.channels_last)),
]
"""Settings, the line that the cell gets where its own lines can have them, and what is seen of them in the run."""


@pytest.mark.parametrize("runs", [0, 1])
@pytest.mark.parametrize(("settings", "line", "is_turned"), TRIED)
def test_a_trial_turns_it_and_leaves_everything_bit_for_bit(
    settings: Settings, line: str, is_turned: Callable[[Seen, Setup], bool], runs: int, tmp_path: Path
) -> None:
    """Before the first run of the cell, when the optimizer has no state yet, and after one."""
    cell = dataclasses.replace(CELLS["convolutions"], before=0)
    space = notebook(cell, tmp_path)
    try:
        case = gpu_doctor.case(cell.code, space)
        for _ in range(runs):
            case.run(steps=2)
        before = Everything(space)
        with looking(case, space) as seen:
            effect = case.trial(settings, steps=4, seconds=10.0, pairs=1)
        assert effect.outcome in ("completed", "budget-reached"), effect.reason
        base, candidate = case.trials[-1]
        assert len(seen.fused) >= 4 and is_turned(seen, candidate.setup)
        assert line in candidate.source and (base.source != candidate.source) == bool(line)
        assert before.differences(Everything(space)) == []
    finally:
        ended(space)


class Viewed(torch.nn.Module):
    """A model that takes a view of its images, which are not contiguous where they are stored channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.head = torch.nn.Conv2d(3, 8, 3), torch.nn.Linear(8 * 6 * 6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.a(x).view(len(x), -1))  # type: ignore[no-any-return]


def test_a_view_of_images_fails_with_torchs_words_and_an_unknown_model_is_refused() -> None:
    net = Viewed()
    space = {
        "torch": torch,
        "net": net,
        "opt": torch.optim.Adam(net.parameters()),
        "data": [torch.ones(4, 3, 8, 8)] * 9,
    }
    code = "for x in data:\n    opt.zero_grad()\n    net(x).pow(2).mean().backward()\n    opt.step()\n"
    effect = gpu_doctor.case(code, space).trial({"channels_last": True}, steps=5, seconds=3, pairs=1)
    assert effect.outcome == "failed" and ".reshape(...)" in effect.reason
    assert net.a.weight.is_contiguous()
    hidden = gpu_doctor.case(code.replace("net(x)", "forward(x)"), {**space, "forward": net.forward})
    effect = hidden.trial({"channels_last": True}, steps=5)
    assert effect.outcome == "refused" and "No call of the model" in effect.reason and "by hand" in effect.reason


def test_with_no_run_yet_tf32_is_turned_where_a_card_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cards, before = [*TURING, DeviceSetup(1, "unknown")], switches()
    monkeypatch.setattr("gpu_doctor.trials.knobs.tf32.cuda_available", lambda: None)
    monkeypatch.setattr("gpu_doctor.trials.knobs.tf32.cuda_devices", lambda: cards)
    with pytest.raises(Refused, match="Tesla T4"), knobs.turned({"tf32": True}, TrialScope({})):
        pytest.fail("not reached")
    cards[0] = DeviceSetup(0, "NVIDIA H100", capability=(9, 0))
    with knobs.turned({"tf32": True}, TrialScope({})):
        assert switches()[:2] == ("high", True)
    assert switches() == before


def test_torchs_newer_names_of_the_precision_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def mixed() -> str:
        raise RuntimeError("mix of the legacy and new APIs")  # torch 2.13, after matmul.fp32_precision = "tf32"

    monkeypatch.setattr(torch, "get_float32_matmul_precision", mixed)
    with pytest.raises(Refused, match="newer names"), knobs.turned({"tf32": True}, TrialScope({}, A100)):
        pytest.fail("not reached")


@pytest.mark.parametrize("settings", [{"channels_last": True}, {"threads": 1}, {"tf32": False}])
def test_the_lines_import_torch_where_the_cell_has_no_name_for_it(settings: Settings) -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten())
    optimizer, data = torch.optim.SGD(net.parameters(), 0.1), [torch.ones(4, 3, 8, 8)] * 9
    code = "for x in data:\n    opt.zero_grad()\n    net(x).pow(2).mean().backward()\n    opt.step()\n"
    case = gpu_doctor.case(code, {"net": net, "opt": optimizer, "data": data})
    case.run(steps=2)
    assert "import torch\n" in case.written(settings).text
