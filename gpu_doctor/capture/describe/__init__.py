"""What models, loaders and batches are, as facts of the recording."""
