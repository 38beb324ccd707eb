"""The model that a folder's path names: a snapshot of the hub's cache, ModelScope's marks, an owner before the name."""

import posixpath
import re
from functools import lru_cache

from serving_base.facts.published import published_model

CACHED = re.compile(
    r"(?:\S*/)?models--(?P<owner>[\w.-]+?)--(?P<name>[\w.-]+?)(?:/(?:snapshots|refs)(?:/\S*)?)?/?", re.IGNORECASE
)
SIZED = re.compile(r"\d+b(?![a-z])", re.IGNORECASE)
OWNED = re.compile(r"(?P<owner>[A-Za-z][\w.-]*?)(?:_{1,2}|--)(?P<name>[A-Za-z][\w.-]*)")
DOT = "___"  # which ModelScope writes in its folders


@lru_cache(maxsize=1024)
def as_hub(path: str) -> str:
    """``path``, or what the hub calls the model that it names."""
    cached = CACHED.fullmatch(path)
    if cached is not None:
        return f"{cached['owner']}/{cached['name']}"
    plain = path.rstrip("/") or path
    folder, _, last = plain.rpartition("/")
    if DOT in last:
        last = last.replace(DOT, ".")
        plain = f"{folder}/{last}" if folder else last
    owned = OWNED.fullmatch(last) if SIZED.search(last) else None
    if owned is not None and published_model(last) is None and published_model(owned["name"]) is not None:
        return f"./{owned['name']}"
    return plain


def model_of(path: str) -> str:
    """The folder ``./NAME`` for a path that ends with the name of a published model and its size; "" for any other."""
    last = posixpath.basename(as_hub(path.rstrip("/*")))
    return f"./{last}" if SIZED.search(last) and published_model(last) is not None else ""
