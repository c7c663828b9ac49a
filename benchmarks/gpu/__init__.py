"""All that is marked as not yet run on a GPU, proved on one: `make gpu`, or `python -m benchmarks.gpu`."""
