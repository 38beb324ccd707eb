"""The embedded lane's model: the tiny Llama-3 that ships with the package."""

import shutil
from pathlib import Path

from playbook.tiny import MODEL_DIR


def copy_tiny_model(out: Path) -> None:
    """Fill ``out`` with the model's files, as a download from Hugging Face would."""
    for path in sorted(MODEL_DIR.iterdir()):
        if path.is_file():
            shutil.copyfile(path, out / path.name)
