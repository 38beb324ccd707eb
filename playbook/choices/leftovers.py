"""What still bills: each kind of AWS resource that this road can leave, how to see it and how to end it."""

import shlex
from functools import cache
from pathlib import Path

from pydantic import Field

from serving_base.record import Record
from serving_base.yaml_files import read_yaml

LEFTOVERS_FILE = Path(__file__).parents[1] / "data" / "leftovers.yml"


class Leftover(Record):
    """One kind of resource. ``see``, ``end`` and ``instead`` of it are commands; words in CAPITALS are yours to fill.

    An empty ``end`` means that nothing ends it.
    """

    resource: str
    bills: str
    until: str
    see: str
    end: str
    instead: str = ""
    note: str = ""
    source: str = Field(pattern=r"^https://")

    def row(self) -> dict[str, str]:
        """For a table: what it is, while it bills, and what ends that."""
        return {"resource": self.resource, "bills": self.bills, "until": self.until, "note": self.note}

    def commands(self) -> list[list[str]]:
        """Its commands as argument lists."""
        return [shlex.split(line) for line in (self.see, self.end, self.instead) if line]


@cache
def leftovers(path: Path = LEFTOVERS_FILE) -> tuple[Leftover, ...]:
    """Every kind of leftover, the dearest first."""
    return tuple(Leftover(**entry) for entry in read_yaml(path))
