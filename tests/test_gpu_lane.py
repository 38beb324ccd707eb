"""The GPU lane executes the recipes, with stand-ins on PATH that take what the real tools take."""

import json
import os
import shutil
import struct
import sys
import textwrap
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest

from playbook import stages
from playbook.errors import CommandFailed, EnvironmentProblem, PlaybookError, UsageError
from playbook.lanes import tensorrt_llm
from playbook.lanes.tensorrt_llm import hub
from playbook.lanes.tensorrt_llm.execute import execute, execute_all
from playbook.lanes.tensorrt_llm.failures import FINDINGS, diagnose
from playbook.profile import Profile, load_profile
from playbook.recipes import Command, Paths

REPOSITORY = Path(__file__).parents[1]
TOKEN = "hf_verysecrettoken"

# Takes `docker run ... IMAGE tool ...` or the tool itself, refuses what the release's parser refuses, and writes
# the files that the real tool writes.
STAND_IN = """
import os, shutil, string, sys
from pathlib import Path
sys.path.insert(0, {repository!r})
from playbook.releases import check_arguments, load_release

release = load_release({release!r})
words = sys.argv[1:]
if Path(sys.argv[0]).name == "docker":
    words = words[words.index(release.image) + 1:]
else:
    words = [Path(sys.argv[0]).name, *words]
with open({calls!r}, "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
if os.environ.get("FAIL_WITH"):
    print(os.environ["FAIL_WITH"], os.environ.get("HF_TOKEN", ""))
    sys.exit(int(os.environ.get("FAIL_CODE", "1")))
tool = next((name for word in words for name in release.tools if Path(word).name == name), words[0])
rest = words[[Path(word).name for word in words].index(tool) + 1:]
given = check_arguments(release, tool, rest) if tool in release.tools else None

def ranks(folder, count, suffix):
    for rank in range(count):
        (Path(folder) / f"rank{{rank}}.{{suffix}}").write_bytes(b"weights")
    (Path(folder) / "config.json").write_text("{{}}")

if tool in ("quantize.py", "convert_checkpoint.py"):
    ranks(given.output_dir, given.tp_size * given.pp_size, "safetensors")
elif tool == "trtllm-build":
    ranks(given.output_dir, given.workers, "engine")
elif tool == "run.py":
    for number, prompt in enumerate(given.input_text):
        print(f'Input [Text {{number}}]: "{{prompt}}"')
        print(f'Output [Text {{number}} Beam 0]: "un, deux,')
        print(f'said "{{given.max_output_len}}""')
elif tool == "cp":
    for name, model in release.templates.models.items():
        folder = Path(rest[-1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.pbtxt").write_text("\\n".join(f"{{v}}: ${{{{{{v}}}}}}" for v in model.variables))
elif tool == "fill_template.py":
    path, pairs = Path(given.file_path), dict(p.split(":") for p in given.substitutions.split(","))
    if not os.environ.get("FILLS_NOTHING"):
        path.write_text(string.Template(path.read_text()).safe_substitute(pairs))
elif tool in ("hf", "huggingface-cli"):
    folder = Path(rest[rest.index("--local-dir") + 1])
    (folder / ".cache").mkdir(exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes(b"x" * 10)
print("done", tool)
"""
GIT = """
import sys
from pathlib import Path
words = sys.argv[1:]
if words[0] == "clone":
    Path(words[2]).mkdir(parents=True)
else:
    examples = Path(words[1]) / words[-1] / "examples"
    examples.mkdir(parents=True)
"""


def install_program(folder: Path, name: str, source: str) -> None:
    program = folder / name
    program.write_text(f"#!{sys.executable}\n{textwrap.dedent(source)}", encoding="utf-8")
    program.chmod(0o755)


@pytest.fixture(params=["0.12.0", "1.2.1"])
def profile(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """Profile p5 of each release, on a machine whose docker and git are stand-ins."""
    source = STAND_IN.format(repository=str(REPOSITORY), release=request.param, calls=str(tmp_path / "calls"))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("docker", "trtllm-build"):
        install_program(programs, name, source)
    install_program(programs, "git", GIT)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return load_profile("p5", request.param)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


def folder(root: Path, name: str) -> Path:
    path = root / "p5" / name
    path.mkdir(parents=True)
    return path


def test_the_road_from_checkpoint_to_filled_repository(
    profile: Profile, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, checkpoint, engine, repository = (folder(root, n) for n in ("model", "checkpoint", "engine", "repository"))
    (quantized,) = tensorrt_llm.quantize(profile, model, checkpoint, root=root)
    assert len(list(checkpoint.glob("rank*.safetensors"))) == 8
    tensorrt_llm.build(profile, checkpoint, engine, root=root)
    assert len(list(engine.glob("rank*.engine"))) == 8
    answers = tensorrt_llm.generate(profile, engine, ["count", "again"], 17, root=root)
    assert answers == ['un, deux,\nsaid "17"'] * 2
    tensorrt_llm.fill(profile, engine, repository, root=root)
    config = (repository / "tensorrt_llm" / "config.pbtxt").read_text(encoding="utf-8")
    assert f"engine_dir: {engine}" in config
    assert "decoupled_mode: true" in config

    shown = capsys.readouterr().out
    assert shown.count("$ docker run --rm") >= 8
    assert "quantize.py: exit code 0 after" in shown
    log = quantized.log_path.read_text(encoding="utf-8")
    assert quantized.log_path == root / "p5" / "logs" / "quantize-0-quantize.log"
    assert "done quantize.py" in log


def test_sixteen_bits_are_converted_not_quantized(profile: Profile, root: Path) -> None:
    baseline = profile.model_copy(update={"qformat": "full_prec", "kv_cache_dtype": "auto"})
    (execution,) = tensorrt_llm.quantize(baseline, folder(root, "model"), folder(root, "checkpoint"), root=root)
    assert execution.command.tool == "convert_checkpoint.py"


def test_scripts_are_cloned_once_and_only_where_the_container_lacks_them(
    profile: Profile, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, checkpoint = folder(root, "model"), folder(root, "checkpoint")
    tensorrt_llm.quantize(profile, model, checkpoint, root=root)
    clones = capsys.readouterr().out.count("git clone")
    assert clones == (1 if profile.release == "0.12.0" else 0)
    tensorrt_llm.quantize(profile, model, checkpoint, root=root)
    assert "git clone" not in capsys.readouterr().out


def test_a_broken_clone_is_completed(profile: Profile, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if profile.release == "1.2.1":
        pytest.skip("needs no clone")
    (root / "sources" / "tensorrtllm_backend-0.12.0").mkdir(parents=True)
    tensorrt_llm.build(profile, folder(root, "checkpoint"), folder(root, "engine"), root=root)
    shown = capsys.readouterr().out
    assert "git clone" not in shown
    assert "submodule update" in shown


@pytest.mark.parametrize(
    ("output", "code", "rule", "advice"),
    [
        ("torch.cuda.OutOfMemoryError: CUDA out of memory.", 1, "gpu-memory", "four 80 GB"),
        ("[TRT] Version tag does not match. Current Version: 0", 1, "version-mismatch", "same container"),
        ("trtllm-build: error: unrecognized arguments: --enable_xqa", 2, "flag-of-another-release", "release"),
        ("Assertion failed: mpiSize == tp * pp (8 != 1)", 1, "world-size", "tp x pp"),
        ("Error parsing text-format: Expected integer or identifier, got: $", 1, "unfilled-placeholder", "fill"),
        ("huggingface_hub.errors.GatedRepoError: 403 Client Error.", 1, "gated-model", "HF_TOKEN"),
        ("OSError: [Errno 28] No space left on device", 1, "disk-full", "disk"),
        ("docker: could not select device driver with capabilities: [[gpu]]", 125, "driver", "container-toolkit"),
        ("Loading weights", 137, "killed", "memory"),
    ],
)
def test_a_known_failure_is_explained(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, output: str, code: int, rule: str, advice: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    install_program(programs, "trtllm-build", f"import sys; print({output!r}); sys.exit({code})")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    command = Command("build", "trtllm-build", ("trtllm-build", "--workers", "8"))
    log_path = root / "build.log"
    with pytest.raises(CommandFailed) as caught:
        execute(command, Paths.under(str(root), "p5"), log_path, echo=lambda _: None)
    assert caught.value.returncode == code
    assert caught.value.what.endswith(rule)
    assert advice in caught.value.fix
    assert output in caught.value.why
    assert output in log_path.read_text(encoding="utf-8")


def test_an_unknown_failure_shows_its_last_lines(profile: Profile, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL_WITH", "a cosmic ray")
    with pytest.raises(CommandFailed, match="exit code 1") as caught:
        tensorrt_llm.build(profile, folder(root, "checkpoint"), folder(root, "engine"), root=root)
    assert "a cosmic ray" in caught.value.why
    assert str(root / "p5" / "logs") in caught.value.fix


def test_each_rule_has_its_own_name_and_a_source() -> None:
    assert len({finding.rule for finding in FINDINGS}) == len(FINDINGS)
    assert all(finding.source and finding.fix and finding.cause for finding in FINDINGS)
    assert diagnose("all went well", 0) is None


def test_the_token_appears_nowhere(
    profile: Profile, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even when a tool prints it and then fails."""
    monkeypatch.setenv("FAIL_WITH", "Authorization: Bearer")
    with pytest.raises(CommandFailed) as caught:
        tensorrt_llm.quantize(profile, folder(root, "model"), folder(root, "checkpoint"), root=root)
    assert "Authorization: Bearer [hidden]" in caught.value.why
    written = "".join(path.read_text(encoding="utf-8") for path in root.rglob("*.log"))
    captured = capsys.readouterr()
    shown_by_jupyter = "".join(traceback.format_exception(caught.value))
    assert TOKEN not in written + captured.out + captured.err + shown_by_jupyter
    assert "Authorization: Bearer [hidden]" in written


def test_files_written_by_root_are_handed_back(profile: Profile, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    engine = folder(root, "engine")
    tensorrt_llm.build(profile, folder(root, "checkpoint"), engine, root=root)
    calls = (root.parent / "calls").read_text(encoding="utf-8").splitlines()
    assert calls[-1].endswith(f"chown --recursive 1234:{os.getgid()} {engine}")


def test_native_commands_run_without_docker(profile: Profile, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    native = profile.model_copy(update={"runner": "native"})
    engine = folder(root, "engine")
    tensorrt_llm.build(native, folder(root, "checkpoint"), engine, root=root)
    assert (engine / "rank7.engine").is_file()
    assert "docker" not in capsys.readouterr().out


def test_missing_docker_is_named_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    command = Command("build", "trtllm-build", ("trtllm-build",), where="an/image:1")
    with pytest.raises(EnvironmentProblem, match="docker is not on this machine"):
        execute(command, Paths.under(str(tmp_path), "p5"), tmp_path / "log")
    assert not (tmp_path / "log").exists()
    with pytest.raises(EnvironmentProblem, match="trtllm-build is not on this machine"):
        execute_all(
            [Command("build", "trtllm-build", ("trtllm-build",))], Paths.under("w", "p5"), tmp_path, writes=tmp_path
        )


def test_a_template_that_stays_unfilled_is_an_error(
    profile: Profile, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FILLS_NOTHING", "1")
    with pytest.raises(PlaybookError, match="triton_max_batch_size"):
        tensorrt_llm.fill(profile, root, folder(root, "repository"), root=root)


def test_a_prompt_that_looks_like_a_flag_is_refused(profile: Profile, root: Path) -> None:
    with pytest.raises(UsageError, match=r"run\.py"):
        tensorrt_llm.generate(profile, root, ["--streaming?"], 8, root=root)
    assert not (root.parent / "calls").exists()


def test_a_missing_answer_is_an_error(profile: Profile, root: Path, tmp_path: Path) -> None:
    install_program(tmp_path / "bin", "docker", "print('Output [Text 1 Beam 0]: \"deux\"')")
    with pytest.raises(PlaybookError, match="1 answers to 2 prompts"):
        tensorrt_llm.generate(profile, root, ["one", "two"], 8, root=root)


class Hub:
    """Stands in for huggingface_hub.HfApi: lists two files of ten bytes, and a second copy of the weights."""

    refuses_with: Exception | None = None
    size = 10

    def __init__(self, token: str) -> None:
        assert token == TOKEN

    def auth_check(self, repo_id: str) -> None:
        if self.refuses_with is not None:
            raise self.refuses_with

    def model_info(self, repo_id: str, *, files_metadata: bool) -> SimpleNamespace:
        names = ("config.json", "model.safetensors", "original/consolidated.00.pth")
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=name, size=self.size) for name in names])


@pytest.fixture
def fake_hub(monkeypatch: pytest.MonkeyPatch) -> type[Hub]:
    hub_class = type("FreshHub", (Hub,), {})
    monkeypatch.setattr("huggingface_hub.HfApi", hub_class)
    return hub_class


def test_the_model_is_downloaded_verified_and_kept_for_other_profiles(
    profile: Profile, root: Path, fake_hub: type[Hub], capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder(root, "model")
    tensorrt_llm.prepare(profile, out, root=root)
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.safetensors"]
    kept = root / "downloads" / profile.model / "config.json"
    assert kept.samefile(out / "config.json")
    assert TOKEN not in capsys.readouterr().out


def test_the_stages_make_artifacts_of_it(profile: Profile, root: Path, fake_hub: type[Hub]) -> None:
    workspace = stages.Workspace(root, profile)
    assert not stages.prepare(workspace).up_to_date
    assert stages.prepare(workspace).up_to_date
    checkpoint = stages.quantize(workspace)
    engine = stages.build(workspace, checkpoint)
    assert (checkpoint.manifest.origin.world_size, engine.manifest.origin.gpu_arch) == (8, "sm90")
    assert stages.generate(workspace, engine, ["count"], max_new_tokens=5) == ['un, deux,\nsaid "5"']
    repository = stages.write_repository(workspace, engine, skip_special_tokens=False)
    assert "skip_special_tokens: false" in (repository.path / "postprocessing" / "config.pbtxt").read_text()
    config = (repository.path / "preprocessing" / "config.pbtxt").read_text(encoding="utf-8")
    assert f"tokenizer_dir: {root}/p5/model" in config


def test_a_failed_stage_leaves_no_artifact(profile: Profile, root: Path, fake_hub: type[Hub]) -> None:
    workspace = stages.Workspace(root, profile)
    fake_hub.size = 11
    with pytest.raises(PlaybookError, match="not complete"):
        stages.prepare(workspace)
    assert not workspace.folder("model").exists()
    assert (root / "downloads" / profile.model / "config.json").is_file()  # so that the download goes on there


def test_a_missing_token_is_named_first(profile: Profile, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(EnvironmentProblem, match="HF_TOKEN is not set") as caught:
        tensorrt_llm.prepare(profile, root, root=root)
    assert "meta-llama/Meta-Llama-3-70B-Instruct" in caught.value.fix


@pytest.mark.parametrize(
    ("error_name", "why"), [("GatedRepoError", "not been granted"), ("RepositoryNotFoundError", "does not know")]
)
def test_refused_access_is_told_apart(
    profile: Profile, root: Path, fake_hub: type[Hub], error_name: str, why: str
) -> None:
    import httpx
    import huggingface_hub.errors

    response = httpx.Response(403, request=httpx.Request("GET", "https://huggingface.co"))
    fake_hub.refuses_with = getattr(huggingface_hub.errors, error_name)("refused", response=response)
    with pytest.raises(EnvironmentProblem, match="refuses") as caught:
        tensorrt_llm.prepare(profile, root, root=root)
    assert why in caught.value.why
    assert not (root.parent / "calls").exists()


def test_an_unreachable_hub_is_named(profile: Profile, root: Path, fake_hub: type[Hub]) -> None:
    import httpx

    fake_hub.refuses_with = httpx.ConnectError(f"no route with {TOKEN}")
    with pytest.raises(EnvironmentProblem, match="did not answer") as caught:
        tensorrt_llm.prepare(profile, root, root=root)
    assert TOKEN not in str(caught.value)


def test_a_full_disk_is_refused_before_the_download(profile: Profile, root: Path, fake_hub: type[Hub]) -> None:
    fake_hub.size = 10**15
    with pytest.raises(EnvironmentProblem, match=r"2100000\.0 GB"):
        tensorrt_llm.prepare(profile, root, root=root)
    assert not (root.parent / "calls").exists()


def test_what_is_already_there_needs_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "part").write_bytes(b"x" * 105)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    hub.require_space({"part": 100}, tmp_path)
    with pytest.raises(EnvironmentProblem):
        hub.require_space({"part": 101}, tmp_path)


def test_a_short_file_is_found(profile: Profile, root: Path, fake_hub: type[Hub]) -> None:
    fake_hub.size = 11
    with pytest.raises(PlaybookError, match="not complete") as caught:
        tensorrt_llm.prepare(profile, folder(root, "model"), root=root)
    assert "config.json has 10 bytes instead of 11" in caught.value.why


def write_shard(path: Path, tensor_bytes: int) -> None:
    header = json.dumps({"w": {"dtype": "U8", "shape": [tensor_bytes], "data_offsets": [0, tensor_bytes]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * tensor_bytes)


def test_shards_are_compared_with_the_index(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.safetensors", 6)
    write_shard(tmp_path / "b.safetensors", 4)
    index = {"metadata": {"total_size": 10}, "weight_map": {"w": "a.safetensors", "v": "b.safetensors"}}
    index_path = tmp_path / "model.safetensors.index.json"
    index_path.write_text(json.dumps(index), encoding="utf-8")
    hub.verify(tmp_path, {})
    write_shard(tmp_path / "b.safetensors", 3)
    with pytest.raises(PlaybookError, match="not complete") as caught:
        hub.verify(tmp_path, {})
    assert "9 bytes of tensors, the index says 10" in caught.value.why
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(PlaybookError, match="not complete"):
        hub.verify(tmp_path, {})


LAUNCH = """
import subprocess, sys
port = sys.argv[sys.argv.index("--http_port") + 1]
subprocess.Popen(["mpirun", port])
"""
MPIRUN = """
import http.server, sys, time
if {dies!r}:
    print({dies!r}, flush=True)
    time.sleep(1)
    sys.exit(1)
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/v2/health/ready" else 404)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Ready).serve_forever()
"""


@pytest.fixture
def native_server(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A launch script that starts its ranks and returns at once, as the real one does; gives the folder of mpirun."""
    scripts = root / "sources" / "tensorrtllm_backend-0.12.0" / "scripts"
    (scripts.parent / "tensorrt_llm" / "examples").mkdir(parents=True)
    scripts.mkdir()
    (scripts / "launch_triton_server.py").write_text(LAUNCH, encoding="utf-8")
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("playbook.recipes.triton.PORTS", (0, 0, 0))  # so that the script is always told its ports
    return programs


def test_a_server_is_ready_serves_and_ends(native_server: Path, root: Path) -> None:
    import httpx

    install_program(native_server, "mpirun", MPIRUN.format(dies=""))
    profile = load_profile("p5", "0.12.0").model_copy(update={"runner": "native"})
    with tensorrt_llm.serve(profile, root, root=root) as server:
        assert server.ready()
        assert httpx.get(f"{server.http_url}/v2/health/ready").status_code == 200
        assert server.ready_s > 0
        report = server.stop()
    assert report.seconds < 15
    assert not server.ready()
    assert server.stop().seconds == 0


def test_a_server_that_dies_is_explained(native_server: Path, root: Path) -> None:
    install_program(native_server, "mpirun", MPIRUN.format(dies="Assertion failed: mpiSize == tp * pp"))
    profile = load_profile("p5", "0.12.0").model_copy(update={"runner": "native"})
    with pytest.raises(CommandFailed, match="world-size"):
        tensorrt_llm.serve(profile, root, root=root)
