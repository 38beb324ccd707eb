"""What differs between TensorRT-LLM releases, as data with a source for each fact."""

from playbook.releases.load import Argument, Release, Templates, Tool, known_releases, load_release
from playbook.releases.parser import build_parser, check_arguments

__all__ = [
    "Argument",
    "Release",
    "Templates",
    "Tool",
    "build_parser",
    "check_arguments",
    "known_releases",
    "load_release",
]
