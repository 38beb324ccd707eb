"""The YAML of --extra_llm_api_options against the options that the release's LLM API has.

The options of each release are data: :mod:`trtllm_check.flows.options`.
"""

import re
from collections.abc import Iterator

from serving_base.errors import NotYaml
from trtllm_check.flows.options import OptionProblem, check_options, llm_options, option_releases
from trtllm_check.lint.document import ConfigFile, Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.serving import ENGINE_BACKENDS
from trtllm_check.lint.shell.words import Word

OF_TRITON = "triton_config"  # of model.yaml, which the server's own model reads before the LLM API does
READERS = ("trtllm-serve", "trtllm-bench", "trtllm-eval")
VALUE, UNKNOWN = "takes one of", "no option of"
RULE = "llm-option-refused"
OURS = "tensorrt_llm"
PYTORCH = "LLM on PyTorch"


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Every option that the release does not take."""
    release = platform.release.name
    if not document.option_files or release not in option_releases():
        return
    if any(one.value("--backend") in ENGINE_BACKENDS for one in document.of(*READERS)):
        return  # another class of options, which was read up to 0.21 only
    for file in document.option_files:
        try:
            problems = check_options(file.text, release)
        except NotYaml:
            continue
        for problem in problems:
            if problem.option == OF_TRITON or (
                file.places and problem.option in rule_data("calls")[OURS]["meant_of"]["LLM"]
            ):
                continue  # the server's own; calls.py says what belongs to another class
            certain = not file.places  # LLM(...) may take more
            open_ = platform.guessed and VALUE in problem.message and _is_taken_elsewhere(problem, file.text)
            place = option_place(file, problem.option)
            for draft in draft_options(problem, release, place, file.path, certain=certain):
                yield draft._replace(severity="info") if open_ or _may_be_new(problem, release) else draft


def _is_taken_elsewhere(problem: OptionProblem, text: str) -> bool:
    """True for a value that another release takes, which may be the one that is meant."""
    return any(
        not any(f"{problem.option}.".startswith(f"{one.option}.") for one in check_options(text, name))
        for name in option_releases()
    )


def _may_be_new(problem: OptionProblem, release: str) -> bool:
    """True for a name that no release has, nor one like it, in a release whose options were not read themselves."""
    is_unknown = problem.message.startswith(UNKNOWN) and not problem.has
    return is_unknown and not problem.nearest and llm_options(release).read.confidence == "low"


def draft_options(
    problem: OptionProblem, release: str, place: Word, file: str, *, certain: bool = True
) -> Iterator[Draft]:
    """The finding on one option: an error only where the option was read for PyTorch's LLM API of the release."""
    known = llm_options(release).read
    instead = problem.nearest and f"write {problem.nearest}" + (f" ({problem.how})" if problem.how else "")
    why = (
        f"It is an option of {', '.join(problem.has)}." if problem.has else "The options are checked by name and type."
    )
    for draft in drafts(
        release,
        RULE,
        place,
        form="" if certain and problem.certain and known.holds == PYTORCH else "not certain",
        file=file,
        option=problem.option,
        problem=problem.message,
        instead=instead or (f"write {problem.how}" if problem.how else f"leave {problem.option} out"),
        reason=why,
    ):
        yield draft._replace(source=known.source)


def option_place(file: ConfigFile, option: str) -> Word:
    """Where an option stands: its line; of a nested one that of its own name below the others."""
    name = option.rpartition(".")[2]
    if file.places:
        found = file.text.find(f"{name}: ")
        place = file.places[max(found, 0)]
        return Word(name, *place)
    written, first = Word(option, file.line, 1), 0
    lines = file.text.split("\n")
    for part in option.split("."):  # each below the one before it
        for number, line in enumerate(lines[first:], first):
            match = re.match(rf"\s*[\"']?({re.escape(part)})[\"']?\s*:", line)
            if match:
                written, first = Word(match[1], file.line + number, match.start(1) + 1), number
                break
        else:
            break
    return written
