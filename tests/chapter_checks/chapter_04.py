"""Chapter 04: values that its checks accept, and values that they refuse."""

import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace as Thing

from chapter_cells import Case

WORDS = "un, deux, trois, quatre, cinq, six, sept, huit, neuf"
SAMPLED = {"greedy": ["a", "a"], "top_k 50, seed 1": ["b", "b"]}
LIMIT = 512


def tokenizer(token: str) -> Thing:
    return Thing(bos_token=token)


def steps(static: int, inflight: int, *, tokens: int = 1) -> dict[str, object]:
    made = {"static": static, "inflight": inflight}
    step = Thing(new_tokens={0: tokens}, phases={0: "generation"})
    return {"steps": made, "records": {name: [step] * count for name, count in made.items()}, "lengths": [120]}


def balanced(static: int, inflight: int, phase: str = "generation") -> dict[str, object]:
    """Both runs made 120 tokens, in as many steps as asked for; ``phase``: what a slot of the in-flight run did."""
    given = steps(static, inflight)
    given["records"] = {
        name: [Thing(new_tokens={0: 120 * (number == 0)}, phases={0: phase}) for number in range(count)]
        for name, count in (("static", static), ("inflight", inflight))
    }
    return given


class Refusing:
    """The package's ``generate``, which refuses with ``message``, or answers."""

    def __init__(self, message: str) -> None:
        self.message = message

    def generate(self, *given: object, **named: object) -> list[str]:
        if self.message:
            raise ValueError(self.message)
        return ["answer"]


REFUSAL = {"tokenizer": tokenizer("x"), "engine": None, "playbook": Refusing(f"too long for max_input_len {LIMIT}")}


@dataclass(frozen=True)
class Engine:
    path: Path


def sixteen_bit(text: str) -> dict[str, object]:
    """An engine-bf16 that answers ``text``."""
    package = Thing(generate=lambda *given, **named: [text])
    return {
        "engine": Engine(Path("no-engine")),
        "prompt": "",
        "max_new_tokens": 8,
        "answer": WORDS,
        "playbook": package,
        "re": re,
    }


CASES = [
    Case("04-07", "the FP8 engine counts in French", {"answer": WORDS}, {"answer": "deux, un"}),
    Case("04-07", "the FP8 engine counts in French", {"answer": WORDS}, {"answer": "one, two"}),
    Case("04-07", "the FP8 engine counts in French", {"answer": WORDS}, {"answer": "I count to one, deux"}),
    Case(
        "04-11",
        "the streamed pieces join",
        {"pieces": ["un", ", deux"], "answer": "un, deux"},
        {"pieces": ["un", "un", ", deux"]},
    ),
    Case("04-14", "the same seed", {"drawn": SAMPLED}, {"drawn": SAMPLED | {"top_p": ["c", "d"]}}),
    Case("04-16", "an over-long prompt is refused", REFUSAL, {"playbook": Refusing("")}),
    Case("04-22", "in-flight batching needs fewer steps", balanced(216, 120), balanced(120, 120)),
    Case("04-22", "in-flight batching keeps no slot", balanced(216, 120), balanced(216, 120, "padding")),
    Case("04-22", "both policies made every token", balanced(216, 120), steps(216, 119)),
    Case(
        "04-knobs-b",
        "the computed schedules take the engine's steps",
        {"lengths": [2, 6, 1, 1, 3], "steps": {"static": 9, "inflight": 6}},
        {"steps": {"static": 9, "inflight": 5}},
    ),
    Case("04-bf16-b", "the BF16 engine counts in French", sixteen_bit(WORDS), sixteen_bit("deux, un")),
    Case("04-bf16-b", "the BF16 engine counts in French", sixteen_bit(WORDS), sixteen_bit("I count to one, deux")),
]
