"""Values with which chapter 00's checks pass, and others with which they fire."""

from chapter_cells import Case
from playbook.preflight import Check

READY = Check("disk", "900 GB free", ">= 5 GB", "ok")
FULL = Check("disk", "1 GB free", ">= 5 GB", "missing", "free space")

CASES = [Case("00-07", "this machine is ready for the profile", {"checks": [READY]}, {"checks": [READY, FULL]})]
