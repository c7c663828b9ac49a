"""Lightning's Trainer, as its manual shows it."""

from __future__ import annotations

import importlib
import logging
import warnings
from typing import Any

import torch

from tests.support.programs import Net, Plan, Slow, loss_of

lightning = importlib.import_module("lightning")


class Lit(lightning.LightningModule):  # type: ignore[name-defined, misc]
    """A model inside of the LightningModule: `self(x)` is never called, as in most of Lightning's own examples."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan, self.net = plan, Net(plan.hand)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        """The forward and the loss of a batch."""
        x, y = batch
        loss = loss_of(self.net(x), y)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        """A held-out batch."""
        x, y = batch
        self.log("held_out", loss_of(self.net(x), y), prog_bar=True)

    def configure_optimizers(self) -> Any:
        """The optimizer and a schedule."""
        optimizer = Slow(self.parameters(), self.plan.hand)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]


class Forward(Lit):
    """As `Lit`, with the forward of the LightningModule itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The model."""
        out: torch.Tensor = self.net(x)
        return out

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        """The forward and the loss of a batch."""
        x, y = batch
        return loss_of(self(x), y)


class Timer(lightning.pytorch.callbacks.Callback):  # type: ignore[name-defined, misc]
    """Times validation by hand."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.open = plan, plan.hand.evaluation()

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        """It begins (the sanity check too)."""
        self.open = self.plan.hand.evaluation()
        self.open.__enter__()

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        """It ends."""
        self.open.__exit__(None, None, None)


def trainer_of(plan: Plan) -> Any:
    """A Trainer as its manual shows it."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    # Lightning's own `_pytree.py` asks for a leaf in the way that torch.utils._pytree deprecates.
    warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
    # Lightning: a cell that is run again, or tried after its run, finds the checkpoints of its run before.
    warnings.filterwarnings("ignore", r"Checkpoint directory .* exists and is not empty", UserWarning)
    return lightning.Trainer(
        accelerator="cpu",
        max_epochs=plan.epochs,
        accumulate_grad_batches=plan.every,
        num_sanity_val_steps=2 if plan.sanity else 0,
        callbacks=[Timer(plan)],
        default_root_dir=plan.folder,
        logger=False,
    )


def program(plan: Plan, kind: type[Lit] = Lit) -> torch.nn.Module:
    """Everything in one function."""
    lightning.seed_everything(3, verbose=False)
    model = kind(plan)
    trainer_of(plan).fit(model, plan.loader(), plan.held_out())
    return model


def program_with_forward(plan: Plan) -> torch.nn.Module:
    """As `program`, by `self(x)`."""
    return program(plan, Forward)
