"""Ranges of releases as rules state them: ``since`` and ``until``, both included, an empty one open."""

from pydantic import BaseModel, ConfigDict

from playbook.releases.load import known_releases


class Ranged(BaseModel):
    """What holds in the releases ``since`` to ``until``."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    since: str = ""
    until: str = ""

    def in_range(self, release: str) -> bool:
        return in_range(release, self.since, self.until)

    @property
    def releases(self) -> str:
        """The range in words."""
        if self.since and self.until:
            return self.since if self.since == self.until else f"{self.since} to {self.until}"
        if self.since:
            return f"from {self.since}"
        return f"to {self.until}" if self.until else "all"


def in_range(release: str, since: str = "", until: str = "") -> bool:
    """True if the release lies between ``since`` and ``until``."""
    names = known_releases()
    position = names.index(release)
    after_start = not since or names.index(since) <= position
    return after_start and (not until or position <= names.index(until))
