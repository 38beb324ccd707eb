"""What differs between TensorRT-LLM releases, as data with a source for each fact."""

from trtllm_check.releases.load import known_releases, load_release
from trtllm_check.releases.release import Argument, Release, Templates, Tool, build_parser, check_arguments

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
