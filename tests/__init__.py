"""All tests of gpu_doctor; CONTRIBUTING.md says which folder runs when."""
