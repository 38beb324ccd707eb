"""What a chapter may see of parallelism: a model over processes, its cuts and bytes, several machines, exercises."""

from course_exercises.parallelism import broken_manifests
from cpu_serving.parallel.cuts import CUTS, MISTAKES, RankLayout
from cpu_serving.parallel.ranks import first_to_differ, held_out_texts, largest_difference, open_ranks
from cpu_serving.parallel.wire import all_reduce_bytes, layer_sums_bytes
from gpu_measurements.all_reduce import ORIGIN, link_us, measured_all_reduces
from serving_base.facts.fit import fits
from serving_base.facts.gpus import instance, known_gpu
from trtllm_check.recipes.kubernetes import (
    WHY_ONE_INSTANCE,
    WHY_SOURCE,
    engines,
    manifest_problems,
    manifests,
    node_group,
    rendered,
    sagemaker_instances,
)
from trtllm_check.releases import load_release
from trtllm_check.releases.history import ranges, with_flag

__all__ = [
    "CUTS",
    "MISTAKES",
    "ORIGIN",
    "WHY_ONE_INSTANCE",
    "WHY_SOURCE",
    "RankLayout",
    "all_reduce_bytes",
    "broken_manifests",
    "engines",
    "first_to_differ",
    "fits",
    "held_out_texts",
    "instance",
    "known_gpu",
    "largest_difference",
    "layer_sums_bytes",
    "link_us",
    "load_release",
    "manifest_problems",
    "manifests",
    "measured_all_reduces",
    "node_group",
    "open_ranks",
    "ranges",
    "rendered",
    "sagemaker_instances",
    "with_flag",
]
