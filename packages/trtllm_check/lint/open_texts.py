"""What a text as a whole leaves open: a template, a proposal, a cut, a clone of an earlier release."""

import re
from functools import lru_cache

TAKEN_OUT = re.compile(r"\b(?:remove|delete|comment out)\b[^\n]{0,40}\bdynamic[ _]batching", re.IGNORECASE)
COPIED_MODEL = re.compile(
    r"^[^\n#]*\b(?:cp|COPY|rsync)\b[^\n]*?\s[\w.$/{}-]+/(?:ensemble|preprocessing|postprocessing|tensorrt_llm)/?\*?\s",
    re.MULTILINE,
)
OUR_TEMPLATES = re.compile(r"all_models|inflight_batcher_llm|triton_backend|triton_templates")
CONTRAST = re.compile(
    r"❌\s*(?:wrong|bad|incorrect|don['’]?t|avoid|never|before)\b", re.IGNORECASE
)  # examples, cut short
PROPOSAL = re.compile(
    r"^#{1,3} .*\b(?:[Pp]roposal|RFC|KEP)\b|^[Tt]his (?:proposal|RFC)\b|\b[Tt]his proposal\b", re.MULTILINE
)
OF_A_TERMINAL = re.compile(
    r"^(?:\([\w.-]+\) )?[\w.-]+@[\w.-]+[:~ ][^\n]*[#$] |^\[\+\] Running|^Error response from daemon|^ [✔✘] ",
    re.MULTILINE,
)
OTHER_SERVICES = re.compile(
    r"^services:[^\n]*\n(?:[ \t]*\n)*[ ]+#[^\n]*(?:\.{3}|…|\b(?:existing|other|your) )", re.MULTILINE
)
EARLIER_CLONE = re.compile(
    r"(?:-b|--branch)[ =\"',]+(?:release/|rel/|v)?0\.[4-7](?:\.\d)?\b[^\n]*tensorrtllm_backend"
    r"|tensorrtllm_backend(?:\.git)?[^\n]*(?:-b|--branch)[ =\"',]+(?:release/|rel/|v)?0\.[4-7](?:\.\d)?\b"
    r"|git checkout (?:release/|rel/|v)0\.[4-7](?:\.\d)?\b|[\"']release/0\.[4-7](?:\.\d)?[\"']"
)
OLD_OPENAI = re.compile(r"(?<![\w-])openai\s*(?:[=~]=\s*0|<=?\s*[01]\b)")
MANY = 5
OF_07 = ("max_num_sequences", "max_kv_cache_length")
"""Variables of the templates before 0.8."""

Texts = tuple[tuple[str, str], ...]
"""Name and content of each text of a document."""


@lru_cache(maxsize=8)
def has_models_of_its_own(texts: Texts) -> bool:
    """True where the repository's models are copied from a folder of the reader's, and the templates named nowhere."""
    is_copied = any(COPIED_MODEL.search(text) for _, text in texts)
    return is_copied and not any(OUR_TEMPLATES.search(text) for _, text in texts)


@lru_cache(maxsize=8)
def shows_wrong_and_right(texts: Texts) -> bool:
    return any(CONTRAST.search(text) for _, text in texts)


@lru_cache(maxsize=8)
def is_a_template(texts: Texts) -> bool:
    """True for a template as the project has it: nearly all that may be filled in is open."""
    whole = "\n".join(text for _, text in texts)
    return whole.count('string_value: "${') >= MANY and "fill_template" not in whole


@lru_cache(maxsize=8)
def leaves_services_out(texts: Texts) -> bool:
    """True for a piece of compose: ``# ... existing services``."""
    return any(OTHER_SERVICES.search(text) for _, text in texts)


@lru_cache(maxsize=8)
def keeps_old_openai(texts: Texts) -> bool:
    return any(OLD_OPENAI.search(text) for _, text in texts)


@lru_cache(maxsize=8)
def is_proposed(texts: Texts) -> bool:
    """True for a proposal of what a project's resources are to be."""
    return any(PROPOSAL.search(text) for _, text in texts)


@lru_cache(maxsize=8)
def is_of_an_earlier(texts: Texts) -> bool:
    """True where several templates are filled and none with the batch size: they had no variable for it before 0.8."""
    whole = "\n".join(text for _, text in texts)
    return whole.count("fill_template.py") > 1 and (
        "triton_max_batch_size" not in whole or any(one in whole for one in OF_07)
    )


@lru_cache(maxsize=8)
def has_a_terminal(texts: Texts) -> bool:
    """True where a prompt stands before a file, or what a program printed behind it."""
    return any(OF_A_TERMINAL.search(text) for _, text in texts)


@lru_cache(maxsize=8)
def is_cut(texts: Texts) -> bool:
    """True for a text whose last line is a remark about what would follow."""
    return any(text.rstrip().rpartition("\n")[2].lstrip().startswith("#") for _, text in texts)


@lru_cache(maxsize=8)
def is_taken_out(texts: Texts) -> bool:
    """True where the text says to remove the lines by hand that the variable stands in."""
    return any(TAKEN_OUT.search(text) for _, text in texts)


@lru_cache(maxsize=8)
def clones_an_earlier(texts: Texts) -> bool:
    return any(EARLIER_CLONE.search(text) for _, text in texts)
