"""Load tests of a served model: what chapters use, from the modules that do it."""

from playbook.measure.agreement import Agreement, Beside, compare
from playbook.measure.aiperf import Phase, command_line, configuration, profile
from playbook.measure.counters import counted_kinds, counted_when, server_counts
from playbook.measure.latency import (
    LittlesLaw,
    Percentiles,
    Summary,
    Target,
    good_share,
    goodput_per_s,
    highest_good_rate,
    in_flight,
    knee,
    largest_gap,
    littles_law,
    summarize,
    unexplained_ms,
)
from playbook.measure.machine import Cores, MachineRates, measure_machine, on_cores, split_cores
from playbook.measure.plain_client import StreamClient, closed_loop, open_loop
from playbook.measure.results import (
    Load,
    RequestRecord,
    StreamTimeline,
    at_the_same_time,
    by_run,
    new_run,
    read_results,
    timed_stream,
    write_results,
)
from playbook.measure.workload import WorkItem, distinct_texts, make_workload, write_dataset

__all__ = [
    "Agreement", "Beside", "Cores", "LittlesLaw", "Load", "MachineRates", "Percentiles", "Phase", "RequestRecord",
    "StreamClient", "StreamTimeline", "Summary", "Target", "WorkItem", "at_the_same_time", "by_run",
    "closed_loop", "command_line", "compare", "configuration", "counted_kinds", "counted_when",
    "distinct_texts", "good_share", "goodput_per_s", "highest_good_rate", "in_flight", "knee", "largest_gap",
    "littles_law", "make_workload", "measure_machine", "new_run", "on_cores", "open_loop", "profile",
    "read_results", "server_counts", "split_cores", "summarize", "timed_stream", "unexplained_ms",
    "write_dataset", "write_results",
]  # fmt: skip
