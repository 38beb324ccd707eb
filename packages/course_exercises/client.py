"""The exercises of the chapter on the client: pauses with jitter, what may be sent again, a stream, a secret's way.

The servers are scripted here; the rule for a second attempt is the one of the product, which a test compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal
from urllib.parse import urlsplit

from course_exercises.exercise import Exercise, Wrong
from course_exercises.verdict import ExerciseVerdict, Solution
from serving_base.errors import UsageError

# Exercise 1: what may be sent again.

ErrorName = Literal["Refused", "Overloaded", "Unreachable", "TimedOut", "BrokenStream", "DeadlineExceeded"]


@dataclass(frozen=True)
class Situation:
    """What happened to a request. ``sent``: it may have arrived; ``pieces``: what the caller has of the answer."""

    text: str
    error: ErrorName
    why: str
    sent: bool = True
    pieces: int = 0
    idempotent: bool = True
    restart: bool = False

    @property
    def again(self) -> bool:
        """Whether a second attempt can do no harm and may succeed."""
        if self.error in ("Refused", "DeadlineExceeded"):
            return False
        if self.error == "Overloaded" or not self.sent:
            return True
        return self.idempotent and (self.restart or self.pieces == 0)


SITUATIONS = (
    Situation("Nobody listens at the address.", "Unreachable", "nothing was sent, so nothing was done", sent=False),
    Situation("The connection is lost before the first piece.", "BrokenStream", "plain generation may be done twice"),
    Situation(
        "The connection is lost, and the request also books a seat (`idempotent=False`).",
        "Unreachable",
        "it may have arrived, and twice is one too many",
        idempotent=False,
    ),
    Situation("The server answers 400: the prompt is too long.", "Refused", "the same request fails again"),
    Situation("The server answers 503: its queue is full.", "Overloaded", "it was turned away before any work"),
    Situation("The gateway answers 401: the token is wrong.", "Refused", "the same token is wrong again"),
    Situation("Nothing comes for `read_s` seconds.", "TimedOut", "plain generation may be done twice"),
    Situation(
        "A sampled stream breaks after its first piece.",
        "BrokenStream",
        "another sample would go on with another text",
        pieces=1,
    ),
    Situation(
        "A greedy stream with `restart=True` breaks after three pieces.",
        "BrokenStream",
        "the same tokens come again and are skipped",
        pieces=3,
        restart=True,
    ),
    Situation("The request's deadline is over.", "DeadlineExceeded", "nobody waits for the answer any more"),
)
"""Numbered from 1, in the order of the chapter's list."""


def check_again(answer: Sequence[int]) -> Solution:
    """Exercise 1: the numbers of the situations in which the request may be sent again."""
    title = "Again, or not"
    chosen = set(answer)
    if not chosen:
        return Solution(title, problem="no number is named yet")
    if unknown := chosen - set(range(1, len(SITUATIONS) + 1)):
        return Solution(title, problem=f"there is no situation {', '.join(map(str, sorted(unknown)))}")
    said = {True: "again", False: "not again"}
    verdicts = [
        ExerciseVerdict(
            f"{number}. {one.text}", said[number in chosen], said[one.again], one.why, (number in chosen) == one.again
        )
        for number, one in enumerate(SITUATIONS, start=1)
    ]
    return Solution(title, tuple(verdicts))


# Exercise 2: full jitter.

DRAWS = 300
"""Of so many uniform draws one lies above 0.8 and one below 0.2 of the bound, but for one time in 10^28."""
BASE_S, CAP_S = 0.1, 5.0


def pause_s(retry: int, base_s: float, cap_s: float, dice: Random) -> float:
    return dice.uniform(0, min(cap_s, base_s * 2.0**retry))


def check_pauses(answer: Callable[[int, float, float, Random], float]) -> Solution:
    """Exercise 2: for each retry, the pauses stay within the bound, reach for it, and begin near nothing."""
    dice = Random(6)
    verdicts = []
    for retry in (0, 1, 3, 5, 6, 12):
        bound = min(CAP_S, BASE_S * 2.0**retry)
        drawn = [answer(retry, BASE_S, CAP_S, dice) for _ in range(DRAWS)]
        low, high = min(drawn), max(drawn)
        yours = f"{low:.3f} to {high:.3f} s"
        said = f"retry {retry}, {DRAWS} pauses"
        within = low >= 0 and high <= bound
        why = "the cap ends the growth" if bound == CAP_S else "the bound is base times 2 to the power of the retry"
        verdicts.append(ExerciseVerdict(said, yours, f"within 0 to {bound:g} s", why, within))
        why = "full jitter draws from the whole range, or the crowd stays together"
        spread = low < 0.2 * bound and high > 0.8 * bound
        verdicts.append(ExerciseVerdict(said, yours, f"all over 0 to {bound:g} s", why, spread))
    return Solution("Pauses with full jitter", tuple(verdicts))


def _no_jitter(retry: int, base_s: float, cap_s: float, dice: Random) -> float:  # noqa: ARG001
    return min(cap_s, base_s * 2.0**retry)


def _equal_jitter(retry: int, base_s: float, cap_s: float, dice: Random) -> float:
    bound = min(cap_s, base_s * 2.0**retry)
    return bound / 2 + dice.uniform(0, bound / 2)


def _no_cap(retry: int, base_s: float, cap_s: float, dice: Random) -> float:  # noqa: ARG001
    return dice.uniform(0, base_s * 2.0**retry)


def _no_growth(retry: int, base_s: float, cap_s: float, dice: Random) -> float:  # noqa: ARG001
    return dice.uniform(0, min(cap_s, base_s))


# Exercise 3: a client that may not repeat what the caller has.


@dataclass
class ScriptedServer:
    """A transport by script: each connection gives its pieces and then raises, or ends with, what stands last."""

    script: Sequence[tuple[Sequence[str], Exception | None]]
    connections: int = 0
    asked: list[str] = field(default_factory=list)

    def connect(self) -> Iterator[str]:
        pieces, end = self.script[min(self.connections, len(self.script) - 1)]
        self.connections += 1
        return self._pieces(pieces, end)

    def _pieces(self, pieces: Sequence[str], end: Exception | None) -> Iterator[str]:
        for piece in pieces:
            self.asked.append(piece)
            yield piece
        if end is not None:
            raise end


def patient_stream(connect: Callable[[], Iterator[str]], attempts: int) -> Iterator[str]:
    for attempt in range(1, attempts + 1):
        begun = False
        try:
            for piece in connect():
                begun = True
                yield piece
            return
        except ConnectionError:
            if begun or attempt == attempts:
                raise


def check_stream(answer: Callable[[Callable[[], Iterator[str]], int], Iterator[str]]) -> Solution:
    """Exercise 3: on scripted servers, what the caller gets and how often the server was asked."""
    lost, refused = ConnectionError("lost"), ValueError("400: the prompt is too long")
    cases: tuple[tuple[str, Sequence[tuple[Sequence[str], Exception | None]], str, str], ...] = (
        ("all goes well", (((("un", "deux"), None)),), "un deux, 1 asked", "one connection is enough"),
        (
            "lost before the first piece",
            (((), lost), (("un", "deux"), None)),
            "un deux, 2 asked",
            "the caller has nothing yet, so the second attempt repeats nothing",
        ),
        (
            "lost after the first piece",
            ((("un",), lost), (("un", "deux"), None)),
            "un ConnectionError, 1 asked",
            "a second attempt would say again what the caller has",
        ),
        ("refused with 400", (((), refused),), "ValueError, 1 asked", "the same request fails again"),
        ("never reached", (((), lost),), "ConnectionError, 3 asked", "three attempts are what was allowed"),
    )
    verdicts = []
    for said, script, expected, why in cases:
        server = ScriptedServer(script)
        yours = f"{_told(answer(server.connect, 3))}, {server.connections} asked"
        verdicts.append(ExerciseVerdict(said, yours, expected, why, yours == expected))
    server = ScriptedServer(((("un", "deux"), None),))
    next(answer(server.connect, 3))
    why = "a stream hands on each piece as it comes"
    verdicts.append(
        ExerciseVerdict(
            "the first piece is taken",
            f"{len(server.asked)} read",
            "1 read",
            why,
            len(server.asked) == 1,
        )
    )
    return Solution("A stream that is not said twice", tuple(verdicts))


def _told(stream: Iterator[str]) -> str:
    got: list[str] = []
    try:
        for piece in stream:
            got.append(piece)
            if len(got) > 9:
                return " ".join([*got, "..."])
    except (ConnectionError, ValueError) as error:
        got.append(type(error).__name__)
    return " ".join(got)


def _says_twice(connect: Callable[[], Iterator[str]], attempts: int) -> Iterator[str]:
    """The client that the exercise begins with."""
    for attempt in range(attempts):
        try:
            yield from connect()
            return
        except Exception:
            if attempt == attempts - 1:
                raise


def _gathers(connect: Callable[[], Iterator[str]], attempts: int) -> Iterator[str]:
    for attempt in range(1, attempts + 1):
        try:
            pieces = list(connect())
        except ConnectionError:
            if attempt == attempts:
                raise
        else:
            yield from pieces
            return


def _never_again(connect: Callable[[], Iterator[str]], attempts: int) -> Iterator[str]:  # noqa: ARG001
    yield from connect()


def _swallows(connect: Callable[[], Iterator[str]], attempts: int) -> Iterator[str]:
    begun = False
    for _ in range(attempts):
        try:
            for piece in connect():
                begun = True
                yield piece
            return
        except ConnectionError:
            if begun:
                return


# Exercise 4: a secret and the address that it would travel to.

IN_PLAIN_TEXT = "in plain text"


def check_exposure(answer: Mapping[str, str], *, connect: Callable[[str], object]) -> Solution:
    """Exercise 4: ``broken`` ``connect`` refuses for its secret, ``repaired`` it takes; both are addresses."""
    title = "A secret in plain text"
    broken, repaired = (str(answer.get(name) or "") for name in ("broken", "repaired"))
    if not broken or not repaired:
        return Solution(title, problem="give an address for 'broken' and one for 'repaired'")
    provoked, left = _refused(connect, broken), _refused(connect, repaired)
    why = "a secret goes to another machine only under TLS"
    return Solution(
        title,
        (
            ExerciseVerdict(
                broken, provoked or "taken", f"UsageError: ... {IN_PLAIN_TEXT}", why, IN_PLAIN_TEXT in provoked
            ),
            ExerciseVerdict(repaired, left or "taken", "taken", why, not left),
        ),
    )


def _refused(connect: Callable[[str], object], url: str) -> str:
    try:
        connect(url)
    except UsageError as error:
        return error.what
    return ""


def _connect(url: str) -> None:
    """What a test connects with: the rule of the product's transports for a secret."""
    parts = urlsplit(url)
    if parts.hostname not in ("127.0.0.1", "localhost") and parts.scheme != "https":
        raise UsageError(f"$TRITON_TOKEN would go to {parts.hostname} {IN_PLAIN_TEXT}", fix="use TLS")


_TLS: Any = {"broken": "http://triton.example:8000", "repaired": "https://triton.example:8443"}
_AGAIN = [number for number, one in enumerate(SITUATIONS, start=1) if one.again]

EXERCISES = (
    Exercise(
        number="06-1",
        title="Again, or not",
        kind="choose",
        minutes=10,
        check=check_again,
        solution=_AGAIN,
        also=(set(_AGAIN),),
        wrong=(
            Wrong([], "no number is named yet"),
            Wrong([*_AGAIN, 8], "another sample would go on with another text"),
            Wrong([*_AGAIN, 4], "the same request fails again"),
            Wrong([*_AGAIN, 3], "twice is one too many"),
            Wrong(_AGAIN[1:], "nothing was sent, so nothing was done"),
            Wrong([11], "there is no situation 11"),
        ),
    ),
    Exercise(
        number="06-2",
        title="Pauses with full jitter",
        kind="compute",
        minutes=10,
        check=check_pauses,
        solution=pause_s,
        also=(lambda retry, base_s, cap_s, dice: min(cap_s, base_s * 2.0**retry) * dice.random(),),
        wrong=(
            Wrong(_no_jitter, "the crowd stays together"),
            Wrong(_equal_jitter, "the crowd stays together"),
            Wrong(_no_cap, "the cap ends the growth"),
            Wrong(_no_growth, "all over 0 to 0.8 s"),
        ),
    ),
    Exercise(
        number="06-3",
        title="A stream that is not said twice",
        kind="mend",
        minutes=15,
        check=check_stream,
        solution=patient_stream,
        wrong=(
            Wrong(_says_twice, "would say again what the caller has"),
            Wrong(_gathers, "hands on each piece as it comes"),
            Wrong(_never_again, "the second attempt repeats nothing"),
            Wrong(_swallows, "three attempts are what was allowed"),
        ),
    ),
    Exercise(
        number="06-4",
        title="A secret in plain text",
        kind="break",
        minutes=5,
        check=check_exposure,
        solution=_TLS,
        also=(_TLS | {"repaired": "http://127.0.0.1:8000"},),
        wrong=(
            Wrong({"broken": "", "repaired": ""}, "give an address"),
            Wrong(_TLS | {"broken": "http://127.0.0.1:8000"}, "yours taken, expected UsageError"),
            Wrong(_TLS | {"broken": "https://triton.example"}, "only under TLS"),
            Wrong(_TLS | {"repaired": "http://triton.example:8443"}, "expected taken"),
        ),
        row="`UsageError: ... would go to ... in plain text`",
        context=lambda: {"connect": _connect},
    ),
)
