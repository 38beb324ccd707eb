"""docker run: options that it does not have, and a shell as the entry point that gets a program for its script."""

import posixpath
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any

from trtllm_check.lint.carriers.workloads import ServedContainer
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import DOCKER_VALUED, SHELLS
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.vllm import is_vllm_option
from trtllm_check.lint.shell.words import Word, lines_of

FAMILY = "docker_words"
LONG = re.compile(r"--[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
LETTER, ALL_LETTERS = re.compile(r"-[A-Za-z]"), re.compile(r"-[A-Za-z][A-Za-z-]*(?:=.*)?")
RUNS = ("run", "create")
NEAR = 0.8
NO_IMAGE = re.compile(r"=|(?:/|\./|~/|\$HOME/|\$\{HOME\}/|(?:\$PWD|\$\{PWD\}|\$\(pwd\)|`pwd`)[/:])")
ALONE = re.compile(r"(?:^|\s)\"?\$(?:\{[^}\n]*\}|\w+)[\w.:-]*\"?(?=\s|$)")
COLON = re.compile(r"(?P<name>[A-Z][A-Z0-9_]{2,}):[ ]*(?P<value>[^\s=]*)")
AN_OPTION = re.compile(r"-[A-Za-z]{1,3}|--[a-z][a-z-]+(?:=.*)?")
NAMED_BY_ONE_WORD = (
    "-e",
    "--env",
    "-v",
    "--volume",
    "-p",
    "--publish",
    "--name",
    "--gpus",
    "-w",
    "--workdir",
    "--shm-size",
)
MODE = re.compile(r"(?:ro|rw|z|Z|cached|delegated|consistent|nocopy|[rs]?(?:shared|slave|private))(?:,|$)")
C_OPTION = re.compile(r"-[a-z]*c")
OF_A_SCRIPT = re.compile(r"\$(?:[@*0-9]|\{[@*0-9])")  # what a script takes from behind it
VARIABLE = re.compile(r"\$\{[^{}\n]*\}")
WINDOWS_DRIVE, WINDOWS_INSIDE = re.compile(r"[A-Za-z]:[\\/]"), re.compile(r"[A-Za-z]")
# What nobody wants an empty volume for: a folder of the host, a cache, models.
OF_THE_HOST = re.compile(
    r"^(?:~|\$HOME\b|\$\{HOME\}|\$PWD|\$\(pwd\)|\./)|^/(?:home|root/\.cache|mnt|data|scratch|nfs)/|/[\w.-]*(?:huggingface|hf|models?|cache|weights)[\w.-]*/?$",
    re.IGNORECASE,
)
LOOPBACK = re.compile(r"(?P<address>(?:https?|socks5h?)://(?:localhost|127\.0\.0\.1):\d{2,5})/?[\"']?$")
# Variables that programs of the container itself send requests to.
FETCHED = re.compile(r"HF_ENDPOINT|HF_MIRROR|(?:https?|all)_proxy", re.IGNORECASE)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release, texts = platform.release.name, dict(document.texts)
    for docker in document.of("docker"):
        words = docker.positional
        yield from _of_others(docker, release)
        if not words or words[0].text not in RUNS or posixpath.basename(docker.path.text) in ("podman", "nerdctl"):
            continue
        yield from _options(docker, release)
        yield from _letters(docker, release)
        yield from _no_image(docker, texts.get(docker.command.file, ""), release)
        yield from _no_value(docker, release)
        yield from _swallowed(docker, release)
        yield from _no_absolute_path(docker, release)
        yield from _anonymous(docker, release)
        yield from _script(docker, release)
        if docker.value("--network", "--net") is None:
            for word in docker.values("-e", "--env"):
                name, _, value = word.text.partition("=")
                yield from _own_loopback(name, value, word, docker.command.file, release)
    for one in document.workloads:
        yield from _workload(one, release)


@cache
def _known() -> frozenset[str]:
    return frozenset(name for name in DOCKER_VALUED if name.startswith("--")) | {*rule_data(FAMILY)["others"].split()}


def _options(docker: Invocation, release: str) -> Iterator[Draft]:
    """The first option that docker run refuses."""
    for given in docker.given:
        name = given.flag
        if not LONG.fullmatch(name) or name in _known():
            continue
        dashes = name.replace("_", "-")
        close = get_close_matches(dashes, sorted(_known()), 1, NEAR)
        meant = rule_data(FAMILY)["meant"].get(name) or (dashes if dashes in _known() else close[0] if close else "")
        is_of_vllm = is_vllm_option(name.removeprefix("--")) and name not in rule_data(FAMILY)["meant"]
        form = "of vLLM" if is_of_vllm and dashes not in _known() else "" if meant else "unknown"
        known: dict[str, Any] = {"flag": name, "meant": meant}
        yield from drafts(release, "docker-option", given.word, form=form, file=docker.command.file, **known)
        return


def _letters(docker: Invocation, release: str) -> Iterator[Draft]:
    """``-rm``, ``-name x``: one dash begins options of a letter each, and the first that there is not stops docker."""
    letters = {*(name for name in DOCKER_VALUED if not name.startswith("--")), *rule_data(FAMILY)["letters"].split()}
    for given in docker.given:
        is_typed = len(set(given.word.places)) in (
            0,
            len(given.word.text),
        )  # no variable's value, of which it may be an end
        is_none = LETTER.fullmatch(given.flag) and given.flag not in letters and ALL_LETTERS.fullmatch(given.word.text)
        if is_typed and is_none:
            word = given.word.text
            meant = f"-{word.partition('=')[0]}"
            form = "letter" if meant in _known() else "letter alone"
            known: dict[str, Any] = {"flag": word, "letter": given.flag[1:], "meant": meant}
            yield from drafts(release, "docker-option", given.word, form=form, file=docker.command.file, **known)
            return


def _of_others(docker: Invocation, release: str) -> Iterator[Draft]:
    """``docker tag -t``: an option that this command of docker's does not have."""
    words = docker.positional
    name = words[0].text if words else ""
    options = rule_data(FAMILY)["commands"].get(name)
    if options is None or posixpath.basename(docker.path.text) != "docker":
        return
    place = docker.command.words.index(words[0]) if words[0] in docker.command.words else 0
    for word in docker.command.words[place + 1 :]:
        flag = word.text.partition("=")[0]
        if AN_OPTION.fullmatch(word.text) and flag not in (*options.split(), "--help", "-h"):
            form = "short of a command" if not flag.startswith("--") else "of a command"
            known: dict[str, Any] = {"flag": flag, "command": name, "letter": flag.lstrip("-")[:1]}
            yield from drafts(release, "docker-option", word, form=form, file=docker.command.file, **known)
            return


def _no_image(docker: Invocation, text: str, release: str) -> Iterator[Draft]:
    """``-e NAME = value``, ``-v /host /inside``: what docker takes for the image is none."""
    words = docker.positional
    if len(words) > 2 and NO_IMAGE.match(words[1].text) and not _has_variable(docker, words[1], text):
        form = "equals" if words[1].text.startswith("=") else "path"
        known: dict[str, Any] = {"word": words[1].text}
        yield from drafts(release, "docker-image-word", words[1], form=form, file=docker.command.file, **known)


def _has_variable(docker: Invocation, image: Word, text: str) -> bool:
    """True where a word of its own in front of the image is a variable, which may well be the image."""
    lines = lines_of(text)[docker.path.line - 1 : image.line]
    return not lines or ALONE.search("\n".join([*lines[:-1], lines[-1][: image.column - 1]])) is not None


def _no_value(docker: Invocation, release: str) -> Iterator[Draft]:
    """``-e NAME:value``: a variable of that whole name, which the host does not have."""
    for word in docker.values("-e", "--env"):
        match = COLON.fullmatch(word.text)
        if match is not None:
            known: dict[str, Any] = {"name": match["name"], "right": f"{match['name']}={match['value']}"}
            yield from drafts(release, "docker-image-word", word, form="colon", file=docker.command.file, **known)


def _swallowed(docker: Invocation, release: str) -> Iterator[Draft]:
    """``-e -v /data:/data``: an option that needs a value takes the next one for it."""
    for given in docker.given:
        value = given.values[0] if given.flag in NAMED_BY_ONE_WORD and given.values else None
        if value is not None and AN_OPTION.fullmatch(value.text):
            known: dict[str, Any] = {"flag": given.flag, "value": value.text}
            yield from drafts(
                release, "docker-image-word", given.word, form="swallowed", file=docker.command.file, **known
            )


def _no_absolute_path(docker: Invocation, release: str) -> Iterator[Draft]:
    """``-v ~/cache:~/cache``: no shell fills in the tilde behind the colon."""
    for word in docker.values("-v", "--volume"):
        if WINDOWS_DRIVE.match(word.text):
            continue
        host, _, rest = VARIABLE.sub(_closed, word.text).partition(":")
        inside = rest.partition(":")[0]
        if WINDOWS_INSIDE.fullmatch(inside):
            continue  # of a container of Windows
        if host and inside and not inside.startswith("/") and not is_open(inside) and not MODE.match(inside):
            right = inside.replace("~", "/root", 1) if inside.startswith("~") else f"/{inside.removeprefix('./')}"
            known: dict[str, Any] = {"inside": inside, "right": f"{host}:{right}"}
            yield from drafts(release, "docker-image-word", word, form="inside", file=docker.command.file, **known)


def _anonymous(docker: Invocation, release: str) -> Iterator[Draft]:
    """``-v ~/.cache/huggingface``: a path of the host alone."""
    for word in docker.values("-v", "--volume"):
        if ":" not in VARIABLE.sub(_closed, word.text) and OF_THE_HOST.search(word.text):
            inside = word.text if word.text.startswith("/") else "/root/.cache/huggingface"
            known: dict[str, Any] = {"path": word.text, "right": f"{word.text}:{inside}"}
            yield from drafts(release, "docker-image-word", word, form="anonymous", file=docker.command.file, **known)


def _closed(match: re.Match[str]) -> str:
    """``${X:-y}`` without the colon in it."""
    return match[0].replace(":", "")


def _script(docker: Invocation, release: str) -> Iterator[Draft]:
    """``--entrypoint bash IMAGE vllm serve``."""
    shell = posixpath.basename(docker.value("--entrypoint") or "")
    words = docker.positional[2:]
    if shell in SHELLS and words:
        yield from _taken(shell, words, docker.command.file, release)


def _workload(one: ServedContainer, release: str) -> Iterator[Draft]:
    if one.replaced and len(one.words) > 3 and posixpath.basename(one.words[0].text) in SHELLS:
        script, behind = one.words[2], one.words[3]
        if (
            C_OPTION.fullmatch(one.words[1].text)
            and behind.text.startswith("--")
            and not OF_A_SCRIPT.search(script.text)
        ):
            known: dict[str, Any] = {"word": behind.text, "shell": posixpath.basename(one.words[0].text)}
            yield from drafts(release, "program-as-script", behind, form="behind", file=one.file, **known)
    if one.kind == "kubernetes" and one.replaced and len(one.words) > 1:
        shell = posixpath.basename(one.words[0].text)
        if shell in SHELLS:
            yield from _taken(shell, one.words[1:], one.file, release)
    if not one.host_network and one.kind == "compose":
        for name, word in one.settings:
            yield from _own_loopback(name, word.text, word, one.file, release)


def _taken(shell: str, words: tuple[Word, ...], file: str, release: str) -> Iterator[Draft]:
    first, *rest = words[0].text.split() or [""]
    name = posixpath.basename(first)
    if rest and name not in ("vllm", "trtllm-serve", "tritonserver", "python3", "python"):
        return
    if name in rule_data(FAMILY)["programs"].split() and (name == first or first.startswith(("/usr/", "/bin/"))):
        whole = " ".join(word.text for word in words)
        known: dict[str, Any] = {"shell": shell, "first": first, "whole": whole if len(whole) < 80 else f"{first} ..."}
        yield from drafts(release, "program-as-script", words[0], file=file, **known)


def _own_loopback(name: str, value: str, place: Word, file: str, release: str) -> Iterator[Draft]:
    """``HF_ENDPOINT=http://localhost:8090`` in a container with a network of its own."""
    match = LOOPBACK.match(value.strip("\"'"))
    if match is not None and FETCHED.fullmatch(name):
        known: dict[str, Any] = {"name": name, "address": match["address"]}
        known["right"] = re.sub(r"localhost|127\.0\.0\.1", "host.docker.internal", match["address"])
        yield from drafts(release, "address-of-the-container-itself", place, file=file, **known)
