"""What ``support.yml`` says of the attention kernels, for a release and a GPU.

A row holds for a span of releases. Most releases were read in their own tree or between two builds of their branch; the
others lie in a gap, and :func:`read_at` names the releases at its two ends.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from serving_base.record import Record
from serving_base.yaml_files import read_yaml
from trtllm_check.releases.load import in_range, range_in_words

ARCHITECTURES = ("sm70", "sm80", "sm86", "sm89", "sm90", "sm120")
"""Those with a row: Volta, A100, A10, L4, H100, and the workstations' Blackwell."""
COMMON_SIZES = (32, 40, 64, 80, 96, 128, 192, 256)


class Spanned(Record):
    """What holds from ``since`` to ``until``, both included; ``source`` where it is not the release's own reading."""

    since: str
    until: str = ""
    source: str = ""

    def holds(self, release: str) -> bool:
        return in_range(release, self.since, self.until)

    @property
    def releases(self) -> str:
        """Such as "0.9.0 to 0.11.0"."""
        return range_in_words(self.since, self.until)


class Reading(Spanned):
    """Where releases were read. Not ``exact``: the builds of main before and after the release's branch."""

    exact: bool


class FmhaRow(Spanned):
    """Fused kernels. ``sums``: type of the inputs -> types in which products are summed. ``head_sizes``: values.

    ``unsettled``: a head size -> the release that may have it or not.
    """

    architectures: tuple[str, ...]
    sums: Mapping[str, tuple[str, ...]]
    head_sizes: tuple[int, ...]
    masks: tuple[str, ...]
    layouts: tuple[str, ...] = ("packed", "paged")
    unsettled: Mapping[int, str] = {}


class XqaRow(Spanned):
    """What XQA serves. ``kv_caches``: type -> "all" or architectures. ``tokens_per_block`` empty: no paged cache."""

    way: str
    architectures: tuple[str, ...]
    dtypes: tuple[str, ...]
    kv_caches: Mapping[str, str | tuple[str, ...]]
    head_sizes: tuple[int, ...]
    queries_per_kv: tuple[int, ...]
    tokens_per_block: tuple[int, ...]
    only: str = ""


Row = TypeVar("Row", bound=Spanned)


@cache
def support() -> dict[str, Any]:
    """The content of ``support.yml``."""
    content: dict[str, Any] = read_yaml(Path(__file__).with_name("support.yml"))
    return content


@cache
def readings() -> tuple[Reading, ...]:
    return tuple(Reading(**row) for row in support()["readings"])


@cache
def fmha_rows() -> tuple[FmhaRow, ...]:
    return tuple(FmhaRow(**row) for row in support()["fmha"])


@cache
def xqa_rows() -> tuple[XqaRow, ...]:
    return tuple(XqaRow(**row) for row in support()["xqa"])


def of_release(rows: Iterable[Row], release: str) -> tuple[Row, ...]:
    """The rows that hold for ``release``."""
    return tuple(row for row in rows if row.holds(release))


def value_of(spans: Sequence[Mapping[str, Any]], release: str) -> Any:
    """What the spans say of ``release``; a later one wins over an earlier, ``None`` where none holds."""
    held = [span["is"] for span in spans if in_range(release, span["since"], span.get("until", ""))]
    return held[-1] if held else None


def read_at(release: str) -> tuple[str, ...]:
    """The release itself if it was read, else the nearest ones before and after that were; empty outside of them."""
    if of_release(readings(), release):
        return (release,)
    before = [reading.until for reading in readings() if in_range(release, since=reading.until)]
    after = [reading.since for reading in readings() if in_range(release, until=reading.since)]
    return (before[-1], after[0]) if before and after else ()


def source_of(release: str, kind: str) -> str:
    """Where ``kind`` (``fmha``, ``mmha``, ``xqa``, ``falls_back``) was read for a release that was read."""
    return f"{of_release(readings(), release)[0].source}: {support()['files'][kind]}"


def first_fused(architecture: str, head_size: int, inputs: str = "bf16") -> str:
    """The first release read that has such a kernel, "-" if none has. ``inputs``: fp16, bf16 or fp8."""
    rows = (row for row in fmha_rows() if architecture in row.architectures and inputs in row.sums)
    return next((row.since for row in rows if head_size in row.head_sizes), "-")


def first_fused_table(inputs: str = "bf16", head_sizes: Sequence[int] = COMMON_SIZES) -> list[dict[str, str]]:
    """A row for each GPU architecture, a column for each head size: the first release with a fused kernel."""
    return [
        {"architecture": name} | {str(size): first_fused(name, size, inputs) for size in head_sizes}
        for name in ARCHITECTURES
    ]


def rows_per_release() -> list[dict[str, Any]]:
    """For each reading: its releases, whether it was the release's own tree, and how many rows it has of each kind."""
    return [
        {
            "releases": reading.releases,
            "own tree": reading.exact,
            "FMHA rows": len(of_release(fmha_rows(), reading.since)),
            "XQA rows": len(of_release(xqa_rows(), reading.until)),
            "MMHA head sizes": len(value_of(support()["mmha"]["head_sizes"], reading.since)),
            "source": reading.source,
        }
        for reading in readings()
    ]
