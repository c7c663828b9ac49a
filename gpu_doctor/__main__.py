"""Makes `python -m gpu_doctor` the same as the command `gpudoctor`."""

import sys

from gpu_doctor.command import main

sys.exit(main())
