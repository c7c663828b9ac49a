"""`python -m gpu_doctor` is the command `gpudoctor`."""

import sys

from gpu_doctor.command import main

sys.exit(main())
