"""The reference of the GPU lane: the 16-bit model by transformers in the release's container, over all its GPUs.

The course's own environment has a CPU build of PyTorch and no accelerate, and 70B in 16 bits is no work for a host's
CPU. The container has both: quantize.py of the same release loads the same model in the same way.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from gpu_serving.execute import execute_all
from playbook.measure import reference_run
from playbook.profile import Profile
from trtllm_check.recipes.command import Command, Paths, place
from trtllm_check.releases import load_release

SCRIPT = "reference_run.py"
JOB, RESULT = "job.json", "result.json"
WHY = (
    "transformers loads the 16-bit model over all GPUs (device_map=auto, which accelerate does), answers and scores: "
    "what quantized engines are compared with."
)


def reference(profile: Profile, job: dict[str, Any], out: Path, *, root: Path) -> None:
    """Write the script, its job and its result into ``out``."""
    shutil.copyfile(reference_run.__file__, out / SCRIPT)
    (out / JOB).write_text(json.dumps(job | {"device_map": "auto"}), encoding="utf-8")
    paths = Paths.under(str(root), profile.name)
    execute_all([command(profile, out)], paths, root / profile.name / "logs", writes=out)


def command(profile: Profile, folder: Path) -> Command:
    """What runs the script of ``folder`` on its job."""
    words = [str(folder / name) for name in (SCRIPT, JOB, RESULT)]
    return Command("reference", SCRIPT, ("python3", *words), place(profile, load_release(profile.release)), why=WHY)
