"""What a number may be: ``least`` and ``most`` belong to the range, ``above`` and ``under`` do not."""

from collections.abc import Mapping

Bound = Mapping[str, float]


def is_within(number: float, bound: Bound) -> bool:
    return (
        number >= bound.get("least", number)
        and number <= bound.get("most", number)
        and ("above" not in bound or number > bound["above"])
        and ("under" not in bound or number < bound["under"])
    )


def range_of(bound: Bound) -> str:
    """The bounds in words, the lower one first."""
    low = f"above {bound['above']}" if "above" in bound else f"at least {bound['least']}"
    if "most" in bound:
        return f"{low} and at most {bound['most']}"
    return f"{low} and below {bound['under']}" if "under" in bound else low
