"""Paths of a command in a container, and of the templates that its server reads, against what docker run mounts."""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from trtllm_check.lint.document import ConfigFile, Document
from trtllm_check.lint.endpoints import SERVERS
from trtllm_check.lint.facts import OUTPUT, output
from trtllm_check.lint.filling import Filling, fillings
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, Swap, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.lookups import once
from trtllm_check.lint.mounts import Mount
from trtllm_check.lint.programs import VLLM_IMAGE
from trtllm_check.lint.shell.words import Word

FAMILY = "containers"
PATH_VARIABLES = ("engine_dir", "tokenizer_dir")
FILLED_LATER = re.compile(r"\benvsubst\b|\bsed\b|fill_template|docker cp|--env-file|\bexport\b")
HERE = re.compile(r"^(?:\$\(pwd\)|`pwd`|\$\{?PWD\}?|\.|~|\$\{?HOME\}?)(?=/)")


def hidden_paths(
    document: Document, platform: Platform, docker: Invocation, inner: list[Invocation]
) -> Iterator[Draft]:
    """Everything that a container of ``docker`` is to read, and does not see; ``inner``: what it starts."""
    yield from _mounts(document, platform, docker, inner)
    yield from _moved(document, platform, docker, inner)
    for file, name, place in _host_variables(document, _mounted(document, docker)) if inner else ():
        for draft in _hidden(platform, place, place.text, docker, (), "write the folder of the container", file, name):
            yield draft._replace(severity="warning")


def image_of(docker: Invocation) -> str:
    return docker.positional[1].text


def _mounts(document: Document, platform: Platform, docker: Invocation, inner: list[Invocation]) -> Iterator[Draft]:
    """Paths that the command in the container names, or the templates that its server reads."""
    if not any(part in image_of(docker) for part in rule_data(FAMILY)["path_images"]):
        return
    mounts = _mounted(document, docker)
    if docker.has("--volumes-from") or any("${" in inside or "$(" in inside for _, inside in mounts):
        return
    # A path is there if it lies under the container's side of a mount or in a folder of the image. One that is mounted
    # under another name gets that name in its own command; all others of this docker run share one new mount.
    visible = [*(inside for _, inside in mounts), *rule_data(FAMILY)["in_image"]]
    only = rule_data(FAMILY)["read"] if VLLM_IMAGE.search(image_of(docker)) else ()
    made = _handed_on(inner)
    hidden = [
        (one, word)
        for one in inner
        for word in _paths(one, only)
        if not _is_under(word.text, visible) and posixpath.normpath(word.text) not in made
    ]
    new = _new_mount(docker, [word.text for _, word in hidden if not _seen_as(word.text, mounts)])
    for one, word in hidden:
        inside = _seen_as(word.text, mounts)
        invocation, edits = (one, (Swap(word, inside),)) if inside else (docker, new)
        instead = f"write {inside}" if inside else f"mount {posixpath.dirname(word.text) or '/'} with -v"
        yield from _hidden(platform, word, word.text, invocation, edits, instead)
    if not any(one.tool in SERVERS for one in inner):
        return
    for config, name, place in _config_paths(document):
        if not _is_under(place.text, visible) or _is_of_the_host(place.text, mounts):
            edits = _new_mount(docker, [place.text])
            instead = f"mount {posixpath.dirname(place.text)} with -v"
            yield from _hidden(platform, place, place.text, docker, edits, instead, config.path, name)
    for filling in _host_fillings(document, platform):
        yield from _filled_paths(platform, docker, filling, mounts, visible)


def _host_variables(document: Document, mounts: list[tuple[str, str]]) -> Iterator[tuple[str, str, Word]]:
    """``$ENGINE_DIR`` in a config.pbtxt: a folder that the same script copies from on the host, and mounts nowhere."""
    from trtllm_check.lint.config_files import variables_in

    for config in document.configs:
        text = dict(document.texts).get(config.path, "")
        for name, place, variable in variables_in(config):
            of_the_host = re.compile(rf"^[ \t]*(?:cp|rsync|mv|ls|ln|cd)\b[^\n]*\$\{{?{variable}\b", re.MULTILINE)
            is_mounted = any(variable in f"{host}{inside}" for host, inside in mounts)
            if not is_mounted and of_the_host.search(text) and FILLED_LATER.search(text) is None:
                yield config.path, name, place


def _is_of_the_host(path: str, mounts: list[tuple[str, str]]) -> bool:
    """True for a folder such as /opt/us/engines where another folder of /opt/us is mounted: the image has none."""
    own = [posixpath.normpath(host).split("/")[1:3] for host, _ in mounts if host.startswith("/")]
    is_own = posixpath.normpath(path).split("/")[1:3] in [parts for parts in own if len(parts) > 1]
    return is_own and not _is_under(path, [inside for _, inside in mounts])


def _handed_on(inner: list[Invocation]) -> set[str]:
    """Folders that a command in the container writes and another one there reads."""
    written = {folder for one in inner if one.tool in OUTPUT and (folder := output(one))}
    named = [{posixpath.normpath(word.text) for word in one.arguments} for one in inner]
    return {folder for folder in written if sum(folder in words for words in named) > 1}


def _moved(document: Document, platform: Platform, docker: Invocation, inner: list[Invocation]) -> Iterator[Draft]:
    """A folder of the templates' values that the server's container has by another name.

    ``-v $(pwd)/all_models/chat:/models`` and ``engine_dir:/all_models/chat/tensorrt_llm/1``.
    """
    mounts = _mounted(document, docker)
    if not any(one.tool in SERVERS for one in inner) or not document.of("fill_template.py"):
        return
    visible = [*(inside for _, inside in mounts), *rule_data(FAMILY)["in_image"]]
    said = any(part in image_of(docker) for part in rule_data(FAMILY)["path_images"])
    for filling in fillings(document, platform.release):
        if said and not filling.invocation.image:
            continue  # of the host, and said there
        for name in PATH_VARIABLES:
            path = filling.values.get(name, "")
            for host, inside in mounts:
                tail = f"/{HERE.sub('', host).strip('/')}"
                if "$" in f"{tail}{inside}{path}" or len(tail) < 2 or not _is_under(path, [tail]):
                    continue
                if path.startswith("/") and not _is_under(path, visible):
                    right = posixpath.normpath(inside + path.removeprefix(tail))
                    edits = (filling.with_values({name: right}),)
                    instead = f"write {name}:{right}"
                    yield from _hidden(platform, filling.word, path, filling.invocation, edits, instead, name=name)


def _filled_paths(
    platform: Platform, docker: Invocation, filling: Filling, mounts: list[tuple[str, str]], visible: list[str]
) -> Iterator[Draft]:
    """The folders that a template is filled with on the host."""
    values = {name: filling.values.get(name, "") for name in PATH_VARIABLES}
    paths = {name: path for name, path in values.items() if path.startswith("/") and "$" not in path}
    hidden = {name: _seen_as(path, mounts) for name, path in paths.items() if not _is_under(path, visible)}
    swap = filling.with_values({name: inside for name, inside in hidden.items() if inside})
    new = _new_mount(docker, [paths[name] for name, inside in hidden.items() if not inside])
    for name, inside in hidden.items():
        instead = f"{name}:{inside}" if inside else f"mount {posixpath.dirname(paths[name])} with -v"
        invocation, edits = (filling.invocation, (swap,)) if inside else (docker, new)
        yield from _hidden(platform, filling.word, paths[name], invocation, edits, instead, name=name)


def _config_paths(document: Document) -> Iterator[tuple[ConfigFile, str, Word]]:
    """The paths in the config.pbtxt files of ``document``."""
    if not document.configs:
        return
    from trtllm_check.lint.config_files import paths_in

    for config in document.configs:
        for name, place in paths_in(config):
            yield config, name, place


def _hidden(
    platform: Platform,
    place: Word,
    path: str,
    invocation: Invocation,
    edits: tuple[Edit, ...],
    instead: str,
    file: str = "",
    name: str = "",
) -> Iterator[Draft]:
    """``name``: the parameter or the variable of the templates whose value it is."""
    yield from drafts(
        platform.release.name,
        "path-not-mounted",
        place,
        edits=edits,
        invocation=invocation,
        file=file,
        path=f"{name} {path}" if name else path,
        instead=instead,
    )


def _mounted(document: Document, docker: Invocation) -> list[tuple[str, str]]:
    """Host folder and folder in the container of each mount of ``docker``."""
    [of_words] = _mounts_of_words(document)
    mounts = (one for word in docker.values("-v", "--volume", "--mount") for one in of_words.get(id(word), ()))
    return [(one.host, one.inside.rstrip("/") or "/") for one in mounts]


@once
def _mounts_of_words(document: Document) -> Iterator[dict[int, list[Mount]]]:
    """One dictionary: identity of an option's value -> the mounts that it tells."""
    found: dict[int, list[Mount]] = defaultdict(list)
    for one in document.mounts:
        found[id(one.word)].append(one)
    yield found


def _paths(invocation: Invocation, only: Sequence[str] = ()) -> Iterator[Word]:
    """Absolute paths among the arguments of a tool, or of the options in ``only``; fill_template.py's included."""
    for given in invocation.given:
        if only and given.name not in only:
            continue
        for word in given.values:
            if word.text.startswith("/") and "$" not in word.text:
                yield word


def _is_under(path: str, folders: list[str]) -> bool:
    path = posixpath.normpath(path)
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def _seen_as(path: str, mounts: list[tuple[str, str]]) -> str:
    """How the container calls a path of the host, "" if it does not see it."""
    path = posixpath.normpath(path)
    for host, inside in mounts:
        host = posixpath.normpath(host)
        if host.startswith("/") and _is_under(path, [host]):
            return posixpath.normpath(inside + path.removeprefix(host))
    return ""


def _new_mount(docker: Invocation, paths: list[str]) -> tuple[Edit, ...]:
    """One more mount, of the folder that holds all ``paths``."""
    flag = next((flag for flag in ("--volume", "-v", "--mount") if not docker.has(flag)), "")
    folder = posixpath.commonpath([posixpath.dirname(posixpath.normpath(path)) for path in paths]) if paths else "/"
    if not flag or folder == "/":
        folder = posixpath.normpath(paths[0]) if len(set(paths)) == 1 else ""
    if not flag or not folder or folder == "/":
        return ()
    value = f"type=bind,source={folder},target={folder}" if flag == "--mount" else f"{folder}:{folder}"
    return (Put(flag, value),)


def _host_fillings(document: Document, platform: Platform) -> list[Filling]:
    """The fill_template.py that run on the host, for a server in a container."""
    if not document.of("fill_template.py"):
        return []
    return [one for one in fillings(document, platform.release) if not one.invocation.image]
