"""The command `gpudoctor` (also `python -m gpu_doctor`): diagnoses a script, and reads and compares recordings.

It is the front end for terminals and CI, as `notebook` is the one for Jupyter. Imports that a subcommand needs wait
until it runs, so that the help and a mistyped line are answered at once, without numpy and torch. Nothing here uses the
package's own `__init__`, which may belong to another project (`other_package.py`).
"""

from gpu_doctor.command.command_line import main
from gpu_doctor.command.other_package import other_package

__all__ = ["main", "other_package"]
