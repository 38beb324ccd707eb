"""What the three articles claim, with a verdict and its evidence, and docs/claims.md, which shows them."""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from playbook.articles import article
from serving_base.record import Record
from serving_base.yaml_files import read_yaml

CLAIMS_FILE = Path(__file__).parent / "data" / "claims.yml"

ArticleName = Literal["aws", "nvidia", "talk"]
Verdict = Literal["holds", "outdated", "wrong", "cannot be checked here"]

HEAD = """# What the three articles claim

This course is made from three articles. Here is what each of them says as a fact, in our own words, and what became of
it. The page is made from `playbook/data/claims.yml` by `make docs`; a test keeps the two equal.

- **holds**: true today. Where it holds under a condition only, the evidence says which.
- **outdated**: true, or the best that was known, when it was written; a later release, image or price ended it.
- **wrong**: it was not true then either, or the line does not do what its text says.
- **cannot be checked here**: it needs a machine, a baseline or an article that this project does not have.

*Measured* means by this project: on the H200s whose data ships in `packages/gpu_measurements`, or by the chapter that
is named. *Planned* means by the planner; [the plans](#the-plans) has each command. All else is published, with its
source, or computed. Figures are those of the article. `Line` counts in the copy of it that the course was written with.
"""
PLANS = """## The plans

Each is planned, not measured: 64 requests in flight unless the name says 1, 1024 tokens in and 256 out. Energy is the
board's power limit times the time, so the most that it can be.

| plan | command | output tokens/s | joules per output token |
|---|---|---|---|
"""


class Planned(Record):
    """A plan that the evidence names: ``options`` of ``playbook plan``, and two figures that it prints."""

    options: str
    output_tokens_per_s: float
    joules_per_output_token: float


class ArticleClaim(Record):
    """One fact of an article.

    ``line``: where it stands. ``figure``: as the article writes it, where it has one. ``claim``: in our own words.
    ``links``: names of sources. ``chapters``: notebooks that show it. ``measured``: this project
    measured, ran or planned part of the evidence.
    """

    id: str
    article: ArticleName
    line: int
    claim: str
    figure: str = ""
    verdict: Verdict
    evidence: str
    links: tuple[str, ...] = ()
    chapters: tuple[str, ...] = ()
    measured: bool = False


class Claims(Record):
    """The whole file. ``sources``: https addresses, by the name that a claim uses."""

    sources: dict[str, str]
    plans: dict[str, Planned]
    claims: tuple[ArticleClaim, ...]


@cache
def article_claims() -> Claims:
    """The claims of all three articles."""
    return Claims(**read_yaml(CLAIMS_FILE))


def claims_page() -> str:
    """docs/claims.md: counts by verdict, then each article's claims in the order of its lines, then the plans."""
    known = article_claims()
    articles = (
        f"## {article(name).title}\n\n{article(name).publisher}.\n\n{_table(name, known)}"
        for name in get_args(ArticleName)
    )
    plans = (
        f"| {name} | `playbook plan {plan.options}` "
        f"| {plan.output_tokens_per_s:,.0f} | {plan.joules_per_output_token:.3g} |\n"
        for name, plan in known.plans.items()
    )
    return "\n".join([HEAD, _counts(known.claims), *articles, PLANS]) + "".join(plans)


def _counts(claims: tuple[ArticleClaim, ...]) -> str:
    head = "| article | " + " | ".join(get_args(Verdict)) + " | all |"
    lines = [head, "|---" * (len(get_args(Verdict)) + 2) + "|"]
    for name in (*get_args(ArticleName), "all three"):
        of = Counter(claim.verdict for claim in claims if name in (claim.article, "all three"))
        lines.append(f"| {name} | " + " | ".join(str(of[each]) for each in get_args(Verdict)) + f" | {of.total()} |")
    ours = sum(claim.measured for claim in claims)
    lines += ["", f"The evidence of {ours} of them is, in part, our own: measured, run or planned.", ""]
    return "\n".join(lines)


def _table(name: str, known: Claims) -> str:
    def rows() -> Iterator[str]:
        for claim in sorted((each for each in known.claims if each.article == name), key=lambda each: each.line):
            said = f"{claim.claim} *{claim.figure}*" if claim.figure else claim.claim
            links = " ".join(f"[{link}]({known.sources[link]})" for link in claim.links)
            chapters = " ".join(f"[{each[:2]}](../notebooks/{each}.ipynb)" for each in claim.chapters)
            evidence = f"{claim.evidence} {links}".rstrip()
            yield f"| {claim.line} | {said} | **{claim.verdict}** | {evidence} | {chapters} |"

    return "\n".join(["| Line | Claim | Verdict | Evidence | Chapter |", "|---|---|---|---|---|", *rows(), ""])
