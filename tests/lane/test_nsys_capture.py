"""Chapter 09's capture on the GPU lane: the recipe run in a container, and the tables that its files give."""

import json
import os
from pathlib import Path

import pytest

from gpu_measurements import kernels
from gpu_serving.nsys import record_kernels
from playbook.lanes.tensorrt_llm import profiling
from playbook.profile import Profile, load_profile
from serving_base.facts.models import model_shape
from sparse_models import write_model
from stand_in_nsys import parser
from stand_ins import Machine
from tiny_llama import MODEL_DIR
from trtllm_check.recipes import Paths, commands
from trtllm_check.releases import known_releases, load_release

ENGINES = [name for name in known_releases() if load_release(name).builds_engines]


@pytest.fixture
def machine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    installed = Machine(tmp_path / "machine", getattr(request, "param", "1.2.1")).install()
    monkeypatch.setenv("PATH", f"{installed.programs}{os.pathsep}{os.environ['PATH']}")
    return installed


def engine_of(profile: Profile, root: Path, *, fp8_fmha: str = "disable") -> Path:
    """What of an engine's folder and of a model nsys's stand-in and run.py's read."""
    folder = root / profile.name / "engine"
    folder.mkdir(parents=True)
    mapping = {"world_size": profile.world_size, "tp_size": profile.tp, "pp_size": profile.pp}
    layers, build = profile.shape.num_hidden_layers, {"plugin_config": {"use_fp8_context_fmha": fp8_fmha}}
    config = {"mapping": mapping, "num_hidden_layers": layers, "quantization": {"quant_algo": "FP8"}}
    (folder / "config.json").write_text(
        json.dumps({"pretrained_config": config, "build_config": build}), encoding="utf-8"
    )
    model = root / profile.name / "model"
    model.mkdir()
    write_model(model, model_shape("llama-3-8b-instruct"), MODEL_DIR, {})
    return folder


@pytest.mark.parametrize(("machine", "name"), [("0.12.0", "p5"), ("1.2.1", "p5-8b")], indirect=["machine"])
def test_a_prefill_and_ten_decode_steps_become_tables(machine: Machine, tmp_path: Path, name: str) -> None:
    profile, root = load_profile(name, machine.release), tmp_path / "workspace"
    recording = record_kernels(profile, engine_of(profile, root), root=root)
    assert not recording.missing
    assert {phase: entry.steps for phase, entry in recording.phases.items()} == {"prefill": 1, "decode": 10}
    layers = profile.shape.num_hidden_layers
    for phase, entry in recording.phases.items():
        table = kernels.kernel_table(kernels.read_ranks(entry.files), phase=phase, steps=entry.steps)  # type: ignore[arg-type]
        calls = kernels.by_class(table)["calls"] / entry.steps
        attention = {"prefill": "context_attention", "decode": "decode_attention"}[phase]
        assert (calls["gemm"], calls["lm_head"], calls[attention]) == (4 * layers, 1, layers)
        assert ("all_reduce" in calls) is (profile.world_size > 1)
        assert kernels.unclassified_share(table) == 0
        waited = kernels.read_ranks(entry.files[:1]), kernels.read_ranks(entry.files)
        times = [frame["duration_us"].sum() for frame in waited if "duration_us" in frame]
        assert profile.world_size == 1 or times[0] - times[1] == pytest.approx(500), "the wait for the other rank"


def test_a_second_recording_reads_no_older_export(machine: Machine, tmp_path: Path) -> None:
    profile, root = load_profile("p5-8b", machine.release), tmp_path / "workspace"
    engine = engine_of(profile, root)
    record_kernels(profile, engine, root=root)
    older = root / profile.name / "profiles" / "decode_rank0.sqlite"
    older.write_bytes(b"an export of another engine")
    recording = record_kernels(profile, engine, root=root)
    assert not kernels.read_ranks(recording.phases["decode"].files).empty


def test_an_image_without_nsys_says_what_to_build_and_the_built_one_is_used(machine: Machine, tmp_path: Path) -> None:
    profile, root = load_profile("p5-8b", machine.release), tmp_path / "workspace"
    engine = engine_of(profile, root)
    image = load_release(machine.release).image
    nsys = machine.container / "nsys"
    nsys.rename(machine.folder / "nsys")
    recording = record_kernels(profile, engine, root=root)
    assert not recording.phases and f"docker build --tag {image}-nsys" in recording.missing
    assert f"FROM {image}\n" in recording.missing and "nsight-systems-cli" in recording.missing
    assert not machine.calls("run.py"), "no engine is loaded for nothing"
    (machine.folder / "nsys").rename(nsys)
    facts = machine.facts()
    (machine.folder / "facts.json").write_text(json.dumps({**facts, "images": [f"{image}-nsys"]}), encoding="utf-8")
    assert record_kernels(profile, engine, root=root).phases
    recorded = [call["argv"] for call in machine.calls("docker") if "stats" in call["argv"]]
    assert recorded and all(f"{image}-nsys" in argv for argv in recorded)


def test_the_engine_stands_beside_the_recorded_ones(machine: Machine, tmp_path: Path) -> None:
    profile, root = load_profile("p5-8b", machine.release), tmp_path / "workspace"
    folder = engine_of(profile, root, fp8_fmha="enable")
    found = profiling.step_tables(lambda _: folder, profile=profile, root=root)
    assert list(found.tables["decode"]) == ["this machine", "H200 BF16", "H200 FP8"]
    assert not [column for column in found.compare("decode") if not str(column).endswith(" share")], "other loads"
    assert kernels.reading(found.names()["decode_attention"])["precision"] == "the name does not tell"
    assert kernels.reading(found.names()["context_attention"])["in FP8"] == "operands", "the flag's kernel"
    (machine.container / "nsys").unlink()
    without = profiling.step_tables(lambda _: folder, profile=profile, root=root)
    assert list(without.tables["decode"]) == ["H200 BF16", "H200 FP8"]
    assert not without.own and "docker build" in without.remark


@pytest.mark.parametrize("release", ENGINES)
@pytest.mark.parametrize("name", ["p5", "p5-8b"])
def test_nsys_takes_every_option_of_the_recipe(name: str, release: str) -> None:
    profile = load_profile(name, release)
    todo = commands(profile, load_release(release), "profile", Paths.default(profile))
    called = [command.argv[command.argv.index("nsys") + 1 :] for command in todo if "nsys" in command.argv]
    assert len(called) >= 4
    for argv in called:
        parser().parse_args(argv)
