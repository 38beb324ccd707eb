"""What the check of an exercise says: yours, expected and why.

A stub raises ``NotImplementedError``; that is reported loudly and stops nothing, so a course that nobody solves still
runs to its end. Any solution that gives the right values passes, whatever it looks like.
"""

from dataclasses import dataclass

NOT_SOLVED = "✗ NOT SOLVED YET"


@dataclass(frozen=True)
class ExerciseVerdict:
    """One question of an exercise: what it gave, what was expected, and the reason."""

    given: str
    yours: str
    expected: str
    why: str
    right: bool


@dataclass(frozen=True)
class Solution:
    """All verdicts of one exercise, or the reason that there are none."""

    title: str
    verdicts: tuple[ExerciseVerdict, ...] = ()
    problem: str = ""

    @property
    def solved(self) -> bool:
        return not self.problem and bool(self.verdicts) and all(verdict.right for verdict in self.verdicts)

    def __str__(self) -> str:
        if self.problem:
            return f"{NOT_SOLVED}: {self.title}: {self.problem}"
        right = sum(verdict.right for verdict in self.verdicts)
        head = f"{'✓ solved' if self.solved else NOT_SOLVED}: {self.title}: {right} of {len(self.verdicts)} right"
        wrong = [f"  {v.given}: yours {v.yours}, expected {v.expected}. {v.why}" for v in self.verdicts if not v.right]
        return "\n".join([head, *wrong])
