"""What serving costs, as formulas. Prices are dated data, throughput is the reader's; every result is a plan.

An instance bills by time and a service by tokens; utilisation, the share of time in which the instance really
produces tokens at its throughput, is what joins the two.
"""

from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from load_testing.results import by_run, read_results, summarize
from playbook.stages import Workspace
from serving_base import measures
from serving_base.errors import UsageError
from serving_base.facts.gpus import instance as known_instance
from serving_base.record import Record
from serving_base.yaml_files import read_yaml

THROUGHPUT_FILE = Path(__file__).parents[1] / "data" / "throughput.yml"
RESULTS = "benchmark/*/results.jsonl"  # what chapter 08 leaves in the workspace, a folder for each time (UTC)


class Throughput(Record):
    """A published throughput of one replica, and the instance taken as that many replicas."""

    instance: str
    model: str
    input_tokens: int
    output_tokens: int
    tokens_per_s_per_replica: float = Field(gt=0)
    gpus_per_replica: int = Field(ge=1)
    source: str
    note: str

    @property
    def tokens_per_s(self) -> float:
        """Output tokens/s of the instance: replicas x tokens/s of one. Upper limit, they share host and network."""
        return known_instance(self.instance).gpus // self.gpus_per_replica * self.tokens_per_s_per_replica


@cache
def published_throughputs(path: Path = THROUGHPUT_FILE) -> tuple[Throughput, ...]:
    """Every published throughput that ships."""
    return tuple(Throughput(**entry) for entry in read_yaml(path))


def measured_tokens_per_s(workspace: Workspace) -> float:
    """Output tokens/s of the best run that chapter 08 left in this workspace last; 0 if it left none."""
    files = sorted(workspace.folder("").glob(RESULTS))
    if not files:
        return 0.0
    return max(summarize(records).output_tokens_per_s for records in by_run(read_results(files[-1])).values())


def known_rates(instance: str, *, measured: float = 0.0, planned: float = 0.0) -> dict[str, float]:
    """What is known of the output tokens/s of ``instance``, by how it is known; the most trustworthy first.

    ``measured`` and ``planned`` are the caller's, 0 for none. :class:`UsageError` when nothing is known.
    """
    published = {entry.instance: entry.tokens_per_s for entry in published_throughputs()}
    rates = {
        "measured by you": measured,
        "planned, keeps the promise": planned,
        "published, latency not looked at": published.get(instance, 0.0),
    }
    if found := {name: rate for name, rate in rates.items() if rate}:
        return found
    raise UsageError(
        f"no throughput is known for {instance}",
        why=f"published: {', '.join(published)}",
        fix="measure it with chapter 08 on that instance and pass your number",
    )


def usd_per_million_tokens(usd_per_hour: float, tokens_per_s: float, utilisation: float = 1.0) -> float:
    """USD per million output tokens = usd_per_hour / (3600 x tokens_per_s x utilisation) x 10^6."""
    _positive(usd_per_hour=usd_per_hour, tokens_per_s=tokens_per_s)
    _share(utilisation)
    return measures.usd_per_million(usd_per_hour, tokens_per_s * utilisation)


def usd_per_million_output_at_token_price(
    usd_per_million_input: float, usd_per_million_output: float, *, input_tokens: float, output_tokens: float
) -> float:
    """USD per million output tokens, their prompts included = output price + input price x input / output tokens.

    What makes a price per token comparable with an instance, whose hours pay for prompts and answers together.
    """
    _positive(output_tokens=output_tokens, usd_per_million_output=usd_per_million_output)
    return usd_per_million_output + usd_per_million_input * input_tokens / output_tokens


def break_even_tokens_per_s(usd_per_hour: float, usd_per_million: float) -> float:
    """Output tokens/s, averaged over all hours, from which an instance is cheaper than ``usd_per_million``.

    = usd_per_hour / 3600 / usd_per_million x 10^6.
    """
    _positive(usd_per_hour=usd_per_hour, usd_per_million=usd_per_million)
    return measures.usd_per_million(usd_per_hour, usd_per_million)  # the same law, solved for the other one


def break_even_utilisation(usd_per_hour: float, tokens_per_s: float, usd_per_million: float) -> float:
    """Utilisation from which an instance of ``tokens_per_s`` is cheaper; above 1 it never is."""
    _positive(tokens_per_s=tokens_per_s)
    return break_even_tokens_per_s(usd_per_hour, usd_per_million) / tokens_per_s


def idle_usd(usd_per_hour: float, hours: float, utilisation: float) -> float:
    """What of ``hours`` of an instance paid for no token = usd_per_hour x hours x (1 - utilisation)."""
    _positive(usd_per_hour=usd_per_hour, hours=hours)
    _share(utilisation)
    return usd_per_hour * hours * (1 - utilisation)


def update_usd(
    usd_per_hour: float,
    instances: int,
    minutes: float,
    strategy: Literal["blue/green", "rolling"] = "blue/green",
    batch_share: float = 0.5,
) -> float:
    """What an endpoint update costs on top of the running fleet, for the ``minutes`` in which both exist.

    blue/green: usd_per_hour x instances x minutes / 60 (the fleet stands twice). rolling: the same, with only one
    batch extra at a time, max(1, instances x batch_share); SageMaker takes 5 to 50 % as a batch.
    """
    _positive(usd_per_hour=usd_per_hour, instances=instances, minutes=minutes)
    _share(batch_share)
    extra = instances if strategy == "blue/green" else max(1, int(instances * batch_share))
    return usd_per_hour * extra * minutes / 60


def time_to_live_usd(usd_per_hour: float, minutes: float) -> float:
    """What an endpoint has cost that is deleted after ``minutes`` = usd_per_hour x minutes / 60."""
    _positive(usd_per_hour=usd_per_hour, minutes=minutes)
    return usd_per_hour * minutes / 60


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise UsageError(f"{name} is {value}", why="the formula divides by it or has no meaning without it")


def _share(value: float) -> None:
    if not 0 < value <= 1:
        raise UsageError(f"a share of {value} is refused", why="it lies above 0 and is at most 1", fix="0.5 means 50 %")
