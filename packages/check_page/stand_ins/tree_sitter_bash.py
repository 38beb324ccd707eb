"""``tree_sitter_bash`` in the browser: the page's JavaScript has the grammar."""


def language() -> str:
    """The grammar's name, for :class:`tree_sitter.Language`."""
    return "bash"
