"""The stand-in for tensor methods, where the taps look for it; it lives in `gpu_doctor.seam`."""

from gpu_doctor.seam import Seam as Seam
