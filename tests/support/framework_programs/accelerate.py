"""Accelerate's loop, as its manual shows it."""

from __future__ import annotations

import importlib

import torch

from tests.support.programs import Net, Plan, Slow, loss_of

accelerate = importlib.import_module("accelerate")


def program(plan: Plan) -> torch.nn.Module:
    """The loop of Accelerate's manual, with gradients clipped and a pass over held-out data after each epoch."""
    accelerate.utils.set_seed(3)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=plan.every)
    model: torch.nn.Module = Net(plan.hand)
    optimizer = Slow(model.parameters(), plan.hand)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    model, optimizer, batches, held_out, schedule = accelerator.prepare(
        model, optimizer, plan.loader(), plan.held_out(), schedule
    )
    for _ in range(plan.epochs):
        model.train()
        for x, y in batches:
            with accelerator.accumulate(model):
                loss = loss_of(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 10.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        with plan.hand.evaluation():
            model.eval()
            right = 0
            for x, y in held_out:
                with torch.no_grad():
                    guess = model(x).argmax(dim=-1)
                guess, y = accelerator.gather_for_metrics((guess, y))
                right += int((guess == y).sum())
    trained: torch.nn.Module = accelerator.unwrap_model(model)
    return trained


CELL = """
for x, y in batches:
    with accelerator.accumulate(model):
        loss = loss_of(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
"""
