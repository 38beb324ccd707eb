"""The files of a tokenizer, carried from a model to a checkpoint and on to an engine."""

import shutil
from pathlib import Path

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def copy_tokenizer(source: Path, out: Path) -> None:
    """Copy the tokenizer of ``source`` (its ``tokenizer/`` folder, or beside the weights) to ``out``/tokenizer."""
    folder = source / "tokenizer" if (source / "tokenizer").is_dir() else source
    present = [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]
    if present:
        (out / "tokenizer").mkdir(parents=True, exist_ok=True)
    for path in present:
        shutil.copyfile(path, out / "tokenizer" / path.name)
