"""The tiny Llama-3-architecture model that ships with the course: its text, its training, its weights."""

import shutil
from pathlib import Path

HERE = Path(__file__).parent
TEXT_DIR = HERE / "text"
MODEL_DIR = HERE / "model"


def copy_model(out: Path) -> None:
    """Put the model into ``out``, as a download from Hugging Face would leave it."""
    for path in sorted(MODEL_DIR.iterdir()):
        if path.is_file():
            shutil.copyfile(path, out / path.name)
