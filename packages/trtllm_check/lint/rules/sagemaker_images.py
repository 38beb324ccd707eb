"""Images of SageMaker's endpoints: whether their account, their region and their repository go together."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.sagemaker import FAMILY
from trtllm_check.lint.shell.words import Word

ADDRESS = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr(?:-fips)?\.(?P<region>[a-z]{2}(?:-[a-z]+)+-\d)\.(?P<domain>amazonaws\.com(?:\.cn)?)"
    r"/(?P<repository>[\w./-]+)(?P<tag>:[\w.-]+)?"
)
IN_ORDER = "123456789"  # what the reader fills in
OTHER_LENGTH = re.compile(r"(?<![\w.-])(?P<account>\d{9,11}|\d{13,14})\.dkr\.ecr(?=[.-])")
REGION = r"(?P<region>[a-z]{2}(?:-gov|-iso[a-z]?)?-[a-z]+-\d)"
OWN_REGION = re.compile(
    r"(?:region_name\s*=\s*|\bregion\s*[=:]\s*|configure set (?:default\.)?region[ ]+|\bREGION\s*=\s*"
    rf"|AWS_(?:DEFAULT_)?REGION[\"']?\]?\s*[=:]\s*|--region[ =])[\"']?{REGION}\b"
)
LOGIN = re.compile(
    rf"\bget-login-password\b[^\n|]*?--region[ =]{REGION}[^\n|]*(?:\\\n[^\n|]*)?"
    r"\|[^\n|]*(?:\\\n[^\n|]*)?\bdocker login\b"
    r"(?:[^\n]|\\\n){0,200}?\b\d{12}\.dkr\.ecr\.(?P<registry>[a-z]{2}(?:-[a-z]+)+-\d)\."
)
ABOUT = re.compile(r"sagemaker", re.IGNORECASE)
CHINA = "cn-"
NEAR = 0.9
ELSEWHERE = re.compile(
    r"^(?:docker\.io/|nvcr\.io/|ghcr\.io/|public\.ecr\.aws/|quay\.io/|vllm/|lmsysorg/|deepjavalibrary/|huggingface/)"
)
FOR_EC2 = re.compile(r":[\w.-]+-ec2(?:-[\w.]+)?$")
IMAGES = ("image", "imageuri")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for file, text in document.texts:
        if ".dkr.ecr" in text:
            yield from _other_length(text, file, release)
            yield from _login(text, file, release)
        addresses = list(ADDRESS.finditer(text)) if ".dkr.ecr" in text else []
        if not addresses:
            continue
        regions = {match["region"] for match in OWN_REGION.finditer(text)}
        regions = regions if regions.isdisjoint(match["region"] for match in addresses) else set()  # a table of them
        about = ABOUT.search(text) is not None and len({match["region"] for match in addresses}) == 1  # else a table
        for match in addresses:
            place = _place(text, match)
            for form, known in _of_address(match):
                yield from drafts(release, "sagemaker-image", place, form=form, file=file, **known)
            if about and len(regions) == 1 and match["region"] not in regions:
                own = next(OWN_REGION.finditer(text))
                known = {"region": match["region"], "own": own["region"], "line": text.count("\n", 0, own.start()) + 1}
                yield from drafts(release, "sagemaker-image", place, form="region", file=file, **known)
    for call in document.aws_calls:
        for table in call.settings.tables():
            for name, value in table.items:
                if name in IMAGES and value.kind == "text" and "imageconfig" not in dict(table.items):
                    form = "elsewhere" if ELSEWHERE.search(value.text) else "ec2" if FOR_EC2.search(value.text) else ""
                    if form:
                        known = {"image": value.text}
                        yield from drafts(release, "sagemaker-image", value.place, form=form, file=call.file, **known)


def _login(text: str, file: str, release: str) -> Iterator[Draft]:
    """A password of one region for the registry of another."""
    for match in LOGIN.finditer(text) if "get-login-password" in text else ():
        if match["region"] != match["registry"]:
            start = match.start("region")
            place = Word(match["region"], text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
            known: dict[str, Any] = {"region": match["region"], "registry": match["registry"]}
            yield from drafts(release, "sagemaker-image", place, form="login", file=file, **known)


def _other_length(text: str, file: str, release: str) -> Iterator[Draft]:
    """``63104351884.dkr.ecr...``: a digit of the account is missing or too many."""
    for match in OTHER_LENGTH.finditer(text):
        account = match["account"]
        if account.startswith(IN_ORDER):
            continue
        close = get_close_matches(account, [str(one) for one in rule_data(FAMILY)["accounts"]], 1, NEAR)
        right = f"write {close[0]}" if close else "look the account up: it has 12 digits"
        known: dict[str, Any] = {"account": account, "number": len(account), "right": right}
        yield from drafts(release, "sagemaker-image", _place(text, match), form="digits", file=file, **known)


def _place(text: str, match: re.Match[str]) -> Word:
    return Word(match[0], text.count("\n", 0, match.start()) + 1, match.start() - text.rfind("\n", 0, match.start()))


def _of_address(match: re.Match[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is wrong with an address by itself."""
    data = rule_data(FAMILY)
    account, region, repository = match["account"], match["region"], match["repository"].strip("/")
    domain = "amazonaws.com.cn" if region.startswith(CHINA) else "amazonaws.com"
    known = {"image": match[0], "account": account, "region": region, "domain": domain}
    if account in data["accounts"]:
        right = _account_of().get(region)
        if right is not None and right != account and repository in data["repositories"]:
            yield "account", {**known, "right": right}
        elif match["domain"] != domain:
            yield "domain", known
        if repository in data["slips"]:
            yield "repository", {**known, "repository": repository, "right": data["slips"][repository]}


@cache
def _account_of() -> dict[str, str]:
    return {
        region: str(account) for account, regions in rule_data(FAMILY)["accounts"].items() for region in regions.split()
    }
