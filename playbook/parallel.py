"""What a chapter may see of parallelism: a model over processes, its cuts and bytes, several machines, exercises."""

from course_exercises.parallelism import broken_manifests as broken_manifests
from cpu_serving.parallel.cuts import CUTS as CUTS
from cpu_serving.parallel.cuts import MISTAKES as MISTAKES
from cpu_serving.parallel.cuts import RankLayout as RankLayout
from cpu_serving.parallel.ranks import first_to_differ as first_to_differ
from cpu_serving.parallel.ranks import held_out_texts as held_out_texts
from cpu_serving.parallel.ranks import largest_difference as largest_difference
from cpu_serving.parallel.ranks import open_ranks as open_ranks
from cpu_serving.parallel.wire import all_reduce_bytes as all_reduce_bytes
from cpu_serving.parallel.wire import layer_sums_bytes as layer_sums_bytes
from gpu_measurements.hopper import ALL_REDUCE_ORIGIN
from gpu_measurements.hopper import link_us as link_us
from gpu_measurements.hopper import measured_all_reduces as measured_all_reduces
from serving_base.facts.fit import fits as fits
from serving_base.facts.gpus import instance as instance
from serving_base.facts.gpus import known_gpu as known_gpu
from trtllm_check.recipes.kubernetes import WHY_ONE_INSTANCE as WHY_ONE_INSTANCE
from trtllm_check.recipes.kubernetes import WHY_SOURCE as WHY_SOURCE
from trtllm_check.recipes.kubernetes import engines as engines
from trtllm_check.recipes.kubernetes import manifest_problems as manifest_problems
from trtllm_check.recipes.kubernetes import manifests as manifests
from trtllm_check.recipes.kubernetes import node_group as node_group
from trtllm_check.recipes.kubernetes import rendered as rendered
from trtllm_check.recipes.kubernetes import sagemaker_instances as sagemaker_instances
from trtllm_check.releases import load_release as load_release
from trtllm_check.releases.history import ranges as ranges
from trtllm_check.releases.history import with_flag as with_flag

ORIGIN = ALL_REDUCE_ORIGIN
