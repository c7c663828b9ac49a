"""AMP from outside: outputs stay fp32, weights really train, fp16 scaling equals GradScaler, everything is put back."""

from __future__ import annotations

import copy
from collections import OrderedDict, namedtuple
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import gpu_doctor
from gpu_doctor.capture import patching
from gpu_doctor.recording import DeviceSetup, Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.amp.autocast import in_fp32, mixed_precision
from gpu_doctor.trials.knobs.amp.knob import KNOB, _names_amp, lstm_in_bf16
from gpu_doctor.trials.knobs.amp.loss_scaling import LossScaling, loss_scaling
from gpu_doctor.trials.knobs.knob import Refused, TrialScope


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 1)
        self.dtypes: list[torch.dtype] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.inner(x)
        self.dtypes.append(out.dtype)
        return torch.sigmoid(out)


@pytest.fixture
def data() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    return x, (x[:, :1] > 0).float()


SEEN = Setup(optimizers=("SGD",), models=("Net",), dtype="float32", parameters=10)


@pytest.fixture(autouse=True)
def _nothing_left() -> Any:
    call = nn.Module.__call__
    yield
    assert patching.active() == ()
    assert nn.Module.__call__ is call
    assert "__call__" not in vars(Net)


def train(net: nn.Module, opt: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor, steps: int = 30) -> list[float]:
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        out = net(x)
        assert out.dtype == torch.float32
        loss = nn.BCELoss()(out, y)  # refuses half precision under autocast
        loss.backward()
        opt.step()
        losses.append(float(loss))
    return losses


@pytest.mark.parametrize("where", ["before", "inside"])
def test_bf16_computes_in_bf16_returns_fp32_and_trains(where: str, data: Any) -> None:
    space: dict[str, Any] = {}
    if where == "before":
        space["net"] = Net()
        space["opt"] = torch.optim.SGD(space["net"].parameters(), lr=1.0)
    with knobs.turned({"amp": "bf16"}, TrialScope(space)):
        net = space.get("net") or Net()
        opt = space.get("opt") or torch.optim.SGD(net.parameters(), lr=1.0)
        losses = train(net, opt, *data)
        assert set(net.dtypes) == {torch.bfloat16}
        assert not torch.is_autocast_enabled("cpu")
    assert losses[-1] < 0.5 * losses[0]
    assert len({round(loss, 4) for loss in losses}) > 25
    net(data[0])
    assert net.dtypes[-1] == torch.float32


def test_an_optimizer_that_no_name_leads_to_is_found_at_its_first_step(data: Any) -> None:
    net = Net()
    hidden = [torch.optim.SGD(net.parameters(), lr=1.0)]
    with knobs.turned({"amp": "bf16"}, TrialScope({"hidden": hidden})):
        train(net, hidden[0], data[0], data[1], steps=3)
    assert net.dtypes == [torch.float32, torch.bfloat16, torch.bfloat16]


def test_the_parts_of_a_container_that_is_never_called(data: Any) -> None:
    both = nn.ModuleDict({"a": Net(), "b": nn.ModuleDict({"c": Net()})})
    a, b = both["a"], both["b"]["c"]  # type: ignore[index]
    opt = torch.optim.SGD(both.parameters(), lr=0.1)
    with knobs.turned({"amp": "bf16"}, TrialScope({"both": both, "opt": opt})):
        for _ in range(4):
            (a(data[0]) + b(data[0])).sum().backward()
            opt.step()
    assert a.dtypes == b.dtypes == [torch.bfloat16] * 4


def test_a_copy_and_an_untrained_model_of_the_same_class_stay_as_they_are(data: Any) -> None:
    net, teacher = Net(), Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with knobs.turned({"amp": "bf16"}, TrialScope({"net": net, "opt": opt, "teacher": teacher})):
        ema = copy.deepcopy(net)
        assert torch.equal(ema(data[0]), ema(data[0]))
        teacher(data[0])
        net(data[0])
    assert (ema.dtypes[-1], teacher.dtypes[-1], net.dtypes[-1]) == (torch.float32, torch.float32, torch.bfloat16)


def test_a_compiled_model_keeps_one_graph(data: Any) -> None:
    torch._dynamo.reset()
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    compiled = torch.compile(net, backend=backend, fullgraph=True)
    with knobs.turned({"amp": "bf16"}, TrialScope({"net": net, "compiled": compiled, "opt": opt})):
        for _ in range(3):
            out = compiled(data[0])
            out.sum().backward()
            opt.step()
    assert out.dtype == torch.float32
    assert len(graphs) == 1
    torch._dynamo.reset()


def test_the_users_own_autocast_is_left_alone(data: Any) -> None:
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with knobs.turned({"amp": "bf16"}, TrialScope({"net": net, "opt": opt})):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert net(data[0]).dtype == torch.bfloat16


def test_outputs_of_any_shape_become_fp32() -> None:
    Pair = namedtuple("Pair", "a b")

    @dataclass
    class Output(OrderedDict):  # type: ignore[type-arg]
        logits: Any = None

        def __post_init__(self) -> None:
            self["logits"] = self.logits

        def __setitem__(self, key: str, value: Any) -> None:
            super().__setitem__(key, value)
            super().__setattr__(key, value)

    @dataclass(frozen=True)
    class Plain:
        x: Any
        y: int = 3

    half = torch.zeros(2, dtype=torch.bfloat16)
    out = in_fp32({"l": [half, 1], "p": Pair(half, None), "o": Output(half), "d": Plain(half)}, torch.bfloat16)
    assert out["l"][0].dtype == out["p"].a.dtype == out["d"].x.dtype == torch.float32
    assert type(out["p"]) is Pair
    assert type(out["o"]) is Output
    assert out["o"].logits.dtype == out["o"]["logits"].dtype == torch.float32
    assert half.dtype == torch.bfloat16
    kept = {"a": torch.zeros(1), "b": (1, "x")}
    assert in_fp32(kept, torch.bfloat16) is kept
    packed = nn.utils.rnn.pack_sequence([half])
    assert in_fp32(packed, torch.bfloat16).data.dtype == torch.float32


def by_hand(net: nn.Module, opt: torch.optim.Optimizer, x: Any, y: Any, clip: str, accumulate: int) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    for _ in range(10):
        opt.zero_grad()
        for part in range(accumulate):
            with torch.autocast("cpu", dtype=torch.float16):
                out = net(x[part::accumulate])
            scaler.scale(nn.MSELoss()(out.float(), y[part::accumulate])).backward()
        scaler.unscale_(opt)
        clip_gradients(net, clip)
        scaler.step(opt)
        scaler.update()


def clip_gradients(net: nn.Module, clip: str) -> None:
    if clip == "norm":
        nn.utils.clip_grad_norm_(net.parameters(), 0.05)
    if clip == "value":
        nn.utils.clip_grad_value_(net.parameters(), 0.01)


def untouched(net: nn.Module, opt: torch.optim.Optimizer, x: Any, y: Any, clip: str, accumulate: int) -> None:
    for _ in range(10):
        opt.zero_grad()
        for part in range(accumulate):
            nn.MSELoss()(net(x[part::accumulate]), y[part::accumulate]).backward()
        clip_gradients(net, clip)
        opt.step()


@pytest.mark.parametrize(("clip", "accumulate"), [("", 1), ("norm", 1), ("value", 1), ("norm", 2)])
def test_fp16_scaling_is_what_gradscaler_gives_bit_for_bit(clip: str, accumulate: int, data: Any) -> None:
    x, y = data[0] * 3, data[1]
    ours, theirs = Net(), None
    theirs = copy.deepcopy(ours)
    opts = [torch.optim.Adam(net.parameters(), lr=0.05) for net in (ours, theirs)]
    by_hand(theirs, opts[1], x, y, clip, accumulate)
    with mixed_precision(torch.float16, TrialScope({"net": ours, "opt": opts[0]})):
        untouched(ours, opts[0], x, y, clip, accumulate)
    assert set(ours.dtypes) == {torch.float16}
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("clip", ["", "norm", "value"])
def test_a_step_with_infinite_gradients_changes_nothing_and_halves_the_scale(
    clip: str,
) -> None:
    w = nn.Linear(1, 1)
    opt = torch.optim.SGD(w.parameters(), lr=1.0, weight_decay=0.5)
    scaling = LossScaling()
    scaling.meet(opt)
    before = w.weight.detach().clone()
    with loss_scaling(scaling):
        (w(torch.tensor([[float("inf")]]))).sum().backward()
        clip_gradients(w, clip)
        opt.step()
        assert torch.equal(w.weight, before)
        assert w.weight.grad is not None
        assert (scaling.scaler.get_scale(), scaling.skipped) == (32768.0, 1)
        scaling.scaler.set_growth_interval(2)
        for _ in range(2):
            opt.zero_grad()
            w(torch.ones(1, 1)).sum().backward()
            opt.step()
        assert not torch.equal(w.weight, before)
        assert scaling.scaler.get_scale() == 65536.0


class Operations(TorchDispatchMode):
    """Counts what torch executes: on a GPU each is one launch at least, and reading a value is a wait."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.values_read = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        self.values_read += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("accumulate", [1, 3])
def test_scaling_takes_a_few_operations_however_many_parameters_there_are(accumulate: int) -> None:
    parameters = nn.ParameterList([nn.Parameter(torch.ones(2)) for _ in range(161)])
    opt = torch.optim.SGD(parameters.parameters(), lr=0.1, foreach=True)

    def step() -> Operations:
        with Operations() as operations:
            for _ in range(accumulate):
                torch.cat(list(parameters)).sum().backward()
            opt.step()
        opt.zero_grad()
        return operations

    step()
    plain, scaling = step(), LossScaling()
    scaling.meet(opt)
    with loss_scaling(scaling):
        step()
        scaled = step()
    assert 0 < scaled.count - plain.count <= 20 * accumulate
    assert (plain.values_read, scaled.values_read) == (0, 1)


def test_an_infinity_of_an_earlier_backward_skips_the_step() -> None:
    w = nn.Linear(1, 1)
    opt = torch.optim.SGD(w.parameters(), lr=1.0)
    scaling = LossScaling()
    scaling.meet(opt)
    before = w.weight.detach().clone()
    with loss_scaling(scaling):
        for x in (float("inf"), 1.0):
            w(torch.tensor([[x]])).sum().backward()
        opt.step()
    assert torch.equal(w.weight, before) and scaling.skipped == 1


def test_sparse_gradients_are_scaled_back_too() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    opt = torch.optim.SGD(table.parameters(), lr=1.0)
    scaling = LossScaling()
    scaling.meet(opt)
    with loss_scaling(scaling):
        for _ in range(2):
            table(torch.tensor([1, 1, 3])).sum().backward()
    assert table.weight.grad is not None
    assert table.weight.grad.to_dense().tolist() == [[0.0, 0.0], [4.0, 4.0], [0.0, 0.0], [2.0, 2.0]]


def test_what_scaling_cannot_follow_is_refused_out_of_the_loop() -> None:
    w = nn.Linear(1, 1)
    first, second = torch.optim.SGD(w.parameters(), lr=1.0), torch.optim.SGD(w.parameters(), lr=1.0)
    with mixed_precision(torch.float16, TrialScope({"w": w, "a": first, "b": second})):
        w(torch.ones(1, 1)).sum().backward()
        first.step()
        with pytest.raises(Refused, match="More than one optimizer"):
            second.step()
        with pytest.raises(Refused, match="create_graph"):
            w(torch.ones(1, 1)).sum().backward(create_graph=True)
        with pytest.raises(Refused, match="closure"):
            first.step(lambda: 0.0)
        with pytest.raises(Refused, match="closure"):
            torch.optim.LBFGS(w.parameters()).step(lambda: 0.0)


def test_refusals() -> None:
    assert "slow on a CPU" in KNOB.refusal("fp16", SEEN)
    assert KNOB.refusal("bf16", SEEN) == ""
    assert KNOB.refusal("off", SEEN) == ""
    t4 = Setup(**{**vars(SEEN), "device": "cuda:0", "devices": (DeviceSetup(0, "Tesla T4", capability=(7, 5)),)})
    assert "Tesla T4" in KNOB.refusal("bf16", t4)
    assert KNOB.refusal("fp16", t4) == ""
    two = Setup(**{**vars(t4), "optimizers": ("Adam", "Adam")})
    assert "more than one optimizer" in KNOB.refusal("fp16", two)
    assert "LBFGS" in KNOB.refusal("fp16", Setup(**{**vars(t4), "optimizers": ("LBFGS",)}))
    assert "bfloat16" in KNOB.refusal("bf16", Setup(**{**vars(SEEN), "dtype": "bfloat16"}))
    assert "No torch optimizer" in KNOB.refusal("bf16", Setup(torch_version="2"))
    assert "mps" in KNOB.refusal("bf16", Setup(**{**vars(SEEN), "device": "mps"}))


def test_the_users_own_amp_is_shown_as_yours() -> None:
    own = Setup(**{**vars(SEEN), "autocast": "bfloat16"})
    assert KNOB.found(own) == "bf16"
    assert [choice.label for choice in KNOB.choices(own)] == ["off", "bf16 (yours)", "fp16"]
    assert KNOB.refusal("off", own) == ""
    assert "itself" in KNOB.refusal("fp16", own)
    compile(KNOB.code("off", own), "<code>", "exec")
    assert KNOB.found(SEEN) == "off"


@pytest.mark.parametrize("fails", [False, True])
def test_the_users_own_autocast_and_scaler_are_switched_off_and_back(fails: bool, data: Any) -> None:
    own = Setup(**{**vars(SEEN), "autocast": "bfloat16"})
    net = Net()
    scaler, context = torch.amp.GradScaler("cpu", init_scale=8.0), torch.autocast("cpu", dtype=torch.bfloat16)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    decorated = torch.autocast("cpu", dtype=torch.bfloat16)(net.__call__)

    def loop(made: Any) -> None:
        for _ in range(2):
            with context:
                out = net(data[0])
            decorated(data[0])
            loss = out.float().mean()
            assert made.scale(loss) is loss
            made.scale(loss).backward()
            made.unscale_(opt)
            made.step(opt)
            made.update()
            if fails:
                raise RuntimeError("of the loop")

    with pytest.raises(RuntimeError, match="of the loop") if fails else nullcontext():
        with knobs.turned({"amp": "off"}, TrialScope({"net": net}, own)):
            assert not scaler.is_enabled()
            loop(scaler)
            loop(torch.amp.GradScaler("cpu"))
    assert set(net.dtypes) == {torch.float32}
    assert scaler.is_enabled() and scaler.get_scale() == 8.0 and "_enabled" not in vars(torch.amp.GradScaler)
    with context:
        assert net(data[0]).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("source", "own"),
    [
        ("# no autocast and no GradScaler here\nstep()", False),
        ("print('autocast')", False),
        ("with torch.autocast('cuda'):\n    step()", True),
        ("s = GradScaler()", True),
        ("scaler.scale(loss).backward()", True),
        ("x = scaler.transform(x)", False),
        ("%matplotlib inline\nwith autocast('cuda'):\n    step()", True),
        ("%matplotlib inline\nstep()", False),
    ],
)
def test_an_own_amp_is_told_by_code_not_by_comments(source: str, own: bool) -> None:
    assert _names_amp(source) is own


def test_fp16_is_refused_on_the_cpu_and_beside_an_own_scaler() -> None:
    net = Net()
    space: dict[str, Any] = {"net": net, "opt": torch.optim.SGD(net.parameters(), lr=1.0)}
    with pytest.raises(Refused, match="slow on a CPU"), knobs.turned({"amp": "fp16"}, TrialScope(space)):
        pytest.fail("not reached")
    space["grad"] = torch.amp.GradScaler("cpu")
    with pytest.raises(Refused, match="GradScaler"), knobs.turned({"amp": "fp16"}, TrialScope(space)):
        pytest.fail("not reached")


def test_parsed_and_code() -> None:
    assert [KNOB.parsed(text) for text in ("off", "BF16", "float16")] == ["off", "bf16", "fp16"]
    with pytest.raises(ValueError, match="off, bf16 or fp16"):
        KNOB.parsed("int8")
    assert "bfloat16" in KNOB.code("bf16", SEEN)
    assert "GradScaler" in KNOB.code("fp16", SEEN)
    for value in ("bf16", "fp16"):
        compile(KNOB.code(value, SEEN), "<code>", "exec")


def test_an_lstm_is_refused_exactly_where_torch_cannot_run_it() -> None:
    """The truth is torch itself, asked on this machine."""
    net = nn.LSTM(4, 8, batch_first=True)
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            net(torch.randn(2, 3, 4))
        runs = True
    except RuntimeError:
        runs = False
    assert lstm_in_bf16() == runs
    setup = Setup(optimizers=("SGD",), dtype="float32", layers={"LSTM": 1})
    assert bool(KNOB.refusal("bf16", setup)) == (not runs)
    assert not KNOB.refusal("bf16", Setup(optimizers=("SGD",), dtype="float32", layers={"GRU": 1}))


SCALED = """
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", enabled=ENABLED)
for x in data:
    opt.zero_grad()
    loss = net(x).mean()  # no autocast: it was forgotten
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
"""


@pytest.mark.parametrize("enabled", [True, False])
def test_a_scaler_without_an_autocast_is_shown_as_yours_and_can_be_switched_off(enabled: bool) -> None:
    names = {"torch": torch, "Net": Net, "data": list(torch.randn(30, 4, 8)), "ENABLED": enabled}
    case = gpu_doctor.case(SCALED, names)
    found = case.run().setup
    assert found.grad_scaler is enabled and found.autocast == "" and KNOB.found(found) == "off"
    assert KNOB.choices(found)[0].label == ("off (your GradScaler)" if enabled else "off")
    if not enabled:
        return
    on_a_card = Setup(**{**vars(found), "device": "cuda:0"})
    assert "has its own GradScaler" in KNOB.refusal("fp16", on_a_card) and KNOB.refusal("bf16", on_a_card) == ""
    effect = case.trial({"amp": "off"}, steps=10, seconds=5, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    baseline, candidate = case.trials[-1]
    assert (baseline.setup.grad_scaler, candidate.setup.grad_scaler) == (True, False)


def test_a_trial_without_the_users_own_autocast() -> None:
    code = """
net, scaler = Net(), torch.amp.GradScaler("cpu", enabled=True)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x in data:
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(x).float().mean()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
"""
    case = gpu_doctor.case(code, {"torch": torch, "Net": Net, "data": list(torch.randn(30, 4, 8))})
    assert case.run().setup.autocast == "bfloat16"
    effect = case.trial({"amp": "off"}, steps=10, seconds=5, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    baseline, candidate = case.trials[-1]
    assert (baseline.setup.autocast, candidate.setup.autocast) == ("bfloat16", "")


def test_a_part_of_the_model_that_amp_did_not_reach_is_said() -> None:
    code = """
class Past(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))
    def __call__(self, x):
        return x * self.scale

def train():
    net, past = Net(), Past()
    opt = torch.optim.SGD([*net.parameters(), *past.parameters()], lr=0.1)
    for x in data:
        opt.zero_grad()
        past(net(x)).mean().backward()
        opt.step()
train()
"""
    case = gpu_doctor.case(code, {"torch": torch, "Net": Net, "data": list(torch.randn(30, 4, 8))})
    case.trial({"amp": "bf16"}, steps=10, seconds=5, pairs=1)
    assert any("a part of the model: 1 parameter" in note for note in case.trials[-1][1].notes)
