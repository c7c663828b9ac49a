"""Measures the loading of batches, in the training process and in workers."""
