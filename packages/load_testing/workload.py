"""The load of a benchmark: prompts of varied length, each with the number of tokens to generate."""

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import PositiveInt

from serving_base.record import Record

NEVER_STOP = -1
"""End id that no token has: every answer gets exactly the tokens that were asked for."""


class WorkItem(Record):
    """One prompt. Both lengths are exact: the server's tokenizer counted one, and no end token cuts the other."""

    name: str
    text: str
    isl_tokens: PositiveInt
    osl_tokens: PositiveInt

    def body(self) -> dict[str, object]:
        """The JSON body of Triton's generate_stream."""
        return {"text_input": self.text, "max_tokens": self.osl_tokens, "stream": True, "end_id": NEVER_STOP}


def distinct_texts(ids: Sequence[int], size: int) -> Iterator[list[int]]:
    """Pieces of ``size`` token ids, each beginning at another place, for as many prompts as there are ids.

    A prompt that begins like another one would find its beginning in the KV cache. The pieces follow each other; from
    the second pass over the text on they begin one token later, so that no block of a cache is the same.
    """
    ring = [*ids, *ids[:size]]
    for shift in itertools.islice(itertools.count(), size):
        for start in range(shift, len(ids), size):
            yield ring[start : start + size]


def make_workload(
    tokenizer: Any,
    texts: Sequence[Sequence[int]],
    *,
    isl: tuple[int, int],
    osl: tuple[int, int],
    seed: int,
    name: str = "p",
) -> list[WorkItem]:
    """One item per text (token ids), cut to a length drawn from ``isl``, its answer's length drawn from ``osl``.

    Items are called ``name`` and their number; what one start of AIPerf sends needs a name of its own for each. Lists
    of two names have other lengths: two closed loops with the same answers' lengths march in step, and the one that
    asks a moment later waits for the other's prefill each time.
    Both ranges are inclusive and uniform. Cutting and encoding again may move a token at the edge; the count is taken
    from the final text, without special tokens.
    """
    draw = random.Random(f"{seed} {name}")
    items = []
    for number, ids in enumerate(texts):
        length = draw.randint(*isl)
        text = tokenizer.decode(ids[:length], skip_special_tokens=True)
        tokens = len(tokenizer.encode(text, add_special_tokens=False))
        items.append(WorkItem(name=f"{name}{number:04d}", text=text, isl_tokens=tokens, osl_tokens=draw.randint(*osl)))
    return items


def write_dataset(items: Sequence[WorkItem], path: Path) -> None:
    """The items as AIPerf's ``single_turn`` JSON lines; ``session_id`` comes back in every record of its export."""
    rows = [{"session_id": item.name, "text": item.text, "output_length": item.osl_tokens} for item in items]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
