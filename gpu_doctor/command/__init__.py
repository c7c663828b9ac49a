"""The command `gpudoctor`, which is `python -m gpu_doctor`: diagnoses a script, and reads and compares recordings.

A front end for terminals and CI, as `notebook` is one for Jupyter. What a subcommand needs is imported when it runs:
the help and a mistyped line are answered at once, without numpy and torch. Nothing here reads names of the package's
own `__init__`, which may be another project's (`other_package.py`).
"""

from gpu_doctor.command.command_line import main
from gpu_doctor.command.other_package import other_package

__all__ = ["main", "other_package"]
