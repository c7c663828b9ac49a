"""Experiment trackers as data: which of their functions report something, and what loops read of what these return.

Nothing is imported for it: modules and classes are looked up where they are loaded. Names are patterns, as in a shell:
`log_*`; several of them stand in one text. A name that a version does not have is passed over, so the table holds older
and newer versions beside each other. `python -m tests.support.tracker_shapes` compares it with what is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_doctor.capture.frameworks import FRAMEWORKS

FOLDER: Final = "folder"
"""A value that is a folder: the given one where it is there, else one that goes with the trial."""
VALUES: Final = "values"
"""A value that is a configuration: the given one, read by item and by attribute."""
NAME: Final = "name"
"""A value that is a name or an id: the given one, else `trial`."""
PUBLIC: Final = "[!_]*"


@dataclass(frozen=True)
class Part:
    """Functions of one module, or methods of one class, that report something."""

    place: str
    """`module`, or `module:Class`."""
    holds: str = ""
    """Those that do nothing in a trial; of a property, setting it. What they return takes every call."""
    keeps: str = ""
    """Of these, those that only read: of an object that is there. One that a trial made knows nothing to tell."""
    shows: str = ""
    """Those that read of an object that a trial made, too."""
    hides: str = ""
    """Properties that open something when they are read."""
    begins: str = ""
    """Those that open a run, which in a trial is one that reports nothing."""
    opens: str = ""
    """Of which class that run is, as `place`."""
    asks: str = ""
    """Those that give the run that is open: in a trial the one that it began."""
    passes: Mapping[str, str] = field(default_factory=dict)
    """Those that hand an argument back, of a method the first -> its name."""
    makes: bool = False
    """An object of the class that a trial makes reports nothing, and its own making is left out."""
    is_run: bool = False
    """Such an object is the run that is open from then on."""
    family: str = ""
    """Loaded classes that derive from it are meant too, where their module begins so."""
    silent: bool = False
    """They return None, as something stands in the way of another value."""
    values: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """What is read of a run or object that a trial made: attribute -> its kind, and arguments that it may come from."""


@dataclass(frozen=True)
class Tracker:
    """One tracker."""

    name: str
    """As its users write it."""
    packages: tuple[str, ...]
    parts: tuple[Part, ...]
    switches: Mapping[str, str] = field(default_factory=dict)
    """Variables of the environment that keep it off in processes that a trial starts."""
    binds: str = ""
    """Names of its module that stand for the open run (`run`) and what it has."""
    open_run: str = ""
    """Where its open run is found: `module.attribute`, or `module.function()`."""
    logs: str = ""
    """The logger of Python's with which it writes files of its own."""
    state: tuple[str, ...] = ()
    """Dicts of the open run that a cell changes without a report, from its module on."""


_WRITER: Final = dict.fromkeys(("log_dir", "logdir"), (FOLDER, "log_dir logdir"))

TRACKERS: Final[tuple[Tracker, ...]] = (
    Tracker(
        name="TensorBoard",
        packages=("torch.utils.tensorboard", "tensorboard", "tensorboardX"),
        parts=(
            *(
                Part(place, holds=PUBLIC, keeps="get_logdir", shows="get_logdir", makes=True, values=_WRITER)
                for place in ("torch.utils.tensorboard.writer:SummaryWriter", "tensorboardX.writer:SummaryWriter")
            ),
            *(
                Part(place, holds=PUBLIC, keeps="get_logdir", makes=True)
                for place in (
                    "torch.utils.tensorboard.writer:FileWriter",
                    "tensorboardX.writer:FileWriter",
                    "tensorboardX.event_file_writer:EventFileWriter",
                    "tensorboard.summary.writer.event_file_writer:EventFileWriter",
                    "tensorboard.summary._writer:Writer",
                )
            ),
            Part("tensorboardX.global_writer:GlobalSummaryWriter", holds=PUBLIC, keeps="getSummaryWriter", makes=True),
        ),
    ),
    Tracker(
        name="wandb",
        packages=("wandb",),
        switches={"WANDB_MODE": "disabled"},
        open_run="wandb.run",
        logs="wandb",
        state=("run.config._items", "run.config._locked"),
        binds="run config summary log watch unwatch save alert define_metric use_artifact log_artifact log_model "
        "use_model link_model mark_preempting pin_config_keys",
        parts=(
            Part(
                "wandb",
                begins="init attach _attach",
                opens="wandb.sdk.wandb_run:Run",
                holds="finish join login setup teardown _teardown sweep controller agent restore",
            ),
            Part(
                "wandb.sdk.wandb_run:Run",
                holds=f"{PUBLIC} _log _finish _label* _publish_file _*_callback __exit__ _add_singleton _save",
                keeps="get_url get_project_url get_sweep_url project_name to_html display status",
                values={
                    "config": (VALUES, "config"),
                    "summary": (VALUES, ""),
                    "dir": (FOLDER, "dir"),
                    **{name: (NAME, name) for name in ("id", "name", "project", "entity", "group", "path", "job_type")},
                },
            ),
            *(
                Part(place, holds=PUBLIC, makes=True)
                for place in (
                    "wandb.sdk.artifacts.artifact:Artifact",
                    *(f"wandb.sdk.data_types.{kind.lower()}:{kind}" for kind in ("Image", "Video", "Html", "Molecule")),
                    "wandb.sdk.data_types.audio:Audio",
                    "wandb.sdk.data_types.object_3d:Object3D",
                    "wandb.sdk.data_types.plotly:Plotly",
                )
            ),
        ),
    ),
    Tracker(
        name="mlflow",
        packages=("mlflow",),
        open_run="mlflow.active_run()",
        parts=(
            Part(
                "mlflow",
                begins="start_run",
                opens="mlflow.tracking.fluent:ActiveRun",
                asks="active_run last_active_run",
                holds="end_run log_* set_* create_* delete_* register_* restore_* update_* finalize_* initialize_* "
                "add_trace import_checkpoints flush_* enable_system_* disable_system_* autolog login start_span*",
            ),
            Part("mlflow.tracking.fluent", holds="autolog"),
            Part("mlflow.tracking.fluent:ActiveRun", holds="__exit__"),
            Part(
                "mlflow.tracking.client:MlflowClient",
                holds=PUBLIC,
                keeps="get_* search_* list_* load_* download_* parse_*",
                makes=True,
                values={"tracking_uri": (NAME, "tracking_uri")},
            ),
            Part("mlflow.utils.autologging_utils.client:MlflowAutologgingQueueingClient", holds=PUBLIC, makes=True),
            Part("mlflow.tracing.client:TracingClient", holds=PUBLIC, keeps="get_* search_*", makes=True),
            Part("mlflow.models.model:Model", holds="log"),
        ),
    ),
    Tracker(
        name="comet",
        packages=("comet_ml",),
        switches={"COMET_DISABLE_AUTO_LOGGING": "1"},
        open_run="comet_ml.get_running_experiment()",
        parts=(
            Part(
                "comet_ml",
                begins="start",
                opens="comet_ml.experiment:CometExperiment",
                asks="get_running_experiment get_global_experiment",
                holds="init init_onprem login end flush",
            ),
            *(
                Part(
                    place,
                    holds=f"{PUBLIC} _log_* _set_* _on_* __exit__",
                    keeps="get_* display display_project",
                    makes=True,
                    is_run=True,
                    values={
                        **dict.fromkeys(("id", "key", "url"), (NAME, "experiment_key")),
                        "name": (NAME, ""),
                        "project_name": (NAME, "project_name"),
                        "workspace": (NAME, "workspace"),
                    },
                )
                for place in (
                    "comet_ml.experiment:BaseExperiment",
                    "comet_ml.experiment:CometExperiment",
                    "comet_ml._online:Experiment",
                    "comet_ml._online:ExistingExperiment",
                    "comet_ml.offline:OfflineExperiment",
                    "comet_ml.offline:ExistingOfflineExperiment",
                    "comet_ml.api:APIExperiment",
                )
            ),
            Part("comet_ml.artifacts.artifact:Artifact", holds=PUBLIC, makes=True),
            Part("comet_ml.api:API", holds=PUBLIC, keeps="get* search query *cache", makes=True),
        ),
    ),
    Tracker(
        name="neptune",
        packages=("neptune", "neptune_scale"),
        switches={"NEPTUNE_MODE": "debug"},
        parts=(
            *(
                Part(
                    place,
                    holds=f"{PUBLIC} __setitem__ __delitem__ __exit__",
                    keeps="get_* fetch* exists print_structure define",
                    makes=True,
                )
                for place in (
                    *(
                        f"neptune.metadata_containers:{name}"
                        for name in ("MetadataContainer", "Run", "Model", "ModelVersion", "Project")
                    ),
                    "neptune_scale.api.run:Run",
                )
            ),
            Part(
                "neptune.handler:Handler",
                holds=f"{PUBLIC} __setitem__ __delitem__",
                keeps="get_* fetch* download* list_* container",
            ),
        ),
    ),
    Tracker(
        name="clearml",
        packages=("clearml", "trains"),
        switches={"CLEARML_OFFLINE_MODE": "1"},
        open_run="clearml.Task.current_task()",
        parts=(
            Part(
                "clearml.task:Task",
                begins="init create",
                opens="clearml.task:Task",
                asks="current_task",
                holds=f"{PUBLIC} __exit__",
                keeps="get_* running_locally is_* query_tasks normalize_id resolve_id list_*",
                passes={"connect": "mutable", "connect_configuration": "configuration"},
                values={
                    **dict.fromkeys(("name", "id", "task_id"), (NAME, "task_name")),
                    "project": (NAME, "project_name"),
                    "cache_dir": (FOLDER, ""),
                },
            ),
            Part("clearml.logger:Logger", holds=f"{PUBLIC} _console", keeps="get_* current_logger", makes=True),
            Part("clearml.backend_interface.metrics.reporter:Reporter", holds="report_*"),
            Part(
                "clearml.binding.frameworks:WeightsFileHandler",
                passes={"create_output_model": "saved_path", "restore_weights_file": "filepath"},
            ),
            *(
                Part(f"clearml.model:{name}", holds=PUBLIC, keeps="get_*", makes=True)
                for name in ("OutputModel", "InputModel")
            ),
        ),
    ),
    Tracker(
        name="aim",
        packages=("aim",),
        parts=tuple(
            Part(
                place,
                holds=f"{PUBLIC} __setitem__ __delitem__",
                keeps="get get_* iter_* metrics dataframe collect_* idx_to_ctx",
                makes=True,
                values={"hash": (NAME, "run_hash"), "name": (NAME, ""), "experiment": (NAME, "experiment")},
            )
            for place in ("aim.sdk.run:Run", "aim.sdk.run:BasicRun")
        ),
    ),
    Tracker(
        name="swanlab",
        packages=("swanlab",),
        switches={"SWANLAB_MODE": "disabled"},
        binds="run config",
        parts=(
            Part(
                "swanlab",
                begins="init",
                opens="swanlab:Run",
                asks="get_run has_run",
                holds="log log_* async_log finish login save sync* define_metric register_callbacks merge_*",
            ),
            Part(
                "swanlab:Run",
                holds=f"{PUBLIC} _log_impl __exit__",
                keeps="id mode name dir path url config",
                values={
                    "config": (VALUES, "config"),
                    "id": (NAME, "id"),
                    "name": (NAME, "name experiment_name"),
                    "dir": (FOLDER, "log_dir logdir"),
                    "public": (NAME, ""),
                },
            ),
            Part("swanlab.sdk.internal.run.components.config:Config", holds="_flush"),
        ),
    ),
    Tracker(
        name="trackio",
        packages=("trackio",),
        binds="config",
        parts=(
            Part(
                "trackio",
                begins="init",
                opens="trackio.run:Run",
                holds="log log_* finish alert save show sync freeze use_artifact delete_project import_*",
            ),
            Part(
                "trackio.run:Run",
                holds=f"{PUBLIC} __exit__",
                values={
                    "config": (VALUES, "config"),
                    **{one: (NAME, one) for one in ("name", "project", "group")},
                    "id": (NAME, "name"),
                },
            ),
        ),
    ),
    *(
        Tracker(
            name=f"{one.name}'s loggers",
            packages=one.packages,
            parts=tuple(
                Part(
                    known.base,
                    holds=known.holds,
                    hides=known.hides,
                    makes=known.makes,
                    family=known.family,
                    silent=known.silent,
                )
                for known in one.loggers
            ),
        )
        for one in FRAMEWORKS
        if one.loggers
    ),
)
"""Those whose reports a trial holds back."""

PACKAGES: Final = tuple(name for one in TRACKERS for name in one.packages if not one.name.endswith("'s loggers"))
"""Packages that do nothing but report: their objects are no state of a training."""
