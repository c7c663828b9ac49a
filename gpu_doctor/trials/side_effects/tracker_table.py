"""Table of experiment trackers: how each is kept offline in a side, and which of its functions are muted.

Nothing is imported for it: modules and classes are looked up where they are loaded. Names are shell patterns. Names
that a version does not have are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

EVERY: Final = "__init__ [!_]* __setitem__ __delitem__ __exit__"
"""Patterns that mute a class as a whole: a side creates no working object of it."""


@dataclass(frozen=True)
class Tracker:
    """An experiment tracker, with its packages."""

    name: str
    """Name as its users write it."""
    packages: tuple[str, ...]
    muted: Mapping[str, str]
    """`module` or `module:Class` -> patterns of the functions or methods that are muted in a side."""
    offline: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that keep the tracker offline if a side is the first to load it."""
    begins: str = ""
    """Function of the module that opens a run and takes `mode="disabled"`."""
    passes: Mapping[str, str] = field(default_factory=dict)
    """Muted function that returns an argument -> the argument's name."""
    folder: str = ""
    """Name of the argument with the folder that an object creates; loops save into it."""
    settings: str = ""
    """Path from the module to a dict of the open run that cells change directly."""
    open_run: str = ""
    """Path to the open run: `module.attribute`, or `module.function()`."""


TRACKERS: Final[tuple[Tracker, ...]] = (
    Tracker(
        "TensorBoard",
        ("torch.utils.tensorboard", "tensorboard", "tensorboardX"),
        {
            **dict.fromkeys(
                ("torch.utils.tensorboard.writer:SummaryWriter", "tensorboardX.writer:SummaryWriter"),
                "__init__ add_* flush close __exit__ export_scalars_to_json",
            ),
            **dict.fromkeys(
                ("torch.utils.tensorboard.writer:FileWriter", "tensorboardX.writer:FileWriter"),
                "add_* flush close reopen",
            ),
        },
        folder="log_dir logdir",
    ),
    Tracker(
        "wandb",
        ("wandb",),
        {
            "wandb": "finish login teardown",
            "wandb.sdk.wandb_run:Run": "[!_]* __exit__",
            "wandb.sdk.interface.interface:InterfaceBase": "publish_*",
        },
        offline={"WANDB_MODE": "disabled"},
        begins="init",
        settings="run.config._items",
        open_run="wandb.run",
    ),
    Tracker(
        "mlflow",
        ("mlflow",),
        {
            "mlflow": "start_run end_run active_run log_* set_* create_* register_* *autolog",
            "mlflow.tracking.client:MlflowClient": "log_* set_* create_* update_* delete_* register_* link_*",
            "mlflow.models.model:Model": "log",
        },
        open_run="mlflow.active_run()",
    ),
    Tracker(
        "comet",
        ("comet_ml",),
        {
            "comet_ml": "start init login end",
            **dict.fromkeys(
                (
                    *("comet_ml.experiment:BaseExperiment", "comet_ml.experiment:CometExperiment"),
                    *("comet_ml._online:Experiment", "comet_ml._online:ExistingExperiment"),
                    *("comet_ml.offline:OfflineExperiment", "comet_ml.offline:ExistingOfflineExperiment"),
                ),
                EVERY,
            ),
        },
        offline={"COMET_START_ONLINE": "0", "COMET_DISABLE_AUTO_LOGGING": "1"},
        open_run="comet_ml.get_running_experiment()",
    ),
    Tracker(
        "neptune",
        ("neptune", "neptune_scale"),
        {
            "neptune": "init_*",
            "neptune.metadata_containers:MetadataContainer": EVERY,
            "neptune.metadata_containers:Run": EVERY,
            "neptune.handler:Handler": "[!_]* __setitem__ __delitem__",
            "neptune_scale.api.run:Run": EVERY,
        },
        offline={"NEPTUNE_MODE": "debug"},
    ),
    Tracker(
        "clearml",
        ("clearml", "trains"),
        {
            "clearml.task:Task": "init create connect* upload_* update_* set_* close flush",
            "clearml.logger:Logger": "report_* flush _console",
            "clearml.binding.frameworks:WeightsFileHandler": "create_output_model restore_weights_file",
            "clearml.model:OutputModel": EVERY,
        },
        offline={"CLEARML_OFFLINE_MODE": "1"},
        passes={
            "connect": "mutable",
            "connect_configuration": "configuration",
            "create_output_model": "saved_path",
            "restore_weights_file": "filepath",
        },
        open_run="clearml.Task.current_task()",
    ),
    Tracker("aim", ("aim",), {"aim.sdk.run:Run": EVERY, "aim.sdk.run:BasicRun": EVERY}),
    Tracker(
        "swanlab",
        ("swanlab",),
        {"swanlab": "log log_* async_log finish login save sync*", "swanlab:Run": "[!_]* __exit__"},
        offline={"SWANLAB_MODE": "disabled"},
        begins="init",
    ),
    Tracker(
        "trackio",
        ("trackio",),
        {"trackio": "init log log_* finish alert save show sync", "trackio.run:Run": EVERY},
    ),
)
"""Trackers that a trial mutes. Frameworks report through these, or into files."""

PACKAGES: Final = tuple(name for tracker in TRACKERS for name in tracker.packages)
"""Packages that only report: their objects are no state of a training."""
