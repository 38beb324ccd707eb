"""``yaml12`` in the browser: shipped files as the real one read them, other texts by PyYAML with the core schema.

Left to PyYAML, which refuses them: tags of one's own and keys that are collections. The real one takes both.
"""

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

BITS = 64


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
            documents = list(yaml.load_all(text if text.endswith("\n") else f"{text}\n", _loader()))
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

    loader: Any = type("Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": {}})
    for tag, values, first in CORE:
        loader.add_implicit_resolver(tag, re.compile(rf"(?:{values})\Z"), list(first))
    loader.add_constructor("tag:yaml.org,2002:int", lambda _, node: _integer(str(node.value)))
    return loader


def _integer(text: str) -> int | float:
    """As the real one: what has no place in 64 bits is a float."""
    value = int(text, 0) if text.startswith(("0o", "0x")) else int(text)
    return value if value.bit_length() < BITS else float(value)
