"""Facts about a run: loaders, devices, model, optimizer, inputs and ranks, and its costly calls that are not training.

They are plain values, like everything in a recording; None = not recorded.
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
"""Fewest steps by which graphs count as kept: each may live for some steps (truncated backpropagation)."""
FEWEST_BATCHES: Final = 8
"""Fewest batches by which batches count as kept: all of fewer ones may be alive by chance."""


@dataclass(frozen=True)
class Chore:
    """The costly calls of one kind that the loop makes on the training thread and that are not training."""

    kind: str
    """`checkpoint` (torch.save), `empty-cache` or `collect-garbage`."""
    calls: int
    wall_s: float
    """Host time of all calls within the run, in s; nested calls of the same kind count once."""
    nbytes: float = float("nan")
    """Number of bytes written; NaN if not known."""
    file: str = ""
    line: int = 0
    function: str = ""
    text: str = ""
    """The user's line that makes most of the calls; empty if none was found."""
    other_s: float = float("nan")
    """Part of `wall_s` in no phase of training (`other`), in s; NaN if not recorded."""


@dataclass(frozen=True)
class ModelFacts:
    """Properties of the trained modules, all outermost ones together."""

    device_bytes: Mapping[str, int] = field(default_factory=dict)
    """Size of the parameters on each device in bytes, such as {"cuda:0": 102400}."""
    dtype_bytes: Mapping[str, int] = field(default_factory=dict)
    """Size of the parameters of each dtype in bytes, such as {"float32": 102400}."""
    convolutions: int = 0
    """Number of 2D convolutions, which `memory_format=torch.channels_last` applies to, also in the user's own classes.
    3D convolutions have another format, which raises for images; 1D convolutions have none."""
    channels_last: int = 0
    """Number of these whose weight is stored channels last."""
    compiled: bool = False
    """True if torch.compile is in use on the model, as a wrapper or by `model.compile()`."""
    wrapper: str = ""
    """`DataParallel`, `DistributedDataParallel`, `FullyShardedDataParallel`, or empty."""
    tables: tuple[str, ...] = ()
    """Embeddings with dense gradients and a weight of their own, with place, rows and width, the largest first."""
    table_elements: int = 0
    """Number of elements in all these embeddings."""
    unstepped: int | None = None
    """Number of elements in parameters whose gradients no optimizer uses; None = not examined."""
    unstepped_place: str = ""
    """Name of the largest of these parameters, such as `layer4.0.conv1.weight`."""
    spared_share: float = 0.0
    """Share (0 to 1) of the backward that freezing them would save, by the sizes of all gradients."""
    gradients_cleared: bool = False
    """True if an optimizer steps some of these parameters, but these gradients were cleared before."""


@dataclass(frozen=True)
class OptimizerFacts:
    """Properties of an optimizer that stepped in the run."""

    name: str
    tensors: int
    """Number of its parameters."""
    elements: int
    """Number of elements in all its parameters."""
    foreach: bool | None = None
    """Option `foreach` of its parameter groups; None = torch's own choice, or the optimizer has no such option."""
    fused: bool | None = None
    """Option `fused` of its parameter groups; None as for `foreach`."""
    can_fuse: bool = False
    """True if it accepts `fused=True` and torch has a fused kernel for it on the parameters' device."""
    momentum: bool = False
    """True if a parameter group uses torch's option `momentum`."""
    groups: int | None = None
    """Number of its parameter groups, each of which is stepped by itself; None = not counted."""


@dataclass(frozen=True)
class AttentionCalls:
    """Attention calls of the same sizes and kernel in the first backward of the run."""

    kernel: str
    """`fused` (one kernel) or `math` (separate operations) for `scaled_dot_product_attention`; `by hand` for a softmax
    between two products in other code."""
    calls: int
    samples: int
    heads: int
    queries: int
    keys: int
    head_size: int | None = None
    """Width of a head; None = not seen."""
    dtype: str = ""


@dataclass(frozen=True)
class InputFacts:
    """The first tensor argument of the outermost trained module, in a sample of its training forwards."""

    looked_at: int = 0
    """Number of sampled forwards."""
    shapes: int = 0
    """Number of different shapes, at most 64: read 64 as "at least"."""
    shape: tuple[int, ...] = ()
    """The most frequent shape."""
    dtype: str = ""
    device: str = ""
    channels_last: bool = False
    """True if the first sampled tensor was in the layout channels last."""
    new_shape_steps: int = 0
    """Number of sampled forwards with a new shape, without the first."""
    new_shape_s: float = float("nan")
    """Extra host time of the timed steps with a new shape over later ones of the same shape, or of similar shapes if
    it hardly came again, in s; NaN if there are too few to compare. The first steps, which warm up, are left out."""
    new_late: int | None = None
    """Number of forwards with a new shape in the later half of the sampled ones; None = not counted."""
    per_step: float | None = None
    """Mean number of forwards in a step, at most `most_per_step`; None = not known."""
    most_per_step: int = 0
    """Maximum number of forwards sampled in a step."""
    indices: int | None = None
    """Largest number of elements in all integer tensors of one forward, an upper bound of the look-ups in a table;
    None = not counted."""


@dataclass(frozen=True)
class Padding:
    """A tensor of the training batches whose rows are padded to one length, in a sample of the batches.

    `rows` and the fields after it count only batches in which it was padded.
    """

    name: str
    """Key or attribute of the tensor in the batch, or `batch[0]`."""
    told_by: str = ""
    """Name of the mask that marks the padding, or the value that pads."""
    looked_at: int = 0
    """Number of sampled batches."""
    batches: int = 0
    """Number of sampled batches in which the tensor was padded."""
    rows: int = 0
    positions: int = 0
    """Number of positions, padding included: rows times length."""
    needed: int = 0
    """Number of positions if each batch were only as long as its own longest row."""
    real: int = 0
    """Number of positions without any padding."""
    shortest: int = 0
    """Length of the shortest row without its padding."""
    longest: int = 0
    """Length of the longest row without its padding."""
    least_length: int = 0
    """Smallest length of a batch, padding included."""
    most_length: int = 0
    """Largest length of a batch, padding included."""


@dataclass(frozen=True)
class FrozenForward:
    """A model that no optimizer steps, whose weights do not change, and which computed the same results repeatedly."""

    model: str
    """Name of its class."""
    calls: int = 0
    wall_s: float = 0.0
    """Host time of all calls but the first, in s; on a GPU, the time to launch them."""
    passes: float = 1.0
    """Number of times that it went through its samples."""
    output_bytes: float = 0.0
    """Size of one sample's result in bytes."""


@dataclass(frozen=True)
class KeptGraphs:
    """The number of steps whose autograd graphs stayed alive, among the first steps and some later ones."""

    marked: int = 0
    """Number of steps examined."""
    alive: int = 0
    """Number of these with a graph that is still alive, some 100 steps after the newest of them or at the end of a
    shorter run."""

    @property
    def all_steps(self) -> bool:
        """True if the graphs of all examined steps are alive."""
        return self.marked >= FEWEST_GRAPHS and self.alive == self.marked


@dataclass(frozen=True)
class KeptBatches:
    """The number of the training loader's batches that stayed alive, and the object that holds them."""

    followed: int = 0
    """Number of examined batches: those at least 32 deliveries old."""
    alive: int = 0
    """Number of these that were still in memory."""
    batch_bytes: float = float("nan")
    """Mean size of a batch's tensors in bytes."""
    keeper: str = ""
    """Name in the cell of the object that holds them, such as `batches` or `memory.rows`; empty = not found."""
    kind: str = ""
    """Type of that object, such as `itertools.cycle` or `list`."""
    bounded: bool = False
    """True if that object drops old batches: a `deque` with a `maxlen`."""

    @property
    def every(self) -> bool:
        """True if all examined batches are alive."""
        return self.followed >= FEWEST_BATCHES and self.alive == self.followed


@dataclass(frozen=True)
class EvaluationFacts:
    """Forwards in evaluation mode of trained modules, or of all modules in a loop that trains none."""

    forwards: int = 0
    with_gradients: int = 0
    """Number of these that recorded a graph which no backward used."""
    edge_s: float = float("nan")
    """Time at the start and end of all evaluation passes, in s: the loader's iterator (worker start), the first batch,
    and the end."""


@dataclass(frozen=True)
class Compilation:
    """One compilation of a function by torch.compile during the run: the first one, or of a further version."""

    function: str
    file: str = ""
    line: int = 0
    """Line on which the function begins."""
    at_s: float = 0.0
    """Start of the compilation, in s after the run began."""
    wall_s: float = 0.0
    """Duration of the compilation, that of the backward included, in s."""
    reason: str = ""
    """Check that failed in the version before, in torch's words (`self.epoch == 7`); empty for the first version."""
    guard_line: int = 0
    guard_text: str = ""
    """The user's line that needs this check, if torch names it."""
    given_up: bool = False
    """True if nothing was compiled, because there were too many versions: the function runs uncompiled from then on."""


@dataclass(frozen=True)
class Traffic:
    """Copies between host and devices on the training thread, without those in evaluations."""

    to_device: int = 0
    to_device_bytes: float = 0.0
    small: int = 0
    """Number of copies to a device below 64 kB."""
    blocking_pinned: int = 0
    """Number of copies to a device from pinned memory without `non_blocking=True`."""
    to_host: int = 0
    to_host_bytes: float = 0.0
    round_trips: int = 0
    """Number of copies to a device of a tensor that came from a device earlier in the same step."""
    wide_bytes: float = 0.0
    """Part of `to_device_bytes` in float32 or float64 tensors of at least 1 MB."""
    round_trip_s: float = 0.0
    """Host time of all `round_trips`, each from the end of the copy to the host to the end of the copy back, in s: the
    device has nothing queued meanwhile."""
    round_trip_bytes: float = 0.0
    """Part of `to_device_bytes` in the copies back."""
    round_trip_copy_s: float = 0.0
    """Part of `round_trip_s` in the copies back, in s."""


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of a step, counted on a trial: products, convolutions and attention, both passes."""

    per_step: float
    per_sample: float | None = None
    """Operations for each sample; None if no batch dimension could be read."""
    steps: int = 1
    """Number of counted steps, whose median is given."""


@dataclass(frozen=True)
class World:
    """The process group, and the resources that its processes share on this machine."""

    world_size: int = 1
    rank: int = 0
    visible_gpus: int = 0
    shm_free_bytes: float = float("nan")
    """Free space in /dev/shm when the run began, in bytes; NaN if there is none."""
    local_size: int = 1
    """Number of ranks on this machine: torchrun's LOCAL_WORLD_SIZE, else all."""
    oom_kills: float = float("nan")
    """Number of processes in this container (or control group) that the kernel killed for lack of memory during the
    run; NaN if not counted."""


@dataclass(frozen=True)
class LoaderSetup:
    """Settings of one DataLoader as plain values."""

    key: str
    """Name of the loader across runs of a cell: dataset type, its length, batch size, sampler, and ordinal."""
    role: str = "training"
    """`training`, `evaluation`, or `unknown` (no use of its batches was seen)."""
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
    """`len(loader)`; for a loader without a length, the batches of its first whole pass, or None before that."""
    collate: str = ""
    """Name of the collate function."""
    start_method: str = "fork"
    """Method by which worker processes are started."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Reason, in one sentence, for each knob that this loader cannot accept."""

    @property
    def stem(self) -> str:
        """`key` without its ordinal, which is the same for loaders that differ in nothing else."""
        return self.key.rpartition(" #")[0] or self.key


@dataclass(frozen=True)
class DeviceSetup:
    """Properties of a GPU as NVML or torch report them; None = not read."""

    index: int
    name: str
    uuid: str = ""
    memory_bytes: int | None = None
    capability: tuple[int, int] | None = None

    def at_least(self, capability: tuple[int, int]) -> bool:
        """Returns True if the compute capability is known and at least this one."""
        return self.capability is not None and self.capability >= capability


@dataclass(frozen=True)
class Setup:
    """All facts about a run: loaders, devices, model, optimizers, usable cores, versions, switches."""

    loaders: tuple[LoaderSetup, ...] = ()
    device: str = "cpu"
    """Device of the trained parameters: `cpu`, `cuda:0`, `mps`, ..."""
    devices: tuple[DeviceSetup, ...] = ()
    """The visible GPUs."""
    dtype: str = ""
    """Type of the trained parameters, such as `float32`; empty if no trained module was seen."""
    autocast: str = ""
    """Type of the autocast that was active in the forward (the user's own or the amp knob's); empty = none."""
    parameters: int | None = None
    """Number of elements in the model's parameters."""
    parameter_bytes: int | None = None
    models: tuple[str, ...] = ()
    """Class names of the outermost trained modules."""
    optimizers: tuple[str, ...] = ()
    """Class names of the optimizers."""
    layers: Mapping[str, int] = field(default_factory=dict)
    """Number of layers of each kind in the trained modules, such as {"Linear": 2, "Conv2d": 53}."""
    usable_cores: float = 1.0
    """Number of cores that this process may use, by affinity and cgroup quota; not os.cpu_count()."""
    os_cores: int = 1
    """Number of logical cores of the machine."""
    physical_cores: int | None = None
    """Number of physical cores that this process may run on: two hardware threads of a core count once."""
    cpu: str = ""
    """Name of the processor; empty if the system does not report it."""
    host: str = ""
    """Name of the machine in its network; `place.UNKNOWN` for files without."""
    start_method: str = "fork"
    """Default method by which worker processes are started."""
    torch_threads: int | None = None
    torch_version: str = ""
    cuda_version: str = ""
    driver_version: str = ""
    flags: Mapping[str, Any] = field(default_factory=dict)
    """torch's switches as plain values, such as {"matmul_precision": "highest", "cudnn_benchmark": False}."""
    model: ModelFacts | None = None
    optimizer_facts: tuple[OptimizerFacts, ...] | None = None
    inputs: InputFacts | None = None
    idle_inputs: InputFacts | None = None
    """Inputs, as in `inputs`, of forwards that are not trained on: without gradients, or in evaluation mode."""
    evaluation: EvaluationFacts | None = None
    kept_graphs: KeptGraphs | None = None
    """Graphs that stayed alive; None = no forward recorded a graph, or not examined."""
    kept_batches: KeptBatches | None = None
    """Batches that stayed alive; None = too few batches came from a loader."""
    world: World | None = None
    graph_operations: int | None = None
    """Number of operations in the first backward of the run; None = not counted."""
    loss_operations: int | None = None
    """Number of these that were made after the forward had ended; None = not counted."""
    attention_calls: tuple[AttentionCalls, ...] | None = None
    """Attention calls in the first backward of the run; None = not counted."""
    graph_packed: bool | None = None
    """True if an operation of that backward works on samples without padding: packed or nested sequences."""
    padding: tuple[Padding, ...] | None = None
    """Padded tensors in the training loader's batches; None = no batch was sampled on the CPU."""
    frozen: tuple[FrozenForward, ...] | None = None
    """Models that compute the same results again; None = not examined, or one's inputs could not be compared."""
    grad_scaler: bool = False
    """True if the loop's own GradScaler, enabled, took the run's first optimizer step."""
    compilations: tuple[Compilation, ...] | None = None
    """Compilations by torch.compile, oldest first; None = not recorded, or torch does not report them."""

    @property
    def on_gpu(self) -> bool:
        """True if the loop trains on a CUDA device."""
        return self.device.startswith("cuda")

    @property
    def gpu_index(self) -> int | None:
        """Torch's index of the GPU that the loop trains on; None if it trains on none."""
        if not self.on_gpu:
            return None
        _, _, number = self.device.partition(":")
        return int(number) if number.isdigit() else 0

    @property
    def card(self) -> DeviceSetup | None:
        """Properties of the GPU that the loop trains on; None if it trains on none, or they were not read."""
        return next((device for device in self.devices if device.index == self.gpu_index), None)

    @property
    def machine(self) -> tuple[Any, ...]:
        """Key that is equal for two runs on the same machine with the same number of cores."""
        return self.host, self.cpu, self.usable_cores

    @property
    def hardware(self) -> tuple[Any, ...]:
        """Key that is equal for two runs on the same machine and device: only their figures can be compared."""
        return (*self.machine, self.card.name if self.card is not None else self.device.partition(":")[0])

    @property
    def training_loader(self) -> LoaderSetup | None:
        """The first loader that the run trained from, or None.

        For a run that trained nothing (inference, an export of embeddings), the first loader that it read.
        """
        roles = ("training",) if self.optimizers else ("training", "unknown")
        return next((loader for role in roles for loader in self.loaders if loader.role == role), None)

    @property
    def training_workers(self) -> int:
        """Number of workers of the training loader; 0 if there is none."""
        loader = self.training_loader
        return loader.num_workers if loader is not None else 0
