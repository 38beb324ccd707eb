"""Where an error was raised, by the frames of its traceback or the C++ file that it names: :data:`PLACES`."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from serving_base.yaml_files import read_yaml

PLACES = Path(__file__).with_name("log_places.yml")
STOPPED = re.compile(r"^(?:.*\]\s*)?KeyboardInterrupt\b", re.MULTILINE)
FRAME = re.compile(r"File \"+(?P<path>[^\"]+)\"+, line \d+(?:, in (?P<name>[\w<>.]+))?")
STUB_FRAME = re.compile(r"(?P<path>/[\w./+-]+\.py)\(\d+\): (?P<name>[\w<>]+)")  # Triton's Python stub, innermost first
NATIVE = re.compile(r"\(?(?P<path>(?:[\w.-]*/)+[\w.-]+\.(?:cpp|cu|cuh|h|hpp|cc)):\d+\)?")
DEEPEST = 12


@dataclass(frozen=True)
class RaisedPart:
    """A part of a program. ``where`` is searched in "path function" of a frame."""

    rule: str
    where: str
    part: str
    fix: str
    source: str

    @property
    def cause(self) -> str:
        """What a finding says of an error that only its place explains."""
        return f"{self.part} failed; the line says how"


@cache
def places() -> tuple[RaisedPart, ...]:
    """The parts that are known, the special ones first."""
    return tuple(RaisedPart(**entry) for entry in read_yaml(PLACES))


def frame_of(line: str) -> str:
    """``path function`` of a line of a traceback, or nothing."""
    match = FRAME.search(line)
    return f"{match['path']} {match['name'] or ''}".rstrip() if match else ""


def place_of(frames: tuple[str, ...], block: str) -> RaisedPart | None:
    """The part that raised it: the innermost frame that a place knows; without frames what the message itself names."""
    if STOPPED.search(block):
        return None  # by whoever was there, or by the machine's manager
    named = [match.group("path", "name") for match in STUB_FRAME.finditer(block)]
    asked = [*reversed(frames[-DEEPEST:]), *(" ".join(one) for one in named[:DEEPEST])]
    asked += [match["path"] for match in NATIVE.finditer(block.partition("\n")[0])]
    vague = None
    for frame in asked:
        for place in places():
            if re.search(place.where, frame):
                if place is not places()[-1]:
                    return place
                vague = vague or place
                break
    return vague
