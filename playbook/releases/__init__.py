"""What differs between TensorRT-LLM releases, as data with a source for each fact."""

from playbook.releases.load import known_releases, load_release
from playbook.releases.parser import build_parser, check_arguments
from playbook.releases.release import Argument, Release, Templates, Tool

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
