"""Does every request get its own answer, whoever joins, leaves or waits beside it?

A lane is anything that takes requests and gives answers; :func:`churn` sends it five kinds of prompts at random,
cancels some in the middle, and compares each answer with what the same request got alone.
"""

import queue
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

Tokens = tuple[int, ...]
Answer = Tokens | str
WORDS = (
    *("the", "value", "of", "a", "list", "file", "and", "it", "is", "not", "in", "an"),
    *("order", "for", "two", "names", "that", "were", "given", "to", "you", "by", "who", "sent", "them"),
)
NEW_TOKENS = (1, 4, 12)
"""A request of one token leaves a block that holds a prompt and nothing else."""
IDLE_S = 0.05


@dataclass(frozen=True)
class Ask:
    kind: str
    text: str
    new_tokens: int


@dataclass(frozen=True)
class End:
    """A request's last word; a cancelled one may have given the beginning of its answer."""

    number: int
    answer: Answer
    cancelled: bool = False


@dataclass(frozen=True)
class Wrong:
    number: int
    ask: Ask
    answer: Answer
    expected: Answer
    other: str = ""
    """The prompt whose whole answer it is, if it is another one's."""


@dataclass
class Report:
    answered: Counter[str] = field(default_factory=Counter)
    cancelled: int = 0
    wrong: list[Wrong] = field(default_factory=list)

    @property
    def ended(self) -> int:
        return sum(self.answered.values()) + self.cancelled


class Lane(Protocol):
    def submit(self, number: int, ask: Ask) -> None: ...
    def cancel(self, number: int) -> None: ...
    def collect(self) -> Sequence[End]:
        """What has ended since the last call. May wait a little, not for ever."""
        ...


def write_asks(seed: int = 1, per_kind: int = 8) -> list[Ask]:
    """Prompts of five kinds, each asked for every length of :data:`NEW_TOKENS`."""
    rng = random.Random(seed)

    def some(low: int, high: int) -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(low, high)))

    common, longer = some(110, 110), some(60, 60)
    texts = {
        "short": ["The value of", *(f"The value of {n}" for n in range(per_kind))],
        "blocks": [f"{common} {some(1, 20)}" for _ in range(per_kind)],
        "long": [" ".join([longer[: rng.choice((0, 150, 300))], some(120, 180)]) for _ in range(per_kind)],
        "identical": [some(40, 40)],
        "random": [some(1, 60) for _ in range(per_kind)],
    }
    return [Ask(kind, text, n) for kind, group in texts.items() for text in group for n in NEW_TOKENS]


def ask_alone(lane: Lane, asks: Sequence[Ask]) -> dict[Ask, Answer]:
    """The right answers: one request at a time."""
    answers: dict[Ask, Answer] = {}
    for number, ask in enumerate(asks):
        lane.submit(number, ask)
        ends: Sequence[End] = ()
        while not ends:
            ends = lane.collect()
        answers[ask] = ends[0].answer
    return answers


def churn(
    lane: Lane,
    expected: Mapping[Ask, Answer],
    total: int,
    *,
    seed: int = 1,
    most_live: int = 24,
    cancel_share: float = 0.08,
) -> Report:
    """Send ``total`` requests, at most ``most_live`` at once; ``cancel_share``: rounds that cancel one."""
    rng, report = random.Random(seed), Report()
    kinds = sorted({ask.kind for ask in expected})
    by_kind = {kind: [ask for ask in expected if ask.kind == kind] for kind in kinds}
    live: dict[int, Ask] = {}
    sent = 0
    while report.ended < total:
        while sent < total and len(live) < most_live and rng.random() < 0.7:
            live[sent] = rng.choice(by_kind[rng.choice(kinds)])
            lane.submit(sent, live[sent])
            sent += 1
        if live and rng.random() < cancel_share:
            lane.cancel(rng.choice(sorted(live)))
        for end in lane.collect() if live else ():
            _count(report, end, live.pop(end.number), expected)
    return report


def _count(report: Report, end: End, ask: Ask, expected: Mapping[Ask, Answer]) -> None:
    right = expected[ask]
    if end.cancelled:
        report.cancelled += 1
        right = right[: len(end.answer)]
    else:
        report.answered[ask.kind] += 1
    if end.answer != right:
        same_length = ((o, a) for o, a in expected.items() if o.new_tokens == ask.new_tokens and o.text != ask.text)
        other = next((o.text for o, a in same_length if a == end.answer), "")
        report.wrong.append(Wrong(end.number, ask, end.answer, right, other))


class CallLane:
    """A server, asked by as many threads as requests may be live.

    ``call`` gives the whole answer; it may look at the event and return what it has, None for nothing to compare.
    """

    def __init__(self, call: Callable[[Ask, threading.Event], Answer | None], most_live: int = 24) -> None:
        self._call = call
        self._pool = ThreadPoolExecutor(most_live)
        self._ends: queue.Queue[End | BaseException] = queue.Queue()
        self._leave: dict[int, threading.Event] = {}

    def submit(self, number: int, ask: Ask) -> None:
        self._leave[number] = threading.Event()
        self._pool.submit(self._run, number, ask, self._leave[number])

    def cancel(self, number: int) -> None:
        self._leave[number].set()

    def collect(self) -> list[End]:
        try:
            end = self._ends.get(timeout=IDLE_S)
        except queue.Empty:
            return []
        if isinstance(end, BaseException):
            raise end
        del self._leave[end.number]
        return [end]

    def close(self) -> None:
        self._pool.shutdown()

    def _run(self, number: int, ask: Ask, leave: threading.Event) -> None:
        try:
            answer = self._call(ask, leave)
            cancelled = leave.is_set()
            empty: Answer = ""
            self._ends.put(End(number, empty if answer is None else answer, cancelled))
        except BaseException as error:
            self._ends.put(error)


def churn_server(
    call: Callable[[Ask, threading.Event], Answer | None], total: int, *, seed: int = 1, most_live: int = 16
) -> Report:
    """:func:`churn` through a server; the right answers are its own, asked one at a time."""
    lane = CallLane(call, most_live)
    try:
        return churn(lane, ask_alone(lane, write_asks(per_kind=4)), total, seed=seed, most_live=most_live)
    finally:
        lane.close()
