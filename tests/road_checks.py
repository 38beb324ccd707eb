"""What holds of every road of the GPU lane, however it was walked: with the chapters, or stage by stage."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from cpu_serving.checkpoint import checkpoint_tensors
from gpu_courses import TOKEN, Road
from model_server.triton.repository import check_repository
from playbook.profile import load_profile
from stand_in_docker import docker_parser
from trtllm_check.releases import build_parser, load_release

ROAD = ("quantize.py", "trtllm-build", "run.py", "fill_template.py", "launch_triton_server.py")


def option(argv: list[str], name: str) -> list[str]:
    """Every value of an option that may be repeated."""
    return [value for flag, value in pairwise(argv) if flag == name]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


class RoadChecks:
    """A module that inherits them has a fixture ``road``."""

    def test_the_reference_is_that_of_the_container(self, road: Road) -> None:
        (call,) = road.machine.calls("reference_run.py")
        assert call["place"] == load_release(road.release).image
        assert (road.folder / "reference" / "manifest.json").is_file()

    def test_the_checkpoint_has_the_models_ranks_shapes_and_bytes(self, road: Road) -> None:
        profile = load_profile(road.profile_name, road.release)
        last = f"rank{profile.world_size - 1}.safetensors"
        shapes = {t.name: (t.dtype, t.shape) for t in checkpoint_tensors(road.folder / "checkpoint") if t.file == last}
        expected = {"p5": ("transformer.layers.79", (1280, 8192)), "p5-8b": ("transformer.layers.31", (6144, 4096))}
        layer, qkv = expected[road.profile_name]
        assert shapes[f"{layer}.attention.qkv.weight"] == ("F8_E4M3", qkv)
        sizes = [path.stat().st_size for path in (road.folder / "checkpoint").glob("rank*.safetensors")]
        assert len(sizes) == profile.world_size
        assert sum(sizes) == pytest.approx(profile.shape.weight_bytes("fp8"), rel=0.01)

    def test_the_containers_get_what_they_need(self, road: Road) -> None:
        runs = [call["argv"] for call in road.machine.calls("docker") if call["argv"][0] == "run"]
        image = load_release(road.release).image
        assert len(runs) >= 8
        for argv in runs:
            given = docker_parser().parse_args(argv[1:])
            assert given.image == image
            assert (given.rm, given.init, given.gpus, given.shm_size) == (True, True, "all", "20g")
            assert given.ulimit == ["memlock=-1", "stack=67108864"]
            assert given.volume == [f"{road.workspace}:{road.workspace}"]
            assert re.fullmatch(r"playbook-[\w-]+-[0-9a-f]{12}", given.name)
        assert len({option(argv, "--name")[0] for argv in runs}) == len(runs)

    def test_every_tool_was_called_as_its_parser_wants(self, road: Road) -> None:
        """The stand-ins refuse what the parser refuses; this says that each tool did run, and in the container."""
        release = load_release(road.release)
        calls = [call for call in road.machine.calls() if call["program"] in release.tools]
        order = [name for name in dict.fromkeys(call["program"] for call in calls) if name in ROAD]
        assert order == list(ROAD)
        for call in calls:
            build_parser(release, call["program"]).parse_args(call["argv"])
            assert call["place"] in (release.image, release.server_image)
            assert not call["token"]  # nothing but the download needs the hub's token
        (download,) = road.machine.calls(release.download.argv[0])
        assert download["token"]
        ranks = load_profile(road.profile_name).world_size
        asked = [call["argv"] for call in road.machine.calls("mpirun") if "/run.py" in " ".join(call["argv"])]
        assert bool(asked) == (ranks > 1)
        assert all(argv[:3] == ["--allow-run-as-root", "-n", str(ranks)] for argv in asked)
        servers = [call["argv"] for call in road.machine.calls("mpirun") if "tritonserver" in " ".join(call["argv"])]
        assert servers
        assert all(sum(word.endswith("/tritonserver") for word in argv) == ranks for argv in servers)

    def test_scripts_come_from_clones_at_the_tag_where_the_container_lacks_them(self, road: Road) -> None:
        release = load_release(road.release)
        clones = road.machine.calls("git")
        lacking = {tool.repo for tool in release.tools.values() if tool.repo and not tool.container_path}
        assert {option(call["argv"], "--branch")[0] for call in clones} == {release.checkouts[n].tag for n in lacking}
        assert len(clones) == len(lacking)
        assert all(call["skip_lfs"] == "1" for call in clones)

    def test_the_repository_is_filled_and_valid(self, road: Road) -> None:
        repository = road.folder / "repository"
        findings = check_repository(repository)
        assert [finding for finding in findings if finding.severity == "error"] == []
        config = (repository / "tensorrt_llm" / "config.pbtxt").read_text(encoding="utf-8")
        assert f'string_value: "{road.folder}/engine"' in config
        assert f"max_batch_size: {load_profile(road.profile_name).max_batch_size}" in config
        preprocessing = (repository / "preprocessing" / "config.pbtxt").read_text(encoding="utf-8")
        assert f'string_value: "{road.folder}/model"' in preprocessing

    def test_the_record_says_what_ran_and_how_it_ended(self, road: Road) -> None:
        logs = road.folder / "logs"
        record = road.commands()
        stages_run = list(dict.fromkeys(entry["stage"] for entry in record))
        in_order = ["fetch", "quantize", "build", "run", "fill", "launch"]
        assert [stage for stage in stages_run if stage in in_order] == in_order
        for entry in record:
            assert entry["seconds"] > 0
            assert (logs / entry["log"]).is_file()
            assert entry["argv"][0] == ("git" if entry["stage"] == "install" else "docker")
        docker = [["docker", *call["argv"]] for call in road.machine.calls("docker") if call["argv"][0] == "run"]
        assert [entry["argv"] for entry in record if entry["argv"][0] == "docker"] == docker
        assert TOKEN not in (logs / "commands.jsonl").read_text(encoding="utf-8")

    def test_the_server_is_gone(self, road: Road) -> None:
        """Its container got a signal, and its client was not left to be killed."""
        # Chapter 05's: nobody kills it.
        launch = next(entry for entry in road.commands() if entry["stage"] == "launch")
        name = option(launch["argv"], "--name")[0]
        assert {"signal", "docker"} <= {
            c["program"] for c in road.machine.calls() if name in (c.get("name"), *c["argv"])
        }
        alive = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(road.workspace).encode() in read(path)]
        assert alive == []
