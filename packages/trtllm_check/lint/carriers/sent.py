"""A request that a program sends to a server of models."""

from typing import Any, NamedTuple

from trtllm_check.lint.shell.words import Word


class SentRequest(NamedTuple):
    """``fields`` of a JSON body, which stands at ``body``, for ``url``, which stands at ``address``."""

    url: str
    fields: dict[str, Any]
    body: Word
    address: Word
