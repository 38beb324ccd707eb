"""Misspelt names: of a program, of a sub-command, of the tag of an image, of a model's owner."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, Swap, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import OPENAI_SERVER, PLAIN_SERVER
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.served import served
from trtllm_check.lint.shell.words import ShellCommand, Word
from trtllm_check.lint.vllm_release import vllm_told
from trtllm_check.releases.vllm import options_of, vllm_facts

# Programs whose names are long enough that what is nearly one of them is meant so.
PROGRAMS = (
    "huggingface-cli",
    "tritonserver",
    "genai-perf",
    "perf_analyzer",
    "nvidia-smi",
    "nvidia-docker",
    "docker-compose",
)
KNOWN = frozenset(
    {
        *PROGRAMS,
        "nvidia-docker2",
        "tritonserver-cli",
        "huggingface_hub-cli",
        "tritonclient",
        "perf-analyzer",
        "tritonserve",
    }
)
NEARLY_VLLM = re.compile(r"llm|vlm|vll|v{2}llm|vl{3}m|vllm{2}|vlmm|lvlm|vlml")
ENOUGH_WORDS = 4
OF_VLLM = 2  # dashes in a name that is vLLM's alone
HUB = (
    *(
        "download",
        "upload",
        "upload-large-folder",
        "login",
        "logout",
        "whoami",
        "auth",
        "cache",
        "repo",
        "repos",
        "repo-files",
    ),
    *(
        "scan-cache",
        "delete-cache",
        "env",
        "tag",
        "version",
        "jobs",
        "models",
        "datasets",
        "spaces",
        "papers",
        "collections",
    ),
    *("endpoints", "extensions", "skills", "buckets", "sync", "lfs-enable-largefiles", "lfs-multipart-upload"),
)
COMMANDS = {
    "vllm": ("serve", "bench", "chat", "complete", "collect-env", "run-batch", "launch"),
    "huggingface-cli": HUB,
    "hf": tuple(name for name in HUB if name not in ("scan-cache", "delete-cache")),
}
COMPOSE = (
    *("attach", "bridge", "build", "commit", "config", "convert", "cp", "create", "down", "events", "exec", "export"),
    *("images", "kill", "logs", "ls", "pause", "port", "ps", "publish", "pull", "push", "restart", "rm", "run"),
    *("scale", "start", "stats", "stop", "top", "unpause", "up", "version", "volumes", "wait", "watch", "help"),
)
COMPOSE_VALUED = (
    *("-f", "--file", "-p", "--project-name", "--profile", "--env-file", "--project-directory", "--ansi"),
    *("--parallel", "--progress"),
)
MOVED = {"hf": {"scan-cache": "cache", "delete-cache": "cache"}}  # of huggingface-cli: vllm@1e823dc0
LOGIN = re.compile(r"(?:huggingface|hugging-face|hf|huggingface_hub|huggingface-hub)[-_]login")
NEAR_PROGRAM = 0.88
NEAR_COMMAND = 0.7
TAG = re.compile(r"^(?P<image>(?:docker\.io/)?vllm/vllm-openai):(?P<tag>\d+\.\d+\.\d+(?:\.post\d+)?)$")
# Owners on the hub, by what is written in their place.
OWNERS = {
    "qwen": ("Qwen", re.compile(r"qwen[\d.]*", re.IGNORECASE)),
    "llama": ("meta-llama", re.compile(r"(?:meta|llama|llama-?[234](?:\.\d)?)", re.IGNORECASE)),
    "mistral": ("mistralai", re.compile(r"mistral|mistral-ai", re.IGNORECASE)),
    "mixtral": ("mistralai", re.compile(r"mistral|mixtral|mistral-ai", re.IGNORECASE)),
    "deepseek": ("deepseek-ai", re.compile(r"deepseek|deepseek_ai|deepseekai", re.IGNORECASE)),
    "gpt-oss": ("openai", re.compile(r"gpt-oss|open-ai", re.IGNORECASE)),
    "gemma": ("google", re.compile(r"gemma[\d.-]*", re.IGNORECASE)),
    "phi": ("microsoft", re.compile(r"phi[\d.-]*", re.IGNORECASE)),
}
LAST_READ = "0.10.0"  # of vLLM, with vllm/entrypoints/api_server.py
SEVERAL_TIMES = 3
MODEL = re.compile(r"(?P<owner>[A-Za-z][\w.-]*)/(?P<name>[A-Za-z][\w.-]*)")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for command in document.commands:
        if command.words:
            yield from _program(document, command, release)
            yield from _vllm(command, release)
            yield from _compose(command, release)
    for one in document.of("vllm", "huggingface-cli", "hf"):
        yield from _command(one, release)
    for one in document.of("vllm"):
        if one.path.text == PLAIN_SERVER:
            edits = (Swap(one.path, OPENAI_SERVER),)
            for draft in drafts(release, "plain-server", one.path, edits=edits, invocation=one, module=OPENAI_SERVER):
                told = vllm_told(document)
                has_it = told is not None and told.release.place <= vllm_facts().releases.index(LAST_READ)
                yield draft._replace(severity="info") if has_it else draft
    for image in document.images:
        yield from _tag(image, release)
    for docker in document.of("docker"):
        operands = docker.positional
        if len(operands) > 1 and operands[0].text in ("run", "pull", "create"):
            yield from _tag(operands[1], release, docker)
    whole = "\n".join(text for _, text in document.texts)
    seen: set[str] = set()
    for start in served(document):
        if start.model not in seen:
            seen.add(start.model)
            place = next(
                (w for w in (start.invocation.arguments if start.invocation else ()) if w.text == start.model), start.at
            )
            yield from _owner(start.model, place, start.file, whole, release)


def _program(document: Document, command: ShellCommand, release: str) -> Iterator[Draft]:
    word, file = command.words[0], command.file
    name = word.text
    if "/" in name or name in KNOWN or is_open(name) or not re.fullmatch(r"[a-z][a-z_-]+[a-z]", name):
        return
    close = _nearest(name)
    instead = "huggingface-cli login, today hf auth login" if LOGIN.fullmatch(name) else close[0] if close else ""
    if instead and not (close and _is_another(name, close[0], dict(document.texts).get(file, ""))):
        yield from drafts(release, "no-such-command", word, form="misspelt", file=file, name=name, instead=instead)


@lru_cache(maxsize=512)
def _nearest(name: str) -> list[str]:
    return get_close_matches(name, PROGRAMS, 1, NEAR_PROGRAM)


def _is_another(name: str, right: str, text: str) -> bool:
    """True for a program that a text names several times beside the one that it is like: both are meant."""
    many, one = (len(re.findall(rf"(?<![\w-]){re.escape(each)}(?![\w-])", text)) for each in (name, right))
    return many >= SEVERAL_TIMES and one > 0


def _vllm(command: ShellCommand, release: str) -> Iterator[Draft]:
    """``llm serve MODEL --max-model-len 8192``: nearly the name, and options that vLLM alone has."""
    words = command.words
    if len(words) < ENOUGH_WORDS or words[1].text != "serve" or not NEARLY_VLLM.fullmatch(words[0].text):
        return
    names = [word.text.partition("=")[0].lstrip("-").replace("_", "-") for word in words[2:] if word.text[:2] == "--"]
    if sum(name.count("-") >= OF_VLLM and name in options_of("serve") for name in names):
        place, name = words[0], words[0].text
        yield from drafts(
            release, "no-such-command", place, form="misspelt", file=command.file, name=name, instead="vllm"
        )


def _command(one: Invocation, release: str) -> Iterator[Draft]:
    """``vllm server``: a sub-command that the program has not, and one that is like it."""
    known = COMMANDS[one.tool]
    first = one.arguments[0] if one.arguments else None
    second = one.arguments[1] if len(one.arguments) > 1 else None
    if one.path.text == "vllm" and first is not None and first.text == "bench" and second is not None:
        if second.text.startswith("--") and second.text != "--help":
            yield from drafts(
                release, "no-such-sub-command", second, form="bench", file=one.command.file, name=second.text
            )
        return
    if one.path.text == one.tool == "vllm" and first is not None and first.text.startswith("--model"):
        about: dict[str, Any] = {
            "tool": "vllm",
            "name": first.text,
            "commands": ", ".join(known),
            "instead": "vllm serve MODEL",
        }
        yield from drafts(release, "no-such-sub-command", first, form="", invocation=one, **about)
    if (
        first is None
        or first.text in known
        or first.text.startswith("-")
        or is_open(first.text)
        or one.path.text != one.tool
    ):
        return
    moved = MOVED.get(one.tool, {}).get(first.text)
    close = [moved] if moved else get_close_matches(first.text, known, 1, NEAR_COMMAND)
    if close and (moved or len(one.arguments) > 1):
        yield from drafts(
            release,
            "no-such-sub-command",
            first,
            edits=(Swap(first, close[0]),),
            invocation=one,
            tool=one.tool,
            name=first.text,
            commands=", ".join(known),
            instead=close[0],
        )


def _compose(command: ShellCommand, release: str) -> Iterator[Draft]:
    """``docker compose SERVICE up``: a service where the command belongs."""
    words = [word for word in command.words if word.text != "sudo"]
    if [word.text for word in words[:2]] == ["docker", "compose"]:
        words = words[2:]
    elif words and words[0].text == "docker-compose":
        words = words[1:]
    else:
        return
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        at += 2 if words[at].text in COMPOSE_VALUED else 1
    first = words[at] if at < len(words) else None
    behind = next((word.text for word in words[at + 1 :] if word.text in COMPOSE), "")
    if first is None or first.text in COMPOSE or is_open(first.text) or not behind:
        return
    given = " ".join(word.text for word in words[:at])
    instead = " ".join(part for part in ("docker compose", given, behind, "...", first.text) if part)
    about: dict[str, Any] = {"name": first.text, "commands": "up, down, run, logs and others", "instead": instead}
    yield from drafts(release, "no-such-sub-command", first, form="compose", file=command.file, **about)


def _tag(word: Word, release: str, docker: Invocation | None = None) -> Iterator[Draft]:
    match = TAG.search(word.text)
    if match:
        instead = f"{match['image']}:v{match['tag']}"
        file = docker.command.file if docker else ""
        edits = (Swap(word, instead),) if docker else ()
        yield from drafts(
            release,
            "image-tag",
            word,
            edits=edits,
            invocation=docker,
            file=file,
            image=match["image"],
            tag=match["tag"],
            instead=instead,
        )


def _owner(model: str, place: Word, file: str, whole: str, release: str) -> Iterator[Draft]:
    """``Qwen3/Qwen3-8B``: the family's name in the place of the owner's."""
    match = MODEL.fullmatch(model)
    if match is None:
        return
    for family, (owner, wrong) in OWNERS.items():
        if match["name"].lower().startswith(family) and match["owner"] != owner and wrong.fullmatch(match["owner"]):
            if match["owner"].lower() == owner.lower():
                continue  # the hub does not tell capitals apart everywhere
            # Asked last: it goes through the whole text for each model.
            if re.search(rf"(?:--local-dir|git clone|mkdir|cd|cp|mv)[^\n]*\b{re.escape(match['owner'])}/", whole):
                return  # a folder
            yield from drafts(
                release,
                "model-owner",
                place,
                file=file,
                model=model,
                owner=match["owner"],
                instead=f"{owner}/{match['name']}",
            )
            return
