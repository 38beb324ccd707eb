"""Errors that rest on what the text does not say are warnings.

A family says what is wrong with what it sees. What it cannot see (a repository of the reader's own, a file edited by
hand, an example of one variable) is looked for here, so that no error rests on a guess.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import lru_cache

from trtllm_check.lint.document import Document
from trtllm_check.lint.evidence import OF_A_LOG, facts_release, told
from trtllm_check.lint.finding import Draft, Platform, rule_data
from trtllm_check.lint.impossible import in_no_release
from trtllm_check.lint.lookups import once
from trtllm_check.lint.open_texts import (
    OF_07,
    clones_an_earlier,
    has_a_terminal,
    has_models_of_its_own,
    is_a_template,
    is_cut,
    is_of_an_earlier,
    is_proposed,
    is_taken_out,
    keeps_old_openai,
    leaves_services_out,
    shows_wrong_and_right,
)
from trtllm_check.lint.shell import ShellCommand
from trtllm_check.lint.shell.pasted import ELISION, is_of_another_section
from trtllm_check.lint.shell.words import Word, lines_of
from trtllm_check.lint.taken_back import is_taken_back, text_of
from trtllm_check.releases.clients import example_scripts
from trtllm_check.releases.history import with_flag

EDITORS = frozenset({"vi", "vim", "nano", "emacs", "code", "sed", "perl", "cat", "tee"})
ABSENT_MODEL = re.compile(r"has no model (?P<model>\S+)$")
KNOWN_MODELS = ("ensemble", "tensorrt_llm_bls", "tensorrt_llm", "preprocessing", "postprocessing")
READ_ELSEWHERE = re.compile(r"; [\w.,+ ]+ read it$")
HOLDS = re.compile(r"it holds TensorRT-LLM (\S+)$")
OF_BATCHING = "max_queue_delay_microseconds"
UNKNOWN = re.compile(r"unrecognized arguments: (--[\w-]+)")
NEAR_FLAG, SHORT_FLAG = 0.85, 8
NEAR = 0.7
SMALL = ("ensemble",)  # has hardly more than one variable
OF_DEFAULTS = frozenset({"paged-fmha-with-quantized-kv"})  # what another release would not turn on by itself
OF_A_GUESS = ("moved-script", "tool-not-in-release")  # right in one half of the releases, which nobody names
OF_ONE_RELEASE = frozenset(  # what is right in one release and wrong in another
    {
        *("moved-script", "flag-removed", "flag-too-new", "tool-not-in-release", "missing-flag", "bad-value"),
        *("unfilled-variable", "missing-parameter", "engine-inputs", "config-of-another-release"),
        *("engine-flow-removed", "unknown-parameter", "unknown-variable"),
    }
)
OF_MODELS = frozenset({"unknown-variable", "unfilled-variable", "missing-input", "unknown-input", "model-never-filled"})
ARGUMENTS = frozenset({"unknown-flag", "missing-flag", "bad-value", "stray-word", "takes-no-value", "flag-removed"})
OF_SCRIPTS = ARGUMENTS | {"ranks-not-tp-pp", "engine-flow-removed"}
OURS = ("convert_checkpoint.py", "trtllm-build", "quantize.py", "run.py", "summarize.py")
COMMON_NAMES = ("run.py", "summarize.py", "quantize.py")
OF_EXAMPLES = re.compile(r"examples?/|tensorrt[-_]?llm|\$", re.IGNORECASE)
MEASURES = re.compile(r"benchmark|trtllm-bench|(?:dummy|random|fake) weights|throughput", re.IGNORECASE)
OF_WHOLE_COMMANDS = frozenset({"build-of-nothing", "missing-flag"})
OF_LENGTHS = "engine-limit"
OF_WRITTEN_OUT = OF_WHOLE_COMMANDS | {"command-form", "no-gpus", "image-starts-nothing", "needs-value"}
OF_OLD_OPENAI = "openai 1.0"
CONTAINER = re.compile(r"tritonserver:\d\d\.\d\d-trtllm|tensorrt-llm/(?:release|devel):")
OTHER_WORD = re.compile(r"tensorrt[-_]llm\s*==|(?:--branch|-b|checkout)[ =]v?\d|TensorRT-LLM v?\d+\.\d", re.IGNORECASE)
OF_RESOURCES = frozenset({"manifest-field", "manifest-value"})
SEVERAL, TOLD_ONE = re.compile(r"\b[Mm]ulti-?(?: )?GPU\b"), "1 GPU(s): the text tells of no more"
FLAG = re.compile(r"--[\w-]+")
GONE = re.compile(r"^[ \t]*#[^\n]*\b(?:deprecated|removed|renamed|replaced)\b[^\n]*", re.MULTILINE)
FEW, SOME = 2, 3
LAUNCHER = "launch_triton_server.py"
OF_VALUES = ("vllm-value", "vllm-mismatch", "vllm-options-together")
LATER_FOLDERS = "examples/models/"
ONE_LINE = re.compile(r"\s*```[^`]+```\W*$")
INLINE, SAID = re.compile(r"`[^`\n]+`"), re.compile(r"[^\W\d_]{2,}")
COUNTEREXAMPLE = re.compile(r"\b(?:typo|does(?:n't| not) exist|wrong|mistake|don't do this)\b|❌", re.IGNORECASE)
CONCEPTUAL = re.compile(r"#.*\b(?:conceptual|pseudo|illustrat|simplified)", re.IGNORECASE)
EARLIER_BUILDER = "build.py"  # of each model's folder, before 0.8, of which there are no facts
OTHER_MODELS = re.compile(
    r"gemma|qwen|bloom|falcon|\bphi-?\d|baichuan|chatglm|mamba|\bopt-\d|whisper|\bbart|\bt5\b|\bgpt-?[2jn]|internlm|grok|dbrx"
    r"|\bmpt\b|medusa|re-?drafter|\beagle|\bglm|skywork|smaug|arctic|exaone|deepseek|recurrentgemma|nemotron|cogvlm",
    re.IGNORECASE,
)
LLAMA = re.compile(r"(?<![a-z])(?:code)?llama|mi[sx]tral", re.IGNORECASE)


def weighed(draft: Draft, document: Document, platform: Platform) -> Draft:
    """``draft``, as a warning where the text leaves open what it rests on."""
    if draft.severity in ("error", "warning") and is_taken_back(draft, document, platform):
        return draft._replace(severity="info")
    if draft.rule in OF_SCRIPTS and _is_anothers_script(draft, document):
        return draft._replace(severity="info")
    if draft.rule == "unfilled-variable" and OF_BATCHING in draft.message and is_taken_out(document.texts):
        return draft._replace(severity="info")
    if draft.rule in OF_DEFAULTS and platform.guessed and draft.severity == "warning":
        return draft._replace(severity="info")
    of_templates = ("unfilled-variable", "unknown-variable")
    if draft.rule == "example-folder" and LATER_FOLDERS in draft.place.text and _is_told_by_output(document):
        return draft._replace(severity="info")  # what a page shows as a sample was printed by an earlier one, perhaps
    if draft.rule in OF_MODELS and has_models_of_its_own(document.texts):
        return draft._replace(severity="info")
    if draft.rule in of_templates and platform.guessed and is_of_an_earlier(document.texts):
        return draft._replace(severity="info")
    if draft.rule in of_templates and clones_an_earlier(document.texts):
        return draft._replace(severity="info")  # whose templates have other variables
    if draft.rule == "unfilled-variable" and _is_filled_by_a_program(draft, document):
        return draft._replace(severity="info")
    if draft.rule == "gpus-fewer-than-ranks" and any(SEVERAL.search(text) for _, text in document.texts):
        return draft._replace(severity="info") if TOLD_ONE in draft.message else draft
    if draft.rule == "unfilled-variable" and draft.invocation is None and is_a_template(document.texts):
        return draft._replace(severity="info")
    is_elsewhere = READ_ELSEWHERE.search(draft.message) or draft.message.endswith(OF_07)
    if draft.rule == "unknown-parameter" and platform.guessed and is_elsewhere:
        return draft._replace(severity="info")
    is_guess = draft.rule == "container-of-another-release" and platform.told
    if is_guess and (_is_the_one_told(draft, platform) or _is_told_by_output(document)):
        return draft._replace(severity="info")
    if _is_a_counterexample(draft, document):
        return draft._replace(severity="info")
    if draft.rule == "stray-word" and draft.place.text == "\\" and _ends_its_file(draft, document):
        return draft._replace(severity="info")  # bash drops it there
    if draft.rule == "build-of-nothing" and _shows_options(draft, document):
        return draft._replace(severity="info")
    if draft.rule == "wrong-model-path" and _may_be_another_model(draft, document) and _is_of_pieces(document):
        return draft._replace(severity="info")
    if draft.rule == "yaml-does-not-parse" and has_a_terminal(document.texts):
        return draft._replace(severity="info")  # what was typed or printed around the file
    if draft.rule == "no-gpus" and is_cut(document.texts):
        return draft._replace(severity="info")  # a manifest that was cut
    if draft.rule == "wheel-of-another-release" and platform.guessed:
        return draft._replace(severity="info")  # which release it is for is read off a few options
    if draft.rule == "python-use" and OF_OLD_OPENAI in draft.message and keeps_old_openai(document.texts):
        return draft._replace(severity="info")
    if draft.rule in OF_WRITTEN_OUT and _leaves_out(draft, document):
        return draft._replace(severity="info")
    if draft.rule == OF_LENGTHS and shows_wrong_and_right(document.texts):
        return draft._replace(severity="info")
    if draft.rule == "clone-of-another-release" and _is_told_by_output(document):
        return draft._replace(severity="info")  # of what this very clone became
    if draft.rule in OF_VALUES and _is_given_perhaps(draft, document):
        return draft._replace(severity="info")
    if draft.rule == "flag-removed" and platform.guessed and _says_that_it_went(draft, document.texts):
        return draft._replace(severity="info")
    if draft.rule == "compose-together" and leaves_services_out(document.texts):
        return draft._replace(severity="info")  # what the reader has is not all here
    if draft.severity != "error":
        return draft
    if draft.rule in OF_WHOLE_COMMANDS and shows_wrong_and_right(document.texts):
        return draft._replace(severity="info")
    if draft.rule == "tool-not-in-release" and _is_told_further_down(draft, document):
        return draft._replace(severity="info")
    if draft.rule in OF_RESOURCES and (is_proposed(document.texts) or _is_conceptual(draft, document)):
        return draft._replace(severity="info")
    if platform.guessed and draft.rule == "unknown-flag" and _is_of_the_first_build(draft):
        return draft._replace(severity="warning", why=f"{draft.why} trtllm-build of 0.7 had it.")
    if platform.guessed and (reason := in_no_release(draft, document)):
        return draft._replace(why=f"{draft.why} {reason}")
    if platform.guessed and draft.rule in OF_ONE_RELEASE:  # nobody says that it is for the newest release
        return draft._replace(severity="info" if draft.rule in OF_A_GUESS else "warning")
    if draft.rule in ARGUMENTS and _may_be_another_converter(draft, document):
        named = _is_of_its_own(draft) or any(OTHER_MODELS.search(text) for _, text in document.texts)
        return draft._replace(severity="info" if named and not _is_slip(draft, platform) else "warning")
    if draft.rule in ARGUMENTS and platform.guessed and draft.invocation and draft.invocation.tool.endswith(".py"):
        is_ours = _is_slip(draft, platform) or _is_of_earlier(draft) or _is_of_another_tool(draft)
        is_own = draft.rule == "unknown-flag" and not is_ours
        return draft._replace(severity="info" if is_own else "warning")  # an edition with flags of its own, perhaps
    if draft.rule == "unfilled-variable" and _is_partial(draft, document):
        return draft._replace(severity="warning")
    if draft.rule == "wrong-model-path" and _may_be_another_model(draft, document):
        return draft._replace(severity="warning")
    if platform.told and draft.rule == "container-of-another-release":
        return draft._replace(severity="warning")  # a page of several containers: which one is meant is a guess
    if draft.rule == "needs-paged-context-fmha" and len(document.of("trtllm-build")) > 1:
        return draft._replace(severity="warning")  # of several builds, which one is meant is a guess
    return draft


def _is_the_one_told(draft: Draft, platform: Platform) -> bool:
    """True for a container of a build that the facts of the release were taken for."""
    match = HOLDS.search(draft.message)
    return match is not None and facts_release(match[1]) == platform.release.name


def _is_told_by_output(document: Document) -> bool:
    """True where only what a program printed tells the release, beside containers that tell others."""
    best = told(document)
    return best is not None and best.kind == OF_A_LOG


def _is_given_perhaps(draft: Draft, document: Document) -> bool:
    """True for an option that a shell gives only where a variable is set: ``${SKIP:+--skip-tokenizer-init}``."""
    lines = lines_of(text_of(draft, document))
    line = lines[draft.place.line - 1] if 0 < draft.place.line <= len(lines) else ""
    return re.search(r"\$\{\w+:?\+\Z", line[: draft.place.column - 1]) is not None


def _shows_options(draft: Draft, document: Document) -> bool:
    """True for a build on a page that names no folder at all, and for one of weights that nobody wants: a benchmark."""
    one = draft.invocation
    text = text_of(draft, document)
    if one is None or draft.place.text.startswith("--model_config"):
        return MEASURES.search(text) is not None
    names = one.has("--output_dir") or any("/" in word.text for word in one.arguments)
    return "```" in text and len(one.given) > SOME and not names


def _leaves_out(draft: Draft, document: Document) -> bool:
    """True for a command with three dots among its words: ``trtllm-build ... --max_seq_len 8192``."""
    command = draft.invocation.command if draft.invocation is not None else None
    text = dict(document.texts).get(command.file if command is not None else draft.file, "")
    first, last = (command.line, command.end_line) if command is not None else (draft.place.line, draft.place.line)
    lines = lines_of(text)[first - 1 : last]
    return any(ELISION.search(line) is not None for line in lines) or (
        len(lines) == 1 and (_is_named(lines[0]) or ONE_LINE.match(lines[0]) is not None)
    )


def _is_named(line: str) -> bool:
    """True for a command that a sentence names: "it ran through `trtllm-serve --backend pytorch`"."""
    said, pieces = INLINE.subn("", line)
    return pieces > 0 and len(SAID.findall(said)) > (FEW if pieces == 1 else 0)


def _says_that_it_went(draft: Draft, texts: tuple[tuple[str, str], ...]) -> bool:
    """True where a comment of the text says of the option that a release renamed it, or took it away."""
    match = FLAG.search(draft.message)
    lines = (line for _, text in texts for line in GONE.findall(text))
    return match is not None and any(match[0] in line for line in lines)


def _is_filled_by_a_program(draft: Draft, document: Document) -> bool:
    """True for a place that has no ``$`` in the text: a value that Python puts there, with a name of its own."""
    if draft.invocation is not None:
        return False
    lines = _lines(dict(document.texts).get(draft.file, ""))
    return 0 < draft.place.line <= len(lines) and "$" not in lines[draft.place.line - 1]


@lru_cache(maxsize=4)
def _lines(text: str) -> list[str]:
    return text.split("\n")


def _is_partial(draft: Draft, document: Document) -> bool:
    """True for a command that shows one variable, or a file that the text edits otherwise too."""
    if draft.invocation is None or len(draft.invocation.positional) < 2:
        return False
    path = draft.invocation.positional[0]
    named = document.lookups.naming(path.text)
    same = [one for command in named for one in document.lookups.inside(command) if one.tool == draft.invocation.tool]
    if posixpath.basename(posixpath.dirname(path.text)) not in SMALL and all(
        word.text.count(":") == 1 for one in same for word in one.positional[1:]
    ):
        return True  # an example of one variable leaves the others out
    return any(command.words[:1] and posixpath.basename(command.words[0].text) in EDITORS for command in named)


def _may_be_another_model(draft: Draft, document: Document) -> bool:
    """True for a name that is no misspelling, where the text does not show the whole repository."""
    match = ABSENT_MODEL.search(draft.message)
    if match is None or sum(bool(config.path) for config in document.configs) > 1:
        return False
    return match["model"] in KNOWN_MODELS or not get_close_matches(match["model"], KNOWN_MODELS, 1, NEAR)


def _is_of_pieces(document: Document) -> bool:
    """True for configurations that a page shows one by one: they are no repository."""
    return len(document.configs) > 1 and not any(config.path for config in document.configs)


def _may_be_another_converter(draft: Draft, document: Document) -> bool:
    """True for a convert_checkpoint.py that nothing calls Llama's: each model's takes flags of its own."""
    if draft.invocation is None or draft.invocation.tool != "convert_checkpoint.py":
        return False
    return not any(LLAMA.search(text) for _, text in document.texts)


def _is_slip(draft: Draft, platform: Platform) -> bool:
    """True for an argument that looks like one of the script's, whichever model's it is."""
    match = UNKNOWN.search(draft.message)
    tool = platform.release.tools.get(draft.invocation.tool) if draft.invocation and match else None
    if not tool or not match:
        return False
    written = f"--{match[1][2:].replace('-', '_')}"
    is_longer = any(written.startswith(name) for name in tool.arguments if len(name) > SHORT_FLAG)
    return is_longer or bool(get_close_matches(written, tool.arguments, 1, NEAR_FLAG))


def _is_of_another_tool(draft: Draft) -> bool:
    """True for an option of another one of our tools, given where it is none; else an edition may have it."""
    match, one = UNKNOWN.search(draft.message), draft.invocation
    return match is not None and one is not None and any(with_flag(tool, match[1]) for tool in OURS if tool != one.tool)


def _is_of_earlier(draft: Draft) -> bool:
    """True for an option that the builders before 0.8 had: TensorRT-LLM's own, in the wrong place."""
    match = UNKNOWN.search(draft.message)
    return match is not None and any(match[1] in options for options in example_scripts(EARLIER_BUILDER).values())


def _is_of_the_first_build(draft: Draft) -> bool:
    """True for a trtllm-build all of whose options 0.7 had, the first release with it, of which there are no facts."""
    one = draft.invocation
    return (
        one is not None
        and one.tool == "trtllm-build"
        and all(given.name in rule_data("arguments")["first_build"].split() for given in one.given)
    )


def _is_a_counterexample(draft: Draft, document: Document) -> bool:
    """True for a line whose comment says that it is a mistake."""
    file = draft.file or (draft.invocation.command.file if draft.invocation is not None else "")
    lines = lines_of(dict(document.texts).get(file, ""))
    line = lines[draft.place.line - 1] if 0 < draft.place.line <= len(lines) else ""
    return "#" in line and COUNTEREXAMPLE.search(line, line.index("#")) is not None


def _is_conceptual(draft: Draft, document: Document) -> bool:
    """True in a block that says of itself that it only shows the idea."""
    lines = lines_of(text_of(draft, document))[: draft.place.line]
    start = max((number for number, line in enumerate(lines) if line.lstrip().startswith("```")), default=0)
    return any(CONCEPTUAL.search(line) for line in lines[start:])


def _ends_its_file(draft: Draft, document: Document) -> bool:
    """True for the last word of a script."""
    text = text_of(draft, document)
    return text.endswith("\\") and draft.place.line == text.count("\n") + 1


def _is_anothers_script(draft: Draft, document: Document) -> bool:
    """True for a script of a common name in the reader's folder that gets nothing of ours, or of an older road."""
    one = draft.invocation
    is_earlier = bool(_earlier_builders(document))
    if draft.rule == "ranks-not-tp-pp":  # stands at the launcher
        return is_earlier
    if one is not None and one.tool == LAUNCHER and posixpath.dirname(one.path.text) not in ("", ".", "scripts"):
        flags = [each.name for each in one.given if each.flag]
        return len(flags) >= SOME and not any(with_flag(LAUNCHER, each) for each in flags)
    if one is None or one.tool not in COMMON_NAMES:
        return False
    known = sum(bool(with_flag(one.tool, each.name)) for each in one.given)
    strange = sum(each.flag != "" and not any(with_flag(tool, each.name) for tool in OURS) for each in one.given)
    if posixpath.dirname(one.path.text) not in ("", "."):
        return not OF_EXAMPLES.search(one.path.text) and (known == 0 or strange > known)
    if is_earlier:
        return True
    is_missing = draft.rule == "missing-flag"  # what a script with options of its own wants is not known
    return known == 0 or (is_missing and (known < FEW or strange > 0)) or strange > known


def _is_told_further_down(draft: Draft, document: Document) -> bool:
    """True where a later section's container tells the release: what stands above it need not run there."""
    file = draft.invocation.command.file if draft.invocation is not None else draft.file
    text = dict(document.texts).get(file, "")
    first = _first_container(text)
    return 0 < draft.place.line < first and is_of_another_section(text, draft.place.line, first)


@lru_cache(maxsize=8)
def _first_container(text: str) -> int:
    """The line of the first container that tells the release; 0 where something else may."""
    match = CONTAINER.search(text) if OTHER_WORD.search(text) is None else None
    return text.count("\n", 0, match.start()) + 1 if match else 0


def _is_of_its_own(draft: Draft) -> bool:
    """True for a script in a folder of its own with more options that no release has than others."""
    one = draft.invocation
    if one is None or not posixpath.dirname(one.path.text).strip("./") or OF_EXAMPLES.search(one.path.text):
        return False
    known = sum(bool(with_flag(one.tool, each.name)) for each in one.given)
    return sum(each.flag != "" for each in one.given) - known > known


@once
def _earlier_builders(document: Document) -> Iterator[ShellCommand]:
    yield from (command for command in document.commands if _runs_earlier_builder(command.words))


def _runs_earlier_builder(words: Sequence[Word]) -> bool:
    """True for ``python build.py --option``, in the folder itself."""
    texts = [word.text for word in words]
    at = texts.index(EARLIER_BUILDER) if EARLIER_BUILDER in texts else 0
    return at > 0 and texts[at - 1].startswith("python") and any(text.startswith("--") for text in texts[at + 1 :])
