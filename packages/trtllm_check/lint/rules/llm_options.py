"""The YAML of --extra_llm_api_options against the options that the release's LLM API has.

The options of each release are data: :mod:`trtllm_check.flows.options`.
"""

import re
from collections.abc import Iterator

from serving_base.errors import NotYaml
from trtllm_check.flows.options import OptionProblem, check_options, llm_options, option_releases
from trtllm_check.lint.document import ConfigFile, Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import Word

READERS = ("trtllm-serve", "trtllm-bench", "trtllm-eval")
ENGINES = ("tensorrt", "trt")
RULE = "llm-option-refused"
PYTORCH = "LLM on PyTorch"


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Every option that the release does not take."""
    release = platform.release.name
    if not document.option_files or release not in option_releases():
        return
    if any(one.value("--backend") in ENGINES for one in document.of(*READERS)):
        return  # another class of options, which was read up to 0.21 only
    known = llm_options(release)
    for file in document.option_files:
        try:
            problems = check_options(file.text, release)
        except NotYaml:
            continue
        for problem in problems:
            certain = problem.certain and known.read.holds == PYTORCH
            yield from _draft(file, problem, release, known.read.source, certain=certain)


def _draft(file: ConfigFile, problem: OptionProblem, release: str, source: str, *, certain: bool) -> Iterator[Draft]:
    instead = f"write {problem.how}" if problem.how else f"leave {problem.option} out"
    why = (
        f"It is an option of {', '.join(problem.has)}." if problem.has else "The options are checked by name and type."
    )
    known = {"option": problem.option, "problem": problem.message, "instead": instead, "reason": why}
    form = "" if certain else "not certain"
    for draft in drafts(release, RULE, _place(file, problem.option), form=form, file=file.path, **known):
        yield draft._replace(source=source)


def _place(file: ConfigFile, option: str) -> Word:
    """The line of the option; of a nested one that of its own name."""
    name = option.rpartition(".")[2]
    for number, line in enumerate(file.text.split("\n")):
        match = re.match(rf"\s*[\"']?({re.escape(name)})[\"']?\s*:", line)
        if match:
            return Word(match[1], file.line + number, match.start(1) + 1)
    return Word(option, file.line, 1)
