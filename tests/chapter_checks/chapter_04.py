"""Chapter 04: values that its checks accept, and values that they refuse."""

from types import SimpleNamespace as Thing

from chapter_cells import Case

WORDS = "un, deux, trois, quatre, cinq, six, sept, huit, neuf"
STREAM = {
    "pieces": ["un", ", deux"],
    "answer": "un, deux",
    "runner": Thing(records=[Thing(phases={0: "context"})]),
    "ids": [1, 2],
}
LATE = Thing(records=[Thing(phases={0: "generation"})])


def refusing(message: str) -> Thing:
    """An engine whose longest prompt is 4 tokens, which answers a longer one with ``message``."""

    def submit(*given: object) -> None:
        if message:
            raise ValueError(message)

    return Thing(config=Thing(max_input_len=4), submit=submit)


LIMIT = {"tokenizer": Thing(bos_token_id=0), "greedy": None, "runner": refusing("longer than max_input_len 4")}


def seeded(*answers: int) -> dict[str, object]:
    """A runner that gives ``answers`` one after the other."""
    runner = Thing(generate=lambda prompts, sampling, rest=list(answers): [Thing(token_ids=[rest.pop(0)])])
    return {"runner": runner, "drawn": {"top_k 50, seed 1": None}, "opening": [1]}


def steps(static: int, inflight: int) -> dict[str, object]:
    return {"records": {"static": [0] * static, "inflight": [0] * inflight}}


CASES = [
    Case("04-07", "the FP8 engine counts to nine", {"answer": WORDS}, {"answer": "un, deux"}),
    Case("04-07", "the FP8 engine counts in French", {"answer": "Un, deux!"}, {"answer": "one, two"}, profile="p5"),
    Case("04-11", "the streamed pieces join", STREAM, {"pieces": ["un", "un", ", deux"]}),
    Case(
        "04-11",
        "the first step read the whole prompt",
        STREAM,
        {"runner": Thing(records=[Thing(phases={0: "generation"})])},
    ),
    Case("04-14", "the same seed", seeded(7, 7), seeded(7, 8)),
    Case("04-16", "an over-long prompt is refused", LIMIT, {"runner": refusing("")}),
    Case("04-22", "in-flight batching needs fewer steps", steps(216, 120), steps(120, 120)),
]
