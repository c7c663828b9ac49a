"""Real programs in real time: each has the machine to itself."""
