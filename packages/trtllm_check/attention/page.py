"""docs/attention_kernels.md, and the tables of one release: what ``support.yml`` says, row by row."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from serving_base.errors import UsageError
from trtllm_check.attention.facts import (
    FmhaRow,
    XqaRow,
    fmha_rows,
    of_release,
    readings,
    rows_per_release,
    support,
    value_of,
    xqa_rows,
)
from trtllm_check.releases.load import range_in_words

HEAD = """# The attention kernels, by release and GPU

Made from `packages/trtllm_check/attention/support.yml` by `make docs`; a test keeps the two equal. Chapter 11 asks the
same data which kernel a set of flags gets. A row holds for the releases that it names. What lies between the readings
below was not read, and is answered only where the readings before and after agree.

`sm70` is a V100, `sm80` an A100, `sm86` an A10G, `sm89` an L4, `sm90` an H100 or H200, `sm120` a workstation's
Blackwell."""


def release_tables(release: str) -> dict[str, list[dict[str, str]]]:
    """The tables of a release that was read, by kernel: FMHA, XQA, and what makes FMHA impossible."""
    if not of_release(readings(), release):
        read = ", ".join(reading.releases for reading in readings())
        raise UsageError(f"the attention kernels of {release} were not read", fix=f"choose a release of {read}")
    return {
        "FMHA": [_fmha(row) for row in of_release(fmha_rows(), release)],
        "XQA": [_xqa(row) for row in of_release(xqa_rows(), release)],
        "unfused instead of FMHA": [
            {"because": span["because"]} for span in support()["falls_back"] if value_of([span | {"is": True}], release)
        ],
    }


def kernels_page() -> str:
    """docs/attention_kernels.md."""
    facts = support()
    mmha = [{"Releases": _span(span), "Head sizes": numbers(span["is"])} for span in facts["mmha"]["head_sizes"]]
    instead = [{"Releases": _span(span), "Because of": span["because"]} for span in facts["falls_back"]]
    parts = [
        HEAD,
        "## Where they were read\n\n*Own tree*: the release itself; otherwise two builds around its branch.",
        table(row | {"own tree": "yes" if row["own tree"] else "no"} for row in rows_per_release()),
        "\n".join(f"- {kind.upper()}: {where}" for kind, where in facts["files"].items()),
        "## FMHA, the context phase\n\n*Inputs*: their type, and in which types products are summed.",
        table({"releases": row.releases} | _fmha(row) for row in fmha_rows()),
        "\n".join(_remarks()),
        "Several unfused kernels run instead, which store the scores:",
        table(instead),
        f"## MMHA, the generation phase\n\n{', '.join(facts['mmha']['dtypes'])}, from sm70 on (BF16 from sm80 on).",
        table(mmha),
        f"## XQA, the generation phase with shared heads\n\nFor one beam; {facts['xqa_heuristic']['says']}.",
        table({"releases": row.releases} | _xqa(row) for row in xqa_rows()),
    ]
    return "\n\n".join(parts) + "\n"


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as Markdown."""
    rows = list(rows)
    cells = [[str(value).replace("|", "\\|") for value in row.values()] for row in rows]
    head = [list(rows[0]), ["---"] * len(rows[0])]
    return "\n".join("| " + " | ".join(line) + " |" for line in head + cells)


def numbers(values: Sequence[int]) -> str:
    """Such as "2 to 5, 8": three or more neighbours as a range."""
    runs = [[value for _, value in run] for _, run in groupby(enumerate(values), key=lambda item: item[1] - item[0])]
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def _span(span: Mapping[str, Any]) -> str:
    return range_in_words(span["since"], span.get("until", ""))


def _remarks() -> Iterator[str]:
    for size, release in sorted({pair for row in fmha_rows() for pair in row.unsettled.items()}):
        yield f"- Head size {size} came in {release} or right after: it is between the two builds that were read."
    yield from (f"- {note}" for note in support()["fmha_notes"].values())


def _types(row: FmhaRow) -> str:
    return "; ".join(f"{kind} in {' or '.join(sums)}" for kind, sums in row.sums.items())


def _fmha(row: FmhaRow) -> dict[str, str]:
    return {
        "GPU": ", ".join(row.architectures),
        "inputs": _types(row),
        "head sizes": numbers(row.head_sizes),
        "masks": ", ".join(row.masks),
        "keys and values": " or ".join(row.layouts),
    }


def _xqa(row: XqaRow) -> dict[str, str]:
    caches = (kind if where == "all" else f"{kind} ({', '.join(where)})" for kind, where in row.kv_caches.items())
    return {
        "GPU": ", ".join(row.architectures),
        "model": ", ".join(row.dtypes),
        "KV cache": ", ".join(caches),
        "head sizes": numbers(row.head_sizes),
        "queries per KV head": numbers(row.queries_per_kv),
        "tokens per block": numbers(row.tokens_per_block) or "contiguous only",
        "kernel": "; ".join(filter(None, (row.way, row.only))),
    }
