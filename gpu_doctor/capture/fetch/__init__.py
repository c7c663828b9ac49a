"""What loading a batch takes, in the training process and in workers."""
