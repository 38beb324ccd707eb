"""This checkout, and what a child process needs to import it: whatever the environment has installed."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON_PATH = os.pathsep.join([str(ROOT), str(ROOT / "packages")])
