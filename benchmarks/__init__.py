"""What gpu_doctor costs, and how right it is: README.md lists the scripts."""
