"""Ranges of releases as rules state them: ``since`` and ``until``, both included, an empty one open."""

from playbook.releases.load import known_releases


def in_range(release: str, since: str = "", until: str = "") -> bool:
    """True if the release lies between ``since`` and ``until``."""
    names = known_releases()
    position = names.index(release)
    after_start = not since or names.index(since) <= position
    return after_start and (not until or position <= names.index(until))


def range_in_words(since: str, until: str) -> str:
    """Such as "0.9.0 to 0.11.0", "from 0.19.0" or "all"."""
    if since and until:
        return since if since == until else f"{since} to {until}"
    if since:
        return f"from {since}"
    return f"to {until}" if until else "all"
