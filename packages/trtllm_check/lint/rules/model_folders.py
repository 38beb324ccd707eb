"""Which model a folder holds: what the text downloads or clones into it, on the host or as a container sees it."""

import posixpath
import re
from collections.abc import Iterator
from itertools import pairwise

from trtllm_check.lint.document import Document
from trtllm_check.lint.lookups import once
from trtllm_check.lint.rules.downloads import HUB_NAME, LOCAL, plain
from trtllm_check.lint.rules.hub_names import model_of

CLONED = re.compile(
    r"https?://(?:\S+@)?(?:huggingface\.co|hf\.co|www\.modelscope\.cn)/(?P<model>[\w.-]+/[\w.-]+?)(?:\.git)?/?"
)
CALLED = re.compile(r"\bsnapshot_download\((?P<given>(?:[^()]|\([^()]*\)){1,600})\)")
MODEL = re.compile(r"^\s*(?:(?:repo_id|model_id)\s*=\s*)?[\"'](?P<model>[\w.-]+/[\w.-]+)[\"']")
FOLDER = re.compile(r"\blocal_dir\s*=\s*[\"'](?P<folder>[^\"']+)[\"']")
SSH = re.compile(r"git@(?:hf\.co|huggingface\.co):(?P<model>[\w.-]+/[\w.-]+?)(?:\.git)?")
# A folder that is mounted or copied, and where to: of docker, compose and a Dockerfile.
MOUNTED = re.compile(r"(?<![\w/])(?P<host>[\w./~${}-]*/[\w.-]+)/?:(?P<inside>/[\w./-]+)")
BOUND = re.compile(r"\b(?:source|src)=(?P<host>[^,\s]+),(?:target|destination|dst)=(?P<inside>[^,\s]+)")
COPIED = re.compile(r"^[ \t]*(?:COPY|ADD)[ ]+(?:--\S+[ ]+)*(?P<host>\S+)[ ]+(?P<inside>\S+)[ \t]*$", re.MULTILINE)
BRINGS = frozenset({"cp", "ln", "rsync", "mv", "aws", "gsutil", "gcloud", "azcopy", "s5cmd", "rclone"})
FETCHER = re.compile(r"(?:.*/)?hfd(?:\.sh)?")
PARTS = ("--include", "--exclude")


@once
def model_folders(document: Document) -> Iterator[tuple[str, str]]:
    """Folder -> the hub's name of the model in it, where the text puts one there and no other."""
    found: dict[str, set[str]] = {}
    for folder, model in _filled(document):
        found.setdefault(plain(folder), set()).add(model)
    for folder, models in found.items():
        if len(models) != 1 or folder in ("", ".", "/"):
            continue
        (model,) = models
        yield folder, model
        for mount in document.mounts:
            host = plain(mount.host)
            if folder == host or folder.startswith(f"{host}/"):
                yield posixpath.normpath(mount.inside + folder.removeprefix(host)), model


def _filled(document: Document) -> Iterator[tuple[str, str]]:
    for one in document.of("hf", "huggingface-cli"):
        words = [word.text for word in one.positional]
        if words[:1] == ["download"] and len(words) == 2 and HUB_NAME.fullmatch(words[1]) and not one.has(*PARTS):
            yield one.value(*LOCAL) or "", words[1]
    for command in document.commands:
        texts = [word.text for word in command.words]
        if texts[:2] == ["modelscope", "download"]:
            given = dict(pairwise(texts))
            name = given.get("--model", texts[2] if len(texts) > 2 else "")
            if HUB_NAME.fullmatch(name) and not any(part in given for part in PARTS):
                yield given.get("--local_dir", ""), name
        elif len(texts) > 1 and FETCHER.fullmatch(texts[0]) and HUB_NAME.fullmatch(texts[1]):
            yield dict(pairwise(texts)).get("--local-dir", posixpath.basename(texts[1])), texts[1]
        elif texts and texts[0] in BRINGS:
            places = [text for text in texts[1:] if not text.startswith("-")]
            if len(places) > 1 and (held := model_of(places[-2])):
                yield places[-1], held
    for one in document.of("git"):
        words = [word.text for word in one.positional if word.text not in ("lfs", "clone")]
        match = (CLONED.fullmatch(words[0]) or SSH.fullmatch(words[0])) if words else None
        if match is not None:
            yield (words[1] if len(words) > 1 else posixpath.basename(match["model"])), match["model"]
    for mount in document.mounts:
        if held := model_of(mount.host):
            yield mount.inside, held
    for _, text in document.texts:
        for way in (MOUNTED, BOUND, COPIED):
            for found in way.finditer(text):
                if held := model_of(found["host"]):
                    yield found["inside"], held
        for call in CALLED.finditer(text) if "snapshot_download" in text else ():
            model, folder = MODEL.search(call["given"]), FOLDER.search(call["given"])
            if model and folder and "patterns" not in call["given"]:
                yield folder["folder"], model["model"]
