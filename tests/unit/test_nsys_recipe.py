"""The nsys commands of stage profile: what they record, and that the chapter can read what they write."""

from itertools import product
from pathlib import PurePosixPath

from each import each
from playbook.profile import Profile, load_profile
from trtllm_check.recipes import Command, commands, shell, tool_arguments
from trtllm_check.recipes.run import START_STOP
from trtllm_check.releases import known_releases, load_release

ENGINES = [name for name in known_releases() if load_release(name).builds_engines]
MATRIX = list(product(("p5", "p5-8b", "g6"), ENGINES))
matrix = each(("profile_name", "release_name"), MATRIX)


def stage(profile_name: str, release_name: str, stage_name: str = "profile") -> tuple[Profile, list[Command]]:
    profile = load_profile(profile_name, release_name)
    return profile, commands(profile, load_release(release_name), stage_name)


def recordings(todo: list[Command]) -> list[Command]:
    return [command for command in todo if "profile" in command.argv]


def option(command: Command, name: str) -> str:
    (value,) = [word.split("=", 1)[1] for word in command.argv if word.startswith(f"{name}=")]
    return value


@matrix
def test_each_phase_is_recorded_from_the_command_of_stage_run(profile_name: str, release_name: str) -> None:
    _, todo = stage(profile_name, release_name)
    _, (plain, _) = stage(profile_name, release_name, "run")
    assert "--use_py_session" not in plain.argv  # what servers run
    prefill, decode = recordings(todo)
    for command in (prefill, decode):
        assert tool_arguments(command) == tool_arguments(plain)
        assert command.where == plain.where and command.tool == "run.py"
    assert {prefill.env[name] for name in START_STOP} == {"0"}
    first, last = map(int, decode.env[START_STOP[0]].split("-"))
    answer = int(plain.argv[plain.argv.index("--max_output_len") + 1])
    assert 0 < first < last < answer  # the run reaches them
    assert last - first + 1 == 10 and "steps=10" in decode.why


@matrix
def test_kernels_of_graphs_are_recorded_and_loading_is_not(profile_name: str, release_name: str) -> None:
    for command in recordings(stage(profile_name, release_name)[1]):
        assert option(command, "--cuda-graph-trace") == "node"
        assert option(command, "--capture-range") == "cudaProfilerApi"
        assert option(command, "--capture-range-end") == "stop"
        assert option(command, "--trace") == "cuda,nvtx"


@matrix
def test_every_rank_has_a_report_of_its_own(profile_name: str, release_name: str) -> None:
    profile, todo = stage(profile_name, release_name)
    for command in recordings(todo):
        argv = command.argv
        if profile.world_size > 1:
            assert argv[:4] == ("mpirun", "--allow-run-as-root", "-n", str(profile.world_size))
            assert argv[4:6] == ("nsys", "profile")
            assert option(command, "--output").endswith("_rank%q{OMPI_COMM_WORLD_RANK}")
            assert "'--output=" in shell(command)  # quoted: the shell leaves it to nsys
        else:
            assert argv[:2] == ("nsys", "profile")
            assert option(command, "--output").endswith("_rank0")


@matrix
def test_tables_are_made_from_the_reports_that_are_recorded(profile_name: str, release_name: str) -> None:
    profile, todo = stage(profile_name, release_name)
    recorded = {
        option(command, "--output").replace("%q{OMPI_COMM_WORLD_RANK}", str(rank))
        for command in recordings(todo)
        for rank in range(profile.world_size)
    }
    tables = [command for command in todo if command.argv[1:2] in (("stats",), ("export",))]
    assert {command.argv[-1].removesuffix(".nsys-rep") for command in tables} <= recorded
    sums = [command for command in tables if command.argv[1] == "stats"]
    assert len(sums) == 2
    assert all(option(command, "--report") == "cuda_gpu_kern_sum" for command in sums)
    assert all(option(command, "--format") == "csv" for command in sums)
    exports = [command for command in tables if command.argv[1] == "export"]
    assert len(exports) == (2 if profile.world_size > 1 else 0)
    assert all(option(command, "--type") == "sqlite" for command in exports)


@matrix
def test_the_folder_is_made_first_and_every_command_says_why(profile_name: str, release_name: str) -> None:
    _, todo = stage(profile_name, release_name)
    assert "command -v nsys" in todo[0].argv[-1]
    assert todo[1].argv[:2] == ("mkdir", "-p")
    folder = todo[1].argv[2]
    assert all(str(PurePosixPath(option(command, "--output")).parent) == folder for command in todo[2:])
    assert all(command.why and command.stage == "profile" for command in todo)
