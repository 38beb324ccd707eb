"""Stage profile: run.py under Nsight Systems, one report per rank, and the tables that chapter 09 reads."""

from dataclasses import replace

from trtllm_check.deployment import Deployment
from trtllm_check.recipes.command import Command, Paths, place
from trtllm_check.recipes.run import ask
from trtllm_check.releases import Release

# Engine iterations to record: number 0 reads the prompts, each later one makes a token per prompt.
ITERATIONS = {"prefill": "0", "decode": "16-25"}
# The second is the older name; with both set the first counts (TensorRT-LLM cudaProfilerUtilsTest.cpp).
START_STOP = ("TLLM_PROFILE_START_STOP", "TLLM_GPTM_PROFILE_START_STOP")
RANK = "%q{OMPI_COMM_WORLD_RANK}"  # nsys writes the variable's value in its place
RECORD = (
    *("nsys", "profile"),
    "--trace=cuda,nvtx",
    "--sample=none",
    "--cuda-graph-trace=node",
    "--capture-range=cudaProfilerApi",
    "--capture-range-end=stop",
    "--force-overwrite=true",
)
HAS_NSYS = (
    "command -v nsys || { echo 'no nsys here: add the package nsight-systems-cli of NVIDIA to the image' >&2; exit 1; }"
)
WHY = {
    "prefill": "The variables name the iterations to record (TensorRT-LLM@1aa45ba6 perf-analysis.md); loading stays "
    "out. Without --cuda-graph-trace=node the kernels of a graph show as one launch. Bring prompts of your own length "
    "with --input_file. A container without nsys needs the package nsight-systems-cli of NVIDIA's repository.",
    "decode": "Ten decode steps in one capture: tables per step need steps=10.",
}


def nsys(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    """Record prefill and decode, one report per rank; then kernel sums (CSV) and launches (SQLite)."""
    folder = f"{paths.root}/{profile.name}/profiles"
    where = place(profile, release)
    commands = [
        Command("profile", "bash", ("bash", "-c", HAS_NSYS), where, why="The recordings need Nsight Systems."),
        Command("profile", "mkdir", ("mkdir", "-p", folder), where, why="nsys makes no folder for a report."),
    ]
    for phase, iterations in ITERATIONS.items():
        report = f"{folder}/{phase}_rank{RANK if profile.world_size > 1 else 0}"
        command = ask(profile, release, paths, profiler=(*RECORD, f"--output={report}"))
        variables = {**command.env, **dict.fromkeys(START_STOP, iterations)}
        commands.append(replace(command, stage="profile", env=variables, why=WHY[phase], left_out=()))
    for phase in ITERATIONS:
        commands.append(_sum(f"{folder}/{phase}_rank0", where))
        if profile.world_size > 1:
            commands.append(_launches(f"{folder}/{phase}_rank1", where))
    return commands


def _sum(report: str, where: str) -> Command:
    argv = ("nsys", "stats", "--report=cuda_gpu_kern_sum", "--format=csv", f"--output={report}", f"{report}.nsys-rep")
    why = f"Writes {report}_cuda_gpu_kern_sum.csv, a row per kernel name, and {report}.sqlite, a row per launch."
    return Command("profile", "nsys", argv, where, why=why)


def _launches(report: str, where: str) -> Command:
    output = f"--output={report}.sqlite"
    argv = ("nsys", "export", "--type=sqlite", "--force-overwrite=true", output, f"{report}.nsys-rep")
    why = "The second rank's launches: an all-reduce took as long as the shorter of the two ranks' kernels."
    return Command("profile", "nsys", argv, where, why=why)
