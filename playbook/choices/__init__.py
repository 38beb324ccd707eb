"""What to choose after the course: options side by side, what each costs, what bills on, and cleaning up."""

from playbook.billing import Account, RunningEndpoint
from playbook.choices.cleanup import ArtifactRow, Leftover, artifacts, leftovers, remove, running, show, show_commands
from playbook.choices.costs import (
    Throughput,
    break_even_tokens_per_s,
    break_even_utilisation,
    idle_usd,
    known_rates,
    measured_tokens_per_s,
    published_throughputs,
    time_to_live_usd,
    update_usd,
    usd_per_million_output_at_token_price,
    usd_per_million_tokens,
)
from playbook.choices.options import Cell, Option, Question, Recommendation, compare, options, questions, recommend
from playbook.claims import article_claims
from serving_base.facts.prices import licence_fee, price, prices, token_price

__all__ = [
    "Account",
    "ArtifactRow",
    "Cell",
    "Leftover",
    "Option",
    "Question",
    "Recommendation",
    "RunningEndpoint",
    "Throughput",
    "article_claims",
    "artifacts",
    "break_even_tokens_per_s",
    "break_even_utilisation",
    "compare",
    "idle_usd",
    "known_rates",
    "leftovers",
    "licence_fee",
    "measured_tokens_per_s",
    "options",
    "price",
    "prices",
    "published_throughputs",
    "questions",
    "recommend",
    "remove",
    "running",
    "show",
    "show_commands",
    "time_to_live_usd",
    "token_price",
    "update_usd",
    "usd_per_million_output_at_token_price",
    "usd_per_million_tokens",
]
