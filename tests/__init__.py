"""All tests of gpu_doctor; docs/contributing/tests.md says which folder runs when."""
