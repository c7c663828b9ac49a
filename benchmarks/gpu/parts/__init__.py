"""The parts of the proof, a file each with a function `run(stage)`; plan.py lists them."""
