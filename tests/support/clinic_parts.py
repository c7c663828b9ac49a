"""What the tests of clinic share."""

from __future__ import annotations

from tests.support.clinic.ward import FAMILIES

PATIENTS = [one for patients in FAMILIES.values() for one in patients]
