"""Ranges of releases as rules state them: ``since`` and ``until``, both included, an empty one open."""

FINAL = 1_000_000  # later than every release candidate


def in_range(release: str, since: str = "", until: str = "") -> bool:
    """True if the release lies between ``since`` and ``until``; it need not be one that the data has facts on."""
    position = _position(release)
    return (not since or _position(since) <= position) and (not until or position <= _position(until))


def range_in_words(since: str, until: str) -> str:
    """Such as "0.9.0 to 0.11.0", "from 0.19.0" or "all"."""
    if since and until:
        return since if since == until else f"{since} to {until}"
    if since:
        return f"from {since}"
    return f"to {until}" if until else "all"


def _position(release: str) -> tuple[int, ...]:
    """Where 1.3.0rc22 or 1.3.0 stands among the releases."""
    numbers, _, candidate = release.partition("rc")
    return (*(int(number) for number in numbers.split(".")), int(candidate) if candidate else FINAL)
