"""What the tests of recording share."""

from __future__ import annotations

import numpy as np

from gpu_doctor.recording import (
    DeviceSetup,
    Fetch,
    LineCost,
    LoaderSetup,
    Losses,
    Metric,
    Recording,
    Series,
    Setup,
    Steps,
    Timed,
)
from gpu_doctor.recording.setup import (
    AttentionCalls,
    Chore,
    Compilation,
    EvaluationFacts,
    Flops,
    InputFacts,
    ModelFacts,
    OptimizerFacts,
    Recomputation,
    Traffic,
    World,
)
from gpu_doctor.recording.steps import STEP_COLUMNS


def full() -> Recording:
    """A recording in which every field differs from its default."""
    columns = {name: np.arange(3.0) + 10 * i for i, name in enumerate(STEP_COLUMNS)}
    columns["gpu_s"] = np.array([np.nan, 1.0, np.nan])
    loader = LoaderSetup(
        key="D[8] #0",
        role="evaluation",
        num_workers=2,
        batch_size=8,
        pin_memory=True,
        prefetch_factor=4,
        persistent_workers=True,
        drop_last=True,
        sampler="RandomSampler",
        dataset="D",
        dataset_kind="iterable",
        dataset_len=8,
        batches=1,
        collate="mine",
        start_method="spawn",
        loader_type="MyLoader",
        refusals={"batch_size": "no"},
    )
    setup = Setup(
        loaders=(loader, LoaderSetup(key="plain")),
        device="cuda:0",
        devices=(DeviceSetup(0, "GPU", "GPU-1", 80 << 30, (9, 0)), DeviceSetup(1, "other")),
        dtype="float32",
        autocast="bfloat16",
        parameters=10,
        parameter_bytes=40,
        models=("Net", "Head"),
        optimizers=("Adam",),
        layers={"Linear": 2},
        usable_cores=1.5,
        os_cores=16,
        physical_cores=8,
        cpu="AMD EPYC 7B13",
        host="node-7",
        start_method="spawn",
        torch_threads=4,
        torch_version="2.13",
        python_version="3.11",
        cuda_version="13",
        driver_version="600",
        flags={"matmul_precision": "highest", "cudnn_benchmark": False},
        model=ModelFacts(
            {"cuda:0": 40},
            {"float32": 40},
            8,
            2,
            1,
            ("head Linear(3, 5)",),
            True,
            "DataParallel",
            gradients_cleared=True,
        ),
        optimizer_facts=(OptimizerFacts("Adam", 4, 10, False, None, True),),
        inputs=InputFacts(9, 2, (8, 3), "float32", "cuda:0", True, 1),
        evaluation=EvaluationFacts(5, 2, 0.25),
        graph_operations=40,
        operation_s=6.3e-6,
        grad_scaler=True,
        graph_leaves=6,
        graph_result_bytes=4096.0,
        attention_calls=(AttentionCalls("math", 2, 8, 4, 64, 32, 16, "float16", True, True, True, True),),
        recomputation=Recomputation(24, 0.5, 2048.0),
        compilations=(Compilation("forward", "cell.py", 3, 1.5, 0.25, "self.n == 1", 4, "return x * self.n", True),),
        world=World(4, 1, 8, 1e9, (0.1, 0.2)),
    )
    return Recording(
        steps=Steps(**columns),
        settings={"num_workers": 2, "amp": "bf16", "pin_memory": True, "x": 0.5},
        setup=setup,
        outcome="failed",
        reason="ValueError: no",
        series=(
            Series(Metric("power_w", "W", "power", "detail", 0), np.array([0.5, 1.0]), np.array([300.0, np.nan])),
            Series(Metric("ram", "bytes", "RAM", "memory"), np.empty(0), np.empty(0)),
        ),
        fetches=(
            Fetch(
                *("D[8] #0", 2, 5, 1.0, 0.5, 0.1, float("nan"), np.array([0.2, 0.3]), 0.1, 3e6, 1e6, 2.0, 3.0, 7, 1),
                *(1.5, 0.2, 2, 0.5, 0.25, 1, 0.125, 0.05, np.array([3.0, 2.0]), np.array([1.0, 2.0])),
            ),
        ),
        lines=(LineCost("cell.py", 3, "f", "x < 1 & y", "other", 0.25, True, True, saves=True),),
        looks=40,
        losses=Losses(np.array([0.0]), np.array([8.0]), np.array([2.3])),
        chores=(Chore("checkpoint", 3, 0.5, 4e6, "cell.py", 9, "f", "torch.save(m, f)"),),
        traffic=Traffic(3, 1e6, 1, 2, 1, 8.0, 1, 5e5),
        flops=Flops(3e12, 1e11, 3, 0.75),
        timed=Timed(1.5, 3.5, 2.25),
        written=("runs/x.pt",),
        notes=("one", "zwei äöü"),
        name="mine",
        source="for x in loader:\n    pass\n",
        started_at=1.5e9,
        duration_s=12.5,
        overhead_s=0.01,
        peak_bytes=1e9,
    )
