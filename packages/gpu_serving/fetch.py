"""Downloads a model from the hub: checked before the first byte and after the last."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

from gpu_serving.execute import execute_all, logs, setting
from gpu_serving.hub import file_sizes, require_space, verify
from trtllm_check.deployment import Deployment
from trtllm_check.recipes import commands


def fetch(profile: Deployment, out: Path, *, root: Path) -> None:
    """Download the model and put its files into ``out``.

    Token, access and disk are checked before the first byte, every file's size after the last. The download stays
    under ``<root>/downloads``, so an interrupted one goes on where it stopped, and profiles share it.
    """
    sizes = file_sizes(profile.shape.hf_id)
    downloads = root / "downloads" / profile.model
    downloads.mkdir(parents=True, exist_ok=True)
    require_space(sizes, downloads)
    release, paths = setting(profile, root)
    paths = replace(paths, model=str(downloads))
    execute_all(commands(profile, release, "fetch", paths), paths, logs(profile, root), writes=downloads)
    verify(downloads, sizes)
    shutil.copytree(downloads, out, copy_function=os.link, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".cache"))
