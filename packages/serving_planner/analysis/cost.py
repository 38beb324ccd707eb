"""What tokens cost in money and energy. Prices are dated inputs; energy is an upper bound."""

from serving_base.errors import UsageError
from serving_base.facts.prices import price
from serving_planner.case import Case
from serving_planner.planned import PriceUsed

MILLION = 1_000_000
SECONDS_PER_HOUR = 3600


def price_of(case: Case) -> PriceUsed | None:
    """The hourly price of the machine: the case's own, else the dated one of its instance; None if nobody knows it."""
    if case.usd_per_hour is not None:
        return PriceUsed(usd_per_hour=case.usd_per_hour, source="given")
    if case.instance is None:
        return None
    try:
        known = price(case.instance.strip().lower())
    except UsageError:
        return None
    note = f"{known.option}, {known.region}; {known.note}"
    return PriceUsed(usd_per_hour=known.usd_per_hour, source=known.source, date=known.date, note=note)


def usd_per_million(usd_per_hour: float | None, tokens_per_s: float) -> float | None:
    """Dollars for a million tokens at that rate: price / 3600 / rate x 1e6. None without a price or a rate."""
    if usd_per_hour is None or tokens_per_s <= 0:
        return None
    return usd_per_hour / SECONDS_PER_HOUR / tokens_per_s * MILLION


def joules_per_token_at_most(case: Case, tokens_per_s: float) -> float | None:
    """Board power limit x GPUs / rate: an upper bound of the GPUs' share, as no board draws more than its limit.

    None where the power is not known. The host, the fans and the cooling are not in it.
    """
    power_w = case.hardware.power_w * case.gpu_count
    return power_w / tokens_per_s if power_w and tokens_per_s > 0 else None
