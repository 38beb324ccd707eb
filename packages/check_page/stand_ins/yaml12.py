"""``yaml12`` in the browser: shipped files as the real one read them, other texts by PyYAML with YAML 1.2's core schema."""

import pickle
import re
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

READ = Path(__file__).with_name("yaml12_read.pickle")
"""What the files of the page hold, by :func:`key` of their text; written when the page is built."""
CORE = (
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", tuple("tTfF")),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", tuple("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        tuple("-+.0123456789"),
    ),
)
"""https://yaml.org/spec/1.2.2/#103-core-schema: tag, values, their first characters."""


def key(text: str) -> str:
    """What a text is known by."""
    return sha256(text.encode()).hexdigest()


def parse_yaml(text: str, multi: bool = False) -> Any:
    """The value of ``text``, with ``multi`` the list of its documents; :class:`ValueError` for what is no YAML."""
    import yaml

    known = _read().get(key(text))
    if known is not None:
        documents = pickle.loads(known)
    else:
        try:
            documents = list(yaml.load_all(text, _loader()))
        except (yaml.YAMLError, RecursionError) as error:
            raise ValueError(str(error)) from error
    return documents if multi else documents[0] if documents else None


@cache
def _read() -> Mapping[str, bytes]:
    content: dict[str, bytes] = pickle.loads(READ.read_bytes()) if READ.is_file() else {}
    return content


@cache
def _loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """YAML 1.2's core schema."""

        yaml_implicit_resolvers: dict[str, Any] = {}

    for tag, values, first in CORE:
        Loader.add_implicit_resolver(tag, re.compile(rf"(?:{values})\Z"), list(first))
    Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: _integer(loader.construct_scalar(node)))
    return Loader


def _integer(text: str) -> int:
    digits = text.lstrip("-+")
    if digits.startswith(("0o", "0x")):
        return int(digits, 0)
    return -int(digits) if text.startswith("-") else int(digits)
