"""Every flag and value that the three articles set, and docs/flags_of_the_articles.md, which shows them.

What a flag touches and what a wrong value costs stand in ``data/article_flags.yml``; when to use it, and its history by
release, are those of ``trtllm_check``.
"""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Literal

from playbook.articles import article
from serving_base.record import Record
from serving_base.yaml_files import read_yaml
from trtllm_check.releases.guide import TEMPLATES, FlagGuide, guide_of
from trtllm_check.releases.history import default, flag_history, ranges
from trtllm_check.releases.templates import release_templates, template_releases

FLAGS_FILE = Path(__file__).parent / "data" / "article_flags.yml"

HEAD = """# The flags of the articles

Every flag and configuration value that the three articles set: what it touches, when to use it, what a wrong value
costs, and in which releases it lives. The page is made from `playbook/data/article_flags.yml` and the data of
`trtllm_check` by `make docs`; a test keeps them equal.

*Effect* says what this project has: *measured* by a chapter's cell, here or on the GPUs whose data it ships, *planned*
by the planner, or *read* in the sources of each release. A dash means that it takes TensorRT-LLM on a GPU, which this
project had not, or that the value is no matter of speed or memory. A test compares each figure with the cell's output.

*Kernel*: another kernel runs. *Memory*, *latency*, *throughput*: what the value moves. *Answer*: what comes back.
*Start*: whether it builds, loads or is found at all. `playbook explain FLAG` has the sources and the rules;
[releases.md](releases.md) has every flag, [claims.md](claims.md) what the articles say about them.
"""

Touched = Literal["kernel", "memory", "latency", "throughput", "answer", "start"]


class Effect(Record):
    """What a value does, as cell ``cell`` shows it; ``figures``: what of the sentence stands in that cell's output."""

    kind: Literal["measured", "planned", "read"]
    says: str
    cell: str
    figures: tuple[str, ...]

    @property
    def chapter(self) -> str:
        return self.cell.partition("-")[0]


class ArticleFlag(Record):
    """One flag with the value of an article, as it stands in ``line``; ``name``: what trtllm_check calls it.

    ``when``: where the guide of trtllm_check has nothing on it.
    """

    tool: str
    name: str
    value: str
    article: Literal["aws", "nvidia", "talk"]
    line: int
    touches: tuple[Touched, ...]
    changes: str
    wrong: str
    when: str = ""
    effect: Effect | None = None

    def effect_in_words(self) -> str:
        """Such as "measured: ... (chapter 11)"; "-" without one."""
        found = self.effect
        return f"{found.kind}: {found.says} (chapter {found.chapter})" if found else "-"


def article_flags() -> tuple[ArticleFlag, ...]:
    """All of them, those of one tool together."""
    return tuple(ArticleFlag(**entry) for entry in read_yaml(FLAGS_FILE))


def flags_page() -> str:
    """docs/flags_of_the_articles.md: a table for each tool."""
    head = "| Value | Article | What it changes | When | Wrong, it costs | Effect | Releases |\n" + 7 * "|---" + "|"
    tables = (
        "\n".join([f"## {tool}", "", head, *(_row(flag) for flag in flags), ""])
        for tool, flags in groupby(article_flags(), key=lambda flag: flag.tool)
    )
    return "\n".join([HEAD, *_counted(), *tables])


def _counted() -> Iterator[str]:
    """How many values have which kind of effect."""
    kinds = [flag.effect.kind for flag in article_flags() if flag.effect]
    told = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("measured", "planned", "read"))
    yield f"Of {len(article_flags())} values {len(kinds)} have an effect that was seen here: {told}.\n"


def _row(flag: ArticleFlag) -> str:
    guide = _guide(flag)
    when = flag.when or (guide.when if guide else "")
    where = f"{article(flag.article).publisher.partition(',')[0]}, line {flag.line}"
    changes = f"*{', '.join(flag.touches)}*: {flag.changes}"
    cells = (f"`{flag.value}`", where, changes, when, flag.wrong, flag.effect_in_words(), "; ".join(_lives(flag)))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _guide(flag: ArticleFlag) -> FlagGuide | None:
    return guide_of(flag.tool, [flag.name])


def _lives(flag: ArticleFlag) -> Iterator[str]:
    """By release: the default that a flag has there, or that a template has the variable."""
    if flag.tool == TEMPLATES:
        having = [
            name
            for name in template_releases()
            if any(flag.name in spec.variables for spec in release_templates(name).models.values())
        ]
        yield ranges(having)
    elif history := flag_history(flag.tool, flag.name):
        for span in history.spans:
            value = default(span.argument)
            yield f"{span.releases}: {f'default `{value}`' if value not in ('', 'required') else value or 'no default'}"
        if history.gone_since:
            yield f"gone from {history.gone_since}"
    elif flag.name.startswith("option."):
        yield f"by image: `playbook explain {flag.name}`"
