"""What was found around the loop: loaders, devices, model, optimizer, inputs, ranks; and what it does besides training.

Plain values, as everything in a recording; None = nobody listened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = [
    "AttentionCalls",
    "Chore",
    "Compilation",
    "DeviceSetup",
    "EvaluationFacts",
    "Flops",
    "FrozenForward",
    "InputFacts",
    "KeptBatches",
    "KeptGraphs",
    "LoaderSetup",
    "ModelFacts",
    "OptimizerFacts",
    "Padding",
    "Setup",
    "Traffic",
    "World",
]

FEWEST_GRAPHS: Final = 8
"""Of fewer steps all graphs may be there because each lives for some steps (truncated backpropagation)."""
FEWEST_BATCHES: Final = 8
"""Of fewer batches all may be there by chance."""


@dataclass(frozen=True)
class Chore:
    """A costly call that the loop makes besides training, heard at its seam on the training thread."""

    kind: str
    """`checkpoint` (torch.save), `empty-cache`, `collect-garbage`."""
    calls: int
    wall_s: float
    """Host seconds of all calls within the run, nested calls of the same kind once."""
    nbytes: float = float("nan")
    """Bytes that were handed over, NaN where that is not known."""
    file: str = ""
    line: int = 0
    function: str = ""
    text: str = ""
    """The user's line that calls it most often; empty where none was found."""
    other_s: float = float("nan")
    """Of `wall_s`, seconds that lay in no phase of training (`other`); NaN where that was not noted."""


@dataclass(frozen=True)
class ModelFacts:
    """The make of the trained modules, all outermost ones together."""

    device_bytes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of parameters on each device, such as {"cuda:0": 102400}."""
    dtype_bytes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of parameters of each dtype, such as {"float32": 102400}."""
    convolutions: int = 0
    """2D convolutions, also of the user's own classes: those that `memory_format=torch.channels_last` is about (3D ones
    have a format of their own, which raises for images, and 1D ones none)."""
    channels_last: int = 0
    """Of them, those whose weight is stored channels last."""
    compiled: bool = False
    """torch.compile is in use on the model, as a wrapper or by `model.compile()`."""
    wrapper: str = ""
    """`DataParallel`, `DistributedDataParallel`, `FullyShardedDataParallel`, or empty."""
    tables: tuple[str, ...] = ()
    """Embeddings with dense gradients and a weight of their own, with place, rows and width, largest first."""
    table_elements: int = 0
    """Numbers in all of them."""
    unstepped: int | None = None
    """Numbers in parameters that get gradients which no optimizer steps by; None = not looked."""
    unstepped_place: str = ""
    """The largest of these parameters, such as `layer4.0.conv1.weight`."""
    spared_share: float = 0.0
    """Part of the backward that would go if they were frozen, by the sizes of all gradients, 0..1."""
    gradients_cleared: bool = False
    """Some of these parameters are stepped, but not by these gradients: they were cleared before."""


@dataclass(frozen=True)
class OptimizerFacts:
    """One optimizer that stepped in the run."""

    name: str
    tensors: int
    elements: int
    foreach: bool | None = None
    """As its parameter groups say; None = torch's own choice, or the optimizer has no such option."""
    fused: bool | None = None
    can_fuse: bool = False
    """It takes `fused=True` and its parameters lie where torch has a fused kernel for it."""
    momentum: bool = False
    """A parameter group asks for what torch calls `momentum`."""
    groups: int | None = None
    """Its parameter groups, each of which is stepped by itself; None = not counted."""


@dataclass(frozen=True)
class AttentionCalls:
    """Attention that is computed alike, in the first backward of the run."""

    kernel: str
    """Of `scaled_dot_product_attention`: `fused` (one kernel) or `math` (separate operations); or `by hand`: a softmax
    between two products in other code."""
    calls: int
    samples: int
    heads: int
    queries: int
    keys: int
    head_size: int | None = None
    """None = not seen."""
    dtype: str = ""


@dataclass(frozen=True)
class InputFacts:
    """What the outermost trained module was handed (first tensor argument), in those training forwards looked at."""

    looked_at: int = 0
    shapes: int = 0
    """How many different shapes; bounded, so at 64 read 'at least'."""
    shape: tuple[int, ...] = ()
    """The most frequent one."""
    dtype: str = ""
    device: str = ""
    channels_last: bool = False
    new_shape_steps: int = 0
    """Forwards with a shape that had not been seen before, the first one left out."""
    new_shape_s: float = float("nan")
    """Host seconds by which the timed steps among them took longer than later ones of the same shape, or of shapes
    alike where it hardly came again; NaN where there was nothing to compare. The first steps, which warm up anyway,
    are left out."""
    new_late: int | None = None
    """Forwards of the later half of those looked at whose shape had not been seen before; None = not counted."""
    per_step: float | None = None
    """Of them, so many in a step, most_per_step at most; None = not known."""
    most_per_step: int = 0
    """So many forwards of a step are looked at, at most."""
    indices: int | None = None
    """Elements of all integer tensors of one forward, the most that were seen: no table is looked up in more often.
    None = not counted."""


@dataclass(frozen=True)
class Padding:
    """A tensor of the training batches whose rows are padded to one length, in those batches that were looked at."""

    name: str
    """Its key or attribute in the batch, or `batch[0]`."""
    told_by: str = ""
    """Name of the mask that says what is padding, or the value that pads."""
    looked_at: int = 0
    """Batches that were looked at,"""
    batches: int = 0
    """and those of them in which it was padded: they alone are counted in what follows."""
    rows: int = 0
    positions: int = 0
    """Rows times length, padding included,"""
    needed: int = 0
    """as many if each batch were as long as its own longest row,"""
    real: int = 0
    """and without any padding."""
    shortest: int = 0
    longest: int = 0
    """Rows without their padding."""
    least_length: int = 0
    most_length: int = 0
    """Rows with it."""


@dataclass(frozen=True)
class FrozenForward:
    """A model that no optimizer steps, whose weights stand still, and which gave the same results again and again."""

    model: str
    """Its class."""
    calls: int = 0
    wall_s: float = 0.0
    """Host seconds of all calls but the first: on a GPU those of launching."""
    passes: float = 1.0
    """How often it went through its samples,"""
    output_bytes: float = 0.0
    """and the bytes of the result for one."""


@dataclass(frozen=True)
class KeptGraphs:
    """Of the first steps and some later ones, whether a graph that one of their forwards recorded outlived them."""

    marked: int = 0
    """Steps looked at,"""
    alive: int = 0
    """and those with a graph that is still there: at a look in the loop some 100 steps after the newest of them; in a
    shorter run, at its end."""

    @property
    def all_steps(self) -> bool:
        """Every step's graph is kept: none of those marked is gone."""
        return self.marked >= FEWEST_GRAPHS and self.alive == self.marked


@dataclass(frozen=True)
class KeptBatches:
    """Of some batches of the training loader, whether they outlived many later ones."""

    followed: int = 0
    """Batches that were at least 32 deliveries old at the last look,"""
    alive: int = 0
    """and those of them that were still in memory."""
    batch_bytes: float = float("nan")
    """Mean bytes of the tensors in one of them."""
    keeper: str = ""
    """Name in the cell of what holds them, such as `batches` or `memory.rows`; empty = it was not found."""
    kind: str = ""
    """Its type, such as `itertools.cycle` or `list`."""
    bounded: bool = False
    """It forgets: a `deque` with a `maxlen`."""

    @property
    def every(self) -> bool:
        """Every batch is kept: none of those followed is gone."""
        return self.followed >= FEWEST_BATCHES and self.alive == self.followed


@dataclass(frozen=True)
class EvaluationFacts:
    """Forwards in evaluation mode of modules that are trained, or of a loop that trains none."""

    forwards: int = 0
    with_gradients: int = 0
    """Of them, those that recorded gradients which no backward ever used."""
    edge_s: float = float("nan")
    """Seconds at the edges of all evaluation passes: the loader's iterator (worker start), its first batch, its end."""


@dataclass(frozen=True)
class Compilation:
    """torch.compile compiled a function, or one more version of it, while the run went on."""

    function: str
    file: str = ""
    line: int = 0
    """Where the function begins."""
    at_s: float = 0.0
    """Seconds after the run's begin,"""
    wall_s: float = 0.0
    """and how long it took, its backward included."""
    reason: str = ""
    """Which check failed in the newest version before, as torch says it (`self.epoch == 7`); empty for the first."""
    guard_line: int = 0
    guard_text: str = ""
    """The user's line that needs this check, where torch tells it."""
    given_up: bool = False
    """Nothing was compiled: there were too many versions, and the function runs uncompiled from then on."""


@dataclass(frozen=True)
class Traffic:
    """Copies between host and devices, all of the run but its evaluations, on the training thread."""

    to_device: int = 0
    to_device_bytes: float = 0.0
    small: int = 0
    """Of them, those below 64 kB."""
    blocking_pinned: int = 0
    """From pinned memory and without `non_blocking=True`."""
    to_host: int = 0
    to_host_bytes: float = 0.0
    round_trips: int = 0
    """Copies to a device of a tensor that came from a device earlier in the same step."""
    wide_bytes: float = 0.0
    """Of `to_device_bytes`, float32 or float64 tensors of at least 1 MB."""
    round_trip_s: float = 0.0
    """Host seconds from the end of a copy to the host to the end of the copy back, over all `round_trips`: the device
    has nothing queued meanwhile."""
    round_trip_bytes: float = 0.0
    """Of `to_device_bytes`, those of the copies back."""
    round_trip_copy_s: float = 0.0
    """Of `round_trip_s`, the seconds in the copies back."""


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of a step, counted on a trial: products, convolutions and attention, both passes."""

    per_step: float
    per_sample: float | None = None
    """None where no batch dimension could be read."""
    steps: int = 1
    """Steps that were counted; the median is given."""


@dataclass(frozen=True)
class World:
    """The process among its like."""

    world_size: int = 1
    rank: int = 0
    visible_gpus: int = 0
    shm_free_bytes: float = float("nan")
    """Free space in /dev/shm when the run began, NaN where there is none."""
    local_size: int = 1
    """Ranks on this machine: what torchrun says (LOCAL_WORLD_SIZE), else all."""
    oom_kills: float = float("nan")
    """Processes of this container (or control group) that the kernel killed for want of memory while the run lasted,
    NaN where it is not counted."""


@dataclass(frozen=True)
class LoaderSetup:
    """How one DataLoader was found, as plain values."""

    key: str
    """Names the loader across runs of one cell: dataset type, its length, batch size, sampler, and ordinal."""
    role: str = "training"
    """`training`, `evaluation`, or `unknown` (nothing was seen to happen with its batches)."""
    num_workers: int = 0
    batch_size: int | None = None
    pin_memory: bool = False
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    drop_last: bool = False
    sampler: str = ""
    dataset: str = ""
    dataset_kind: str = "map"
    """`map` or `iterable`."""
    dataset_len: int | None = None
    batches: int | None = None
    """`len(loader)`; where it has none, the batches of its first whole pass, or None without one."""
    collate: str = ""
    start_method: str = "fork"
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Knob name -> why this loader cannot honour it, in one sentence."""

    @property
    def stem(self) -> str:
        """`key` without its ordinal: the same for loaders that are alike in everything else."""
        return self.key.rpartition(" #")[0] or self.key


@dataclass(frozen=True)
class DeviceSetup:
    """A GPU as found by NVML or torch; None = not read."""

    index: int
    name: str
    uuid: str = ""
    memory_bytes: int | None = None
    capability: tuple[int, int] | None = None

    def at_least(self, capability: tuple[int, int]) -> bool:
        """Whether its compute capability is known to be this or more."""
        return self.capability is not None and self.capability >= capability


@dataclass(frozen=True)
class Setup:
    """What was found around the loop: loaders, device, dtype, cores really usable, versions, flags."""

    loaders: tuple[LoaderSetup, ...] = ()
    device: str = "cpu"
    """Where the trained parameters live: `cpu`, `cuda:0`, `mps`, ..."""
    devices: tuple[DeviceSetup, ...] = ()
    dtype: str = ""
    """dtype of the trained parameters, such as `float32`; empty if no trained module was seen."""
    autocast: str = ""
    """dtype of the autocast that was active in the forward (the user's own or the amp knob's); empty = none."""
    parameters: int | None = None
    parameter_bytes: int | None = None
    models: tuple[str, ...] = ()
    optimizers: tuple[str, ...] = ()
    layers: Mapping[str, int] = field(default_factory=dict)
    """Kind of layer -> how many, over the trained modules, such as {"Linear": 2, "Conv2d": 53}."""
    usable_cores: float = 1.0
    """Cores this process may really use: affinity and cgroup quota, not os.cpu_count()."""
    os_cores: int = 1
    physical_cores: int | None = None
    """Cores behind the logical ones that this process may run on: two hardware threads are no two cores."""
    cpu: str = ""
    """The processor's name, empty where the system does not tell it."""
    host: str = ""
    """The name of the machine on its network, which tells it from others; `place.UNKNOWN` in files without."""
    start_method: str = "fork"
    torch_threads: int | None = None
    torch_version: str = ""
    cuda_version: str = ""
    driver_version: str = ""
    flags: Mapping[str, Any] = field(default_factory=dict)
    """torch switches as plain values, such as {"matmul_precision": "highest", "cudnn_benchmark": False}."""
    model: ModelFacts | None = None
    optimizer_facts: tuple[OptimizerFacts, ...] | None = None
    inputs: InputFacts | None = None
    idle_inputs: InputFacts | None = None
    """As `inputs`, of forwards of the same modules that nothing is learned from: without gradients, or in evaluation
    mode."""
    evaluation: EvaluationFacts | None = None
    kept_graphs: KeptGraphs | None = None
    """None = no forward recorded a graph, or nobody looked."""
    kept_batches: KeptBatches | None = None
    """None = too few batches came from a loader."""
    world: World | None = None
    graph_operations: int | None = None
    """Operations that the first backward of the run went through,"""
    loss_operations: int | None = None
    """of them, those that were made after the forward had ended; None = not counted,"""
    attention_calls: tuple[AttentionCalls, ...] | None = None
    """and the attention among them."""
    graph_packed: bool | None = None
    """An operation of that backward works on samples without their padding: packed or nested sequences."""
    padding: tuple[Padding, ...] | None = None
    """What is padded in the batches of the training loader; None = none was looked at on the CPU's side."""
    frozen: tuple[FrozenForward, ...] | None = None
    """Models that compute the same results anew; None = nobody looked, or what one is handed could not be compared."""
    grad_scaler: bool = False
    """The loop's own GradScaler, enabled, took the run's first optimizer step."""
    compilations: tuple[Compilation, ...] | None = None
    """By torch.compile, oldest first; None = nobody listened, or torch does not tell."""

    @property
    def on_gpu(self) -> bool:
        """True if the loop trains on a CUDA device."""
        return self.device.startswith("cuda")

    @property
    def gpu_index(self) -> int | None:
        """Torch's number of the GPU that the loop trains on; None where it trains on none."""
        if not self.on_gpu:
            return None
        _, _, number = self.device.partition(":")
        return int(number) if number.isdigit() else 0

    @property
    def card(self) -> DeviceSetup | None:
        """The GPU that the loop trains on; None where it trains on none, or nothing was found of it."""
        return next((one for one in self.devices if one.index == self.gpu_index), None)

    @property
    def machine(self) -> tuple[Any, ...]:
        """What two runs have in common that were measured on one machine, with as many of its cores."""
        return self.host, self.cpu, self.usable_cores

    @property
    def hardware(self) -> tuple[Any, ...]:
        """The same of one device of it: figures of other hardware tell nothing of this one's."""
        return (*self.machine, self.card.name if self.card is not None else self.device.partition(":")[0])

    @property
    def training_loader(self) -> LoaderSetup | None:
        """The first loader that the run trained from, or None.

        Of a run that trained nothing (inference, an export of embeddings), the first that it pulled from.
        """
        roles = ("training",) if self.optimizers else ("training", "unknown")
        return next((one for role in roles for one in self.loaders if one.role == role), None)

    @property
    def training_workers(self) -> int:
        """Workers of the loader that trains; 0 where there is none."""
        loader = self.training_loader
        return loader.num_workers if loader is not None else 0
