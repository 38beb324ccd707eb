"""Disks that a text asks for, and that do not hold the weights which the same text downloads to them."""

import re
from collections.abc import Iterator
from typing import Any

from serving_base.facts.published import published_model
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.reservations import OF_SKYPILOT
from trtllm_check.lint.rules.cache_room import OPEN, ROUNDED
from trtllm_check.lint.rules.served import MAKERS, served
from trtllm_check.lint.rules.weight_bits import bits_of
from trtllm_check.lint.shell.words import word_at

RULE = "disk-too-small"
# What tells that a text is about a platform, and its disk in GB or GiB.
DISKS = (
    (OF_SKYPILOT, re.compile(r"^[ \t]+disk_size:[ ]*(?P<size>\d+)(?:[ ]*GB)?[ ]*(?:#.*)?$", re.MULTILINE)),
    (
        re.compile(r"\brunpod(?:ctl)?\b"),
        re.compile(r"\b(?:container_disk_in_gb|containerDiskInGb|--containerDiskSize)[\"']?[ ]*[=: ][ ]*(?P<size>\d+)"),
    ),
    (
        re.compile(r"^resource[ ]+\"aws_(?:instance|launch_template)\"", re.MULTILINE),
        re.compile(r"\broot_block_device\s*\{[^{}]*\bvolume_size\s*=\s*(?P<size>\d+)"),
    ),
    (
        re.compile(r"\bgcloud compute instances create\b"),
        re.compile(r"--boot-disk-size[= ](?P<size>\d+)(?:GB|GiB)?(?![\w])"),
    ),
    (
        re.compile(r"^kind:[ ]*PersistentVolumeClaim\b", re.MULTILINE),
        re.compile(r"^[ ]+storage:[ ]*[\"']?(?P<size>\d+)Gi?[\"']?[ ]*$", re.MULTILINE),
    ),
)
# Other places for the weights: mounts, further disks, volumes of a platform, folders that are told.
ELSEWHERE = re.compile(
    r"\bebs_block_device\b|local-ssd|--create-disk|--attach-disk|networkVolume|network_volume|volume_mount_path|file_mounts:"
    r"|\b(?:HF_HOME|HF_HUB_CACHE|TRANSFORMERS_CACHE)\b|--download-dir|\bnvme|(?:^|\s)-v\s+/|--volume|/mnt/|s3://|gs://",
    re.MULTILINE,
)
CLAIM = "PersistentVolumeClaim"
CACHE = re.compile(r"mountPath:[ ]*[\"']?/(?:root|home/\w+)/\.cache(?:/huggingface\S*)?[\"']?[ ]*$", re.MULTILINE)
GIB = 2**30


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """One draft for the largest model that the one disk does not hold."""
    found = [
        (file, text, match)
        for file, text in document.texts
        for about, disk in DISKS
        if about.search(text)
        for match in disk.finditer(text)
    ]
    if len(found) != 1:
        return
    file, text, match = found[0]
    if CLAIM in text and "PersistentVolumeClaim\n" in text:
        if not CACHE.search(text):
            return
    elif ELSEWHERE.search(text):
        return
    sizes = [
        (model.billions * ROUNDED * bits_of(one, model) / 8, one.model)
        for one in served(document)
        if one.tool not in MAKERS and one.model.count("/") == 1 and not one.model.startswith((".", "/"))
        if (model := published_model(one.model)) is not None and model.billions and not OPEN.search(one.model)
        if "load_format" not in one.options
    ]
    need, name = max(sizes, default=(0.0, ""))
    have = int(match["size"]) * GIB / 1e9
    if need > have:
        place = word_at(text, match.start("size"), match["size"])
        known: dict[str, Any] = {"model": name, "need": need, "have": have, "size": match["size"]}
        yield from drafts(platform.release.name, RULE, place, file=file, **known)
