"""What the tests of treatment share."""

from __future__ import annotations

from tests.support.training_worlds import World, WorldCase, recorded

SLOW_SERVER = World(waits=30, computes=1.0, trains=2.0, epoch=60)


DECODING = World(computes=4, trains=2, updates=3)


WORLDS = {
    "a slow server": SLOW_SERVER,
    "a slow server and two workers": World(waits=64, trains=1.5, epoch=50, written={"num_workers": 2}),
    "decoding": World(computes=6, trains=5, epoch=70),
    "decoding for a cheap model": World(computes=8, trains=1, epoch=75),
    "decoding and an optimizer": DECODING,
    "short epochs": World(computes=0.3, trains=1, epoch=10, written={"num_workers": 2}),
    "one slow batch in fifteen": World(waits=4, slow_every=15, slow=240, trains=18, written={"num_workers": 2}),
    "an optimizer": World(computes=0.1, updates=2),
    "sixteen threads": World(computes=0.1, trains=8, updates=0.3, parallel=0.9, written={"threads": 16}),
    "one thread for a large model": World(computes=0.1, trains=12, updates=0.3, parallel=0.9),
    "sixteen workers": World(computes=6, trains=0.5, written={"num_workers": 16}),
    "a slow store on eight cores": World(waits=90, computes=2, trains=6, epoch=120, cores=8),
    "decoding on eight cores": World(computes=40, trains=8, epoch=120, cores=8, parallel=0.5),
}


def case_of(world: World, seed: int = 0) -> WorldCase:
    case = WorldCase(world, seed)
    steps = 2 * world.epoch + 20 if world.epoch < 500 else 100  # a run goes through its epochs, a long one is stopped
    case.recordings.append(recorded(world, {}, steps, case.rng))
    return case
