"""transformers' Trainer on a tiny random BERT."""

from __future__ import annotations

import importlib
import time
from typing import Any

import torch

from tests.support.programs import HELD_OUT, Collate, Hand, Items, Net, Plan, Slow

transformers = importlib.import_module("transformers")


def classifier(plan: Plan) -> Any:
    """A BERT of one narrow layer, read off tokens, whose logits pass through the slept-for part."""

    class Bert(transformers.BertForSequenceClassification):  # type: ignore[name-defined, misc]
        def __init__(self, config: Any, hand: Hand) -> None:
            super().__init__(config)
            self.hand, self.head = hand, Net(hand)

        def forward(self, input_ids: Any = None, x: Any = None, labels: Any = None, **more: Any) -> Any:
            """Its own logits, and those of the head."""
            with self.hand.time("forward"):
                logits = super().forward(input_ids=(x * 9).long()).logits
            logits = logits + self.head(x)
            loss = torch.nn.functional.cross_entropy(logits, labels)
            if loss.requires_grad:
                loss.register_hook(lambda _: setattr(self, "backward_began", time.perf_counter()))
            return transformers.modeling_outputs.SequenceClassifierOutput(loss=loss, logits=logits)

    config = transformers.BertConfig(
        vocab_size=16, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    return Bert(config, plan.hand)


class Trainer(transformers.Trainer):  # type: ignore[name-defined, misc]
    """The Trainer, with a stopwatch around its evaluation and its backward passes, which end its training step."""

    hand: Hand

    def training_step(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        """As it is."""
        loss = super().training_step(model, *args, **kwargs)
        self.hand.seconds["backward"] += time.perf_counter() - model.backward_began
        return loss

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """As it is."""
        with self.hand.evaluation():
            return super().evaluate(*args, **kwargs)


def trainer_of(plan: Plan) -> Any:
    """A Trainer as its manual shows it."""
    transformers.logging.set_verbosity_error()
    transformers.set_seed(3)
    model = classifier(plan)
    optimizer = Slow(model.parameters(), plan.hand)
    arguments = transformers.TrainingArguments(
        output_dir=plan.folder,
        num_train_epochs=plan.epochs,
        per_device_train_batch_size=plan.batch,
        per_device_eval_batch_size=plan.batch,
        gradient_accumulation_steps=plan.every,
        dataloader_num_workers=plan.workers,
        eval_strategy="epoch",
        logging_steps=5,
        report_to=[],
        use_cpu=True,
        seed=3,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Items(plan.samples, plan.hand, plan.item_s, named=True),
        eval_dataset=Items(HELD_OUT, plan.hand, named=True),
        data_collator=Collate(plan.hand),
        optimizers=(optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 100)),
    )
    trainer.hand, plan.hand.whole_backward = plan.hand, True
    return trainer


def program(plan: Plan) -> torch.nn.Module:
    """Everything in one function."""
    trainer = trainer_of(plan)
    trainer.train()
    model: torch.nn.Module = trainer.model
    return model
