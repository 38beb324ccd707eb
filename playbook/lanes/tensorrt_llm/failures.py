"""Known failures of the tools: what their output looks like, what it means, and what to do.

TRT = NVIDIA/TensorRT-LLM, BE = triton-inference-server/tensorrtllm_backend, in the sources.
"""

import re
from dataclasses import dataclass

KILLED = (137, -9)


@dataclass(frozen=True)
class Finding:
    """A failure that we know. ``pattern`` is searched in the command's output, the more specific ones first."""

    rule: str
    pattern: str
    cause: str
    fix: str
    source: str


FINDINGS = (
    Finding(
        "unfilled-placeholder",
        r"Expected integer or identifier, got: \$",
        "a `${...}` was left in a number, a boolean or a data type of a config.pbtxt",
        "fill the repository again (playbook run 05); the release's data lists every typed variable",
        "BE#250, BE#393, triton-inference-server/server#8592",
    ),
    Finding(
        "version-mismatch",
        r"(?i)version tag does not match|engine plan file is not compatible|serialized engine version"
        r"|expecting library version",
        "the engine was built by another TensorRT than the one that loads it",
        "build and serve in the same container: remove the engine and run chapter 03 again with this release",
        "BE#190, BE#531, TRT#1838",
    ),
    Finding(
        "flag-of-another-release",
        r"error: unrecognized arguments|error: argument .*invalid choice|error: argument .*expected",
        "the command uses a flag or a value that this release does not have",
        "set `release` to the one inside the container (the install commands check it)",
        "TRT PR#2008, TRT#2143",
    ),
    Finding(
        "world-size",
        r"mpiSize|MPI size .*does not match|world[_ ]size.*(does not|must|!=)",
        "the number of ranks is not the engine's tp x pp",
        "start as many ranks as the profile's tp x pp; rebuild the engine if tp or pp changed",
        "BE#33, TRT PR#1700",
    ),
    Finding(
        "attention-flags",
        r"(?i)RuntimeError:.*paged context fmha|fp8 context fmha (needs|requires|must)",
        "FP8 context FMHA and paged context FMHA need FP8 weights and an FP8 KV cache together",
        "quantize with qformat: fp8 and kv_cache_dtype: fp8, and build again",
        "TRT#2125, TRT#2447",
    ),
    Finding(
        "gated-model",
        r"GatedRepoError|gated repo|Access to model .* is restricted|40[13] Client Error",
        "Hugging Face refused the model: the licence is not accepted, or the token is missing or wrong",
        "accept the licence on the model's page, export HF_TOKEN with read access, and run again",
        "huggingface.co/docs/hub/models-gated",
    ),
    Finding(
        "calibration-data",
        r"(?i)(DatasetNotFoundError|ConnectionError|FileNotFoundError|BuilderConfig|Couldn't (find|reach))"
        r".*cnn_dailymail|cnn_dailymail.*(doesn't exist|cannot be accessed)",
        "the calibration texts could not be loaded",
        "give the machine access to huggingface.co, or a local copy whose path contains cnn_dailymail",
        "TRT#5247",
    ),
    Finding(
        "gpu-memory",
        r"CUDA out of memory|OutOfMemoryError|CUDA error: out of memory|cudaErrorMemoryAllocation"
        r"|cudaMalloc.*out of memory|CUDNN_STATUS_ALLOC_FAILED",
        "the GPUs ran out of memory; quantizing 70B alone peaks above 210 GB",
        "quantize 70B on at least four 80 GB GPUs; build or serve with a smaller max_num_tokens, max_batch_size or "
        "kv_cache_free_gpu_mem_fraction, or a larger tp; see that nothing else is on the GPUs (nvidia-smi)",
        "TRT v0.16 examples/llama/README.md:670-672, TRT#1849, BE#625",
    ),
    Finding(
        "shared-memory",
        r"Bus error|/dev/shm.*No space left|No space left.*/dev/shm|unable to (initialize|increase) shared memory",
        "the container's /dev/shm is too small for the ranks' or the server's buffers",
        "start the container with a larger --shm-size or with --ipc=host",
        "BE#576, BE r26.04 docs/encoder_decoder.md:28",
    ),
    Finding(
        "disk-full",
        r"No space left on device",
        "the disk is full",
        "free space or use a workspace on a larger disk; what was half written has been removed",
        "errno 28, ENOSPC",
    ),
    Finding(
        "gpu-architecture",
        r"no kernel image is available|(?i:incompatible.*compute capability)",
        "the engine was built for another GPU architecture",
        "build on the same kind of GPU that serves: remove the engine and run chapter 03 here",
        "deepjavalibrary/djl-serving@d21927c4 trtllm_aot_tutorial.md",
    ),
    Finding(
        "driver",
        r"could not select device driver|nvidia-container-cli|Failed to initialize NVML"
        r"|CUDA driver version is insufficient|unsatisfied condition: cuda",
        "the container does not get at the GPUs: no NVIDIA container toolkit, or a driver too old for its CUDA",
        "install nvidia-container-toolkit and restart docker, or update the driver; nvidia-smi shows the present one",
        "docs.nvidia.com/datacenter/cloud-native/container-toolkit",
    ),
    Finding(
        "docker",
        r"Cannot connect to the Docker daemon|permission denied while trying to connect to the Docker",
        "docker does not run, or this user may not use it",
        "start docker, and add the user to the group docker (then log in again)",
        "docs.docker.com/engine/install/linux-postinstall",
    ),
    Finding(
        "image",
        r"manifest unknown|manifest for .* not found|pull access denied",
        "the registry does not have this image",
        "see the release's data for the images that exist, and check the network",
        "triton-inference-server/server@e1db8a60 docs/introduction/compatibility.md",
    ),
)
OUT_OF_HOST_MEMORY = Finding(
    "killed",
    "",
    "the kernel or a person killed it, most often because the machine's memory ran out while weights were loaded",
    "look at `dmesg` for `Out of memory`; use an instance with more memory, or end what else runs on it",
    "TRT#1331, BE#377",
)


def diagnose(output: str, returncode: int) -> Finding | None:
    """The known failure that this output shows, or None."""
    for finding in FINDINGS:
        if re.search(finding.pattern, output):
            return finding
    return OUT_OF_HOST_MEMORY if returncode in KILLED else None
