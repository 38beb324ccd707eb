"""YAML that a command reads its options from: those of the LLM API, and those of ``vllm serve --config``."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from trtllm_check.lint.carriers.python_code import LLM_OPTIONS
from trtllm_check.lint.document import ConfigFile
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.shell import ShellCommand
from trtllm_check.lint.vllm_files import (
    config_model,
    config_words,
    is_loose_config,
    lone_config,
    named_configs,
    with_config,
)

OPTION_FLAGS = ("--extra_llm_api_options", "--config")
OURS = ("trtllm-serve", "trtllm-bench", "trtllm-eval", "trtllm-llmapi-launch")
ABOUT = re.compile(r"trt-?llm|tensorrt[-_ ]?llm", re.IGNORECASE)
Sources = Sequence[tuple[str, str]]
"""File ("" for a single text) and what was read."""


def option_files(yaml: Sequence[ConfigFile], found: Sequence[Invocation], sources: Sources) -> Iterator[ConfigFile]:
    """The YAML that a command names as its options, or that holds nothing but names of options."""
    if not yaml:
        return
    from trtllm_check.flows.options import looks_like_options, may_be_options

    named = {Path(word.text).name for one in found for word in one.values(OPTION_FLAGS[0])}
    named |= {Path(word.text).name for one in found if one.tool in OURS for word in one.values(OPTION_FLAGS[1])}
    others = named_configs(found)
    for file in yaml:
        name = Path(file.model).name
        if name in others or (name and name not in named and _is_given_to_another(name, sources)):
            continue
        is_ours = may_be_options(file.text) or any(ABOUT.search(text) for _, text in sources)  # else another engine's
        if Path(file.model).name in named or file.model == LLM_OPTIONS or (is_ours and looks_like_options(file.text)):
            yield file._replace(path=file.path if file.path in dict(sources) else "")


def _is_given_to_another(name: str, sources: Sources) -> bool:
    """True for a file that some program's ``--config`` names, and none of TensorRT-LLM's does."""
    given = re.compile(rf"--config[= ][\"']?\S*{re.escape(name)}")
    return any(given.search(text) for _, text in sources)


def with_configs(
    commands: Sequence[ShellCommand], found: Sequence[Invocation], yaml: Sequence[ConfigFile], sources: Sources
) -> list[ShellCommand]:
    """``commands`` with the words of the YAML that ``vllm serve --config`` reads, and what such YAML alone starts."""
    named = named_configs(found)
    commands = list(commands)
    loose = [file for file in yaml if not file.model and is_loose_config(file.text)]
    is_told = any(Path(file.model).name in named for file in yaml)
    only = loose[0] if len(loose) == len(named) == 1 and not is_told else None  # of a page, which names it in prose
    for file in yaml:
        name = next(iter(named)) if file is only else Path(file.model).name
        at = file.path if file.path in dict(sources) else ""
        if name in named:
            words, model = config_words(file.text, file.line), config_model(file.text, file.line)
            commands = [with_config(one, found, name, words, model) if one.file == at else one for one in commands]
        elif file.text in [text for _, text in sources]:
            commands += lone_config(file.text, at)
    return commands
