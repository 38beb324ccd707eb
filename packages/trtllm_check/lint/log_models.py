"""Ranks that do not share the heads of a published model, where a log names both the model and the ranks."""

import re
from collections.abc import Sequence

from serving_base.facts.published import published_model

MODEL = re.compile(
    r"(?:\bmodel(?:_tag|_id|_dir)?=|--(?:hf_)?model(?:[-_](?:dir|path|id))?[ =]|\bserve |option\.model_id=)[\"']?"
    r"(?P<model>[\w./-]*[A-Za-z][\w.-]*)"
)
RANKS = re.compile(
    r"(?:\btensor_parallel_size=|--tensor[-_]parallel[-_]size[ =]|--tp_size[ =]|--tp[ =]|\btp_size:? +|"
    r"tensor_parallel_degree=)(?P<ranks>\d{1,3})\b"
)
SAID_MODEL = re.compile(
    r"(?<![\w.-])(?:[\w.-]+/)?(?P<model>[A-Z][A-Za-z]*[\w.]*-[\w.-]*\d+(?:\.\d+)?[bB](?:-[\w.-]*\w)?)(?![\w-])"
)
SAID_RANKS = re.compile(
    r"\b(?:tensor[ _-]parallel(?:ism)?(?:[ _-]size)?|tp[ _]size|TP)`?"
    r"(?: is| was)?(?: set)?(?: to| of|:| =|=)?[ `\"]{1,2}(?P<ranks>\d{1,3})\b"
)


def heads_said(prose: str) -> tuple[int, dict[str, str]] | None:
    """The same of a few sentences that name one model and one number of ranks, such as a question has them."""
    return _not_shared([*SAID_MODEL.finditer(prose)], [*SAID_RANKS.finditer(prose)])


def heads_told(output: str) -> tuple[int, dict[str, str]] | None:
    """Where the log tells the ranks, and what is known of them; None where they share the heads, or nothing is told.

    Of several models or numbers of ranks nothing is said: which belongs to which is not known.
    """
    return _not_shared([*MODEL.finditer(output)], [*RANKS.finditer(output)])


def _not_shared(named: Sequence[re.Match[str]], numbers: Sequence[re.Match[str]]) -> tuple[int, dict[str, str]] | None:
    models = {match["model"].rpartition("/")[2] for match in named}
    ranks = {match["ranks"]: match.start() for match in reversed(numbers)}
    if len(models) != 1 or len(ranks) != 1:
        return None
    name, (number, start) = models.pop(), next(iter(ranks.items()))
    model = published_model(name)
    if model is None or not 1 < int(number) <= model.heads or model.heads % int(number) == 0:
        return None
    fitting = [str(one) for one in model.ranks if one < int(number)]
    known = {"model": name, "ranks": number, "heads": str(model.heads), "kv_heads": str(model.kv_heads)}
    return start, {**known, "fitting": ", ".join(fitting), "source": model.source}
