"""The tiny Llama-3-architecture model that ships with the course: its text, its training, its weights."""

from pathlib import Path

HERE = Path(__file__).parent
TEXT_DIR = HERE / "text"
MODEL_DIR = HERE / "model"
