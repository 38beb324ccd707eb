"""Where a step's GPU time goes, from any profiler's file: the functions of chapter 09."""

from gpu_measurements.captures import (
    hopper_capture,
    hopper_captures,
    hopper_kernel_sum,
    hopper_machine,
    hopper_origin,
    hopper_table,
)
from gpu_measurements.sources import classify, patterns, read_capture, reading
from gpu_measurements.tables import (
    StepTables,
    busy_us,
    by_class,
    by_group,
    compare,
    kernel_table,
    labelled,
    read_ranks,
    readable,
    shorter_all_reduces,
    unclassified_share,
)

__all__ = [
    "StepTables",
    "busy_us",
    "by_class",
    "by_group",
    "classify",
    "compare",
    "hopper_capture",
    "hopper_captures",
    "hopper_kernel_sum",
    "hopper_machine",
    "hopper_origin",
    "hopper_table",
    "kernel_table",
    "labelled",
    "patterns",
    "read_capture",
    "read_ranks",
    "readable",
    "reading",
    "shorter_all_reduces",
    "unclassified_share",
]
