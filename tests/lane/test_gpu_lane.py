"""The GPU lane executes the recipes, with stand-ins on PATH that take what the real tools take."""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import textwrap
import time
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpu_serving import hub
from gpu_serving.execute import FINDINGS, diagnose, execute, execute_all
from gpu_serving.inference import printed_answers
from playbook import stages
from playbook.lanes.tensorrt_llm import lane as tensorrt_llm
from playbook.profile import Profile, load_profile
from serving_base.errors import CommandFailed, EnvironmentProblem, NotInRelease, PlaybookError, UsageError
from serving_base.facts.models import model_shape
from sparse_models import write_model
from stand_ins import Machine
from tiny_llama import MODEL_DIR
from trtllm_check.lint.pbtxt import read_config
from trtllm_check.recipes import Command, Paths, commands
from trtllm_check.releases import load_release
from trtllm_check.releases.templates import IN_ORDER

TOKEN = "hf_verysecrettoken"


def install_program(folder: Path, name: str, source: str) -> None:
    program = folder / name
    program.write_text(f"#!{sys.executable}\n{textwrap.dedent(source)}", encoding="utf-8")
    program.chmod(0o755)


@pytest.fixture(params=["0.12.0", "1.2.1"])
def machine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine of stand-ins for one release."""
    installed = Machine(tmp_path / "machine", request.param).install()
    monkeypatch.setenv("PATH", f"{installed.programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return installed


@pytest.fixture
def profile(machine: Machine) -> Profile:
    return load_profile("p5", machine.release)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


def write_70b(model: Path) -> Path:
    write_model(model, model_shape("llama-3-70b-instruct"), MODEL_DIR, {})
    return model


def folder(root: Path, name: str) -> Path:
    path = root / "p5" / name
    path.mkdir(parents=True)
    return path


def checkpoint_folder(root: Path) -> Path:
    """As much of a checkpoint of eight ranks as a build asks for."""
    checkpoint = folder(root, "checkpoint")
    (checkpoint / "config.json").write_text(json.dumps({"mapping": {"world_size": 8}}), encoding="utf-8")
    for rank in range(8):
        (checkpoint / f"rank{rank}.safetensors").touch()
    return checkpoint


def engine_folder(root: Path) -> Path:
    write_70b(folder(root, "model"))
    engine = folder(root, "engine")
    config = {"pretrained_config": {"mapping": {"world_size": 8}}, "build_config": {"max_input_len": 2048}}
    (engine / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return engine


def test_sixteen_bits_are_converted_not_quantized(profile: Profile, root: Path) -> None:
    baseline = profile.model_copy(update={"qformat": "full_prec", "kv_cache_dtype": "auto"})
    checkpoint = folder(root, "checkpoint")
    (execution,) = tensorrt_llm.quantize(baseline, write_70b(folder(root, "model")), checkpoint, root=root)
    assert execution.command.tool == "convert_checkpoint.py"
    assert (checkpoint / "rank7.safetensors").stat().st_size > 16e9


def test_scripts_are_cloned_once_and_only_where_the_container_lacks_them(
    machine: Machine, profile: Profile, root: Path
) -> None:
    checkpoint = checkpoint_folder(root)
    tensorrt_llm.build(profile, checkpoint, folder(root, "engine"), root=root)
    clones = machine.calls("git")
    assert len(clones) == {"0.12.0": 2, "1.2.1": 0}[machine.release]
    assert {call["argv"][-1] for call in clones} == {str(path) for path in (root / "sources").glob("*")}
    tensorrt_llm.build(profile, checkpoint, root / "p5" / "engine-2", root=root)
    assert len(machine.calls("git")) == len(clones)


def test_half_a_clone_is_made_again(machine: Machine, profile: Profile, root: Path) -> None:
    native = profile.model_copy(update={"runner": "native"})
    machine.install(native=True)
    machine.fail("git", "fatal: early EOF", 128)
    with pytest.raises(CommandFailed, match="exit code 128"):
        tensorrt_llm.build(native, checkpoint_folder(root), folder(root, "engine"), root=root)
    assert list((root / "sources").glob("*/.git"))  # as a killed git leaves it
    machine.mend()
    tensorrt_llm.build(native, root / "p5" / "checkpoint", root / "p5" / "engine", root=root)
    assert all((path / ".git" / "index").is_file() for path in (root / "sources").iterdir())


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


def test_an_unknown_failure_shows_its_last_lines(machine: Machine, profile: Profile, root: Path) -> None:
    machine.fail("trtllm-build", "a cosmic ray")
    with pytest.raises(CommandFailed, match="exit code 1") as caught:
        tensorrt_llm.build(profile, checkpoint_folder(root), folder(root, "engine"), root=root)
    assert "a cosmic ray" in caught.value.why
    assert str(root / "p5" / "logs") in caught.value.fix


def test_each_rule_has_its_own_name_and_a_source() -> None:
    assert len({finding.rule for finding in FINDINGS}) == len(FINDINGS)
    assert all(finding.source and finding.fix and finding.cause for finding in FINDINGS)
    assert diagnose("all went well", 0) is None


def test_the_token_appears_nowhere(
    machine: Machine, profile: Profile, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even when a tool prints it and then fails."""
    machine.fail("docker", f"Authorization: Bearer {TOKEN}")
    with pytest.raises(CommandFailed) as caught:
        tensorrt_llm.build(profile, checkpoint_folder(root), folder(root, "engine"), root=root)
    assert "Authorization: Bearer [hidden]" in caught.value.why
    written = "".join(path.read_text(encoding="utf-8") for path in (root / "p5" / "logs").iterdir())
    captured = capsys.readouterr()
    shown_by_jupyter = "".join(traceback.format_exception(caught.value))
    assert TOKEN not in written + captured.out + captured.err + shown_by_jupyter
    assert "Authorization: Bearer [hidden]" in written


def test_the_record_hides_secrets_and_keeps_how_each_command_ended(
    machine: Machine, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = Paths.under(str(root), "p5")
    logs = root / "p5" / "logs"
    words = ("hf", "download", "a/model", "--local-dir", str(root / "model"), "--exclude", TOKEN)
    (machine.folder / "hub").mkdir()
    image = load_release(machine.release).image
    execute(Command("fetch", "hf", words, image, secrets=("HF_TOKEN",)), paths, logs / "fetch.log")
    machine.fail("hf", "no", 7)
    with pytest.raises(CommandFailed):
        execute(Command("fetch", "hf", words, image, secrets=("HF_TOKEN",)), paths, logs / "fetch.log")
    monkeypatch.setattr("gpu_serving.execute.stream_command", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        execute(Command("fetch", "hf", words, image), paths, logs / "fetch.log")
    text = (logs / "commands.jsonl").read_text(encoding="utf-8")
    entries = [json.loads(line) for line in text.splitlines()]
    assert TOKEN not in text
    assert [entry["exit_code"] for entry in entries] == [0, 7, None]
    first = entries[0]
    assert (first["stage"], first["tool"], first["where"], first["log"]) == ("fetch", "hf", image, "fetch.log")
    assert first["argv"][:2] == ["docker", "run"]
    assert first["argv"][-1] == "[hidden]"
    assert first["seconds"] > 0
    assert first["started"].endswith("+00:00")
    name = entries[2]["argv"][entries[2]["argv"].index("--name") + 1]
    assert machine.calls("docker")[-1]["argv"] == ["rm", "--force", name]


def test_what_the_release_leaves_out_is_said(machine: Machine, root: Path) -> None:
    said: list[str] = []
    command = Command("check", "true", ("true",), left_out=("no reuse of prefixes",))
    execute(command, Paths.under(str(root), "p5"), root / "log", echo=said.append)
    assert "left out: no reuse of prefixes" in said


def test_files_written_by_root_are_handed_back(
    machine: Machine, profile: Profile, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    engine = folder(root, "engine")
    machine.fail("trtllm-build")
    with pytest.raises(CommandFailed):
        tensorrt_llm.build(profile, checkpoint_folder(root), engine, root=root)
    assert machine.calls("docker")[-1]["argv"][-4:] == ["chown", "--recursive", f"1234:{os.getgid()}", str(engine)]


def test_native_commands_run_without_docker(machine: Machine, profile: Profile, root: Path) -> None:
    machine.install(native=True)
    native = profile.model_copy(update={"runner": "native"})
    engine = folder(root, "engine")
    tensorrt_llm.build(native, checkpoint_folder(root), engine, root=root)
    assert (engine / "rank7.engine").is_file()
    tensorrt_llm.write_repository(native, engine, folder(root, "repository"), root=root)
    assert "${" not in (root / "p5" / "repository" / "ensemble" / "config.pbtxt").read_text(encoding="utf-8")
    assert machine.calls("docker") == []
    assert machine.calls("git")


@pytest.mark.parametrize("answer", ["neuf", "neuf<|eot_id|>", "neuf<|end_of_text|><|eot_id|>"])
def test_special_tokens_end_no_answer(answer: str) -> None:
    printed = f'Input [Text 0]: "a\n\nb<|eot_id|>"\nOutput [Text 0 Beam 0]: "huit,\n"{answer}"\n'
    assert printed_answers(printed) == {0: 'huit,\n"neuf'}


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


def test_a_template_that_stays_unfilled_is_an_error(machine: Machine, profile: Profile, root: Path) -> None:
    machine.fail("fills nothing")
    with pytest.raises(PlaybookError, match="triton_max_batch_size"):
        tensorrt_llm.write_repository(profile, root, folder(root, "repository"), root=root)


@pytest.mark.parametrize("release", ["0.12.0", "0.16.0"])  # without and with dynamic batching in the template
def test_pieces_of_a_stream_keep_their_order(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    machine = Machine(tmp_path / "other", release).install()
    monkeypatch.setenv("PATH", f"{machine.programs}{os.pathsep}{os.environ['PATH']}")
    profile, engine = load_profile("p5", release), engine_folder(root)
    asked: dict[str, dict[str, object]] = {"several": {}, "one": {"postprocessing_instance_count": 1}}
    for name, variables in (asked | {"whole": {"decoupled_mode": False}}).items():
        out = folder(root, f"repository-{name}")
        tensorrt_llm.write_repository(profile, engine, out, root=root, variables=variables)
        config = read_config((out / "postprocessing" / "config.pbtxt").read_text(encoding="utf-8"))
        ordered = [one.text("preserve_ordering") for one in config.messages("dynamic_batching")]
        assert ("true" in ordered) == (name == "several")
    silent = Command("fill", "true", ("true", IN_ORDER))
    monkeypatch.setattr("trtllm_check.recipes.triton._keep_order", lambda *_: silent)
    with pytest.raises(PlaybookError, match="lacks preserve_ordering"):
        tensorrt_llm.write_repository(profile, engine, folder(root, "repository"), root=root)


def test_a_prompt_that_looks_like_a_flag_is_refused(machine: Machine, profile: Profile, root: Path) -> None:
    with pytest.raises(UsageError, match=r"run\.py"):
        tensorrt_llm.generate(profile, root, ["--streaming?"], 8, root=root)
    assert machine.calls() == []


def test_a_missing_answer_is_an_error(machine: Machine, profile: Profile, root: Path) -> None:
    install_program(machine.programs, "docker", "print('Output [Text 1 Beam 0]: \"deux\"')")
    with pytest.raises(PlaybookError, match="1 answers to 2 prompts"):
        tensorrt_llm.generate(profile, engine_folder(root), ["one", "two"], 8, root=root)


class Hub:
    """Stands in for huggingface_hub.HfApi: lists ``sizes``, and a second copy of the weights."""

    refuses_with: Exception | None = None
    sizes: dict[str, int]

    def __init__(self, token: str) -> None:
        assert token == TOKEN

    def auth_check(self, repo_id: str) -> None:
        if self.refuses_with is not None:
            raise self.refuses_with

    def model_info(self, repo_id: str, *, files_metadata: bool) -> SimpleNamespace:
        listed = {**self.sizes, "original/consolidated.00.pth": 10**15}
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=name, size=size) for name, size in listed.items()])


@pytest.fixture
def fake_hub(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> type[Hub]:
    """The hub has the 70B model, in files with holes."""
    (machine.folder / "hub").mkdir()
    sizes = {path.name: path.stat().st_size for path in write_70b(machine.folder / "hub").iterdir()}
    hub_class = type("FreshHub", (Hub,), {"sizes": sizes})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**12))
    monkeypatch.setattr("huggingface_hub.HfApi", hub_class)
    return hub_class


def test_the_model_is_downloaded_verified_and_kept_for_other_profiles(
    profile: Profile, root: Path, fake_hub: type[Hub], capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder(root, "model")
    tensorrt_llm.prepare(profile, out, root=root)
    assert {path.name for path in out.iterdir()} == fake_hub.sizes.keys()
    kept = root / "downloads" / profile.model / "config.json"
    assert kept.samefile(out / "config.json")
    assert TOKEN not in capsys.readouterr().out


def test_the_stages_make_artifacts_of_it(
    profile: Profile, root: Path, fake_hub: type[Hub], capsys: pytest.CaptureFixture[str]
) -> None:
    """The road from the hub to a filled repository, and what it leaves: files, their origins, the record, the log."""
    workspace = stages.Workspace(root, profile)
    assert not stages.prepare(workspace).up_to_date
    assert stages.prepare(workspace).up_to_date
    checkpoint = stages.quantize(workspace)
    assert len(list(checkpoint.path.glob("rank*.safetensors"))) == 8
    engine = stages.build(workspace, checkpoint)
    assert len(list(engine.path.glob("rank*.engine"))) == 8
    assert (checkpoint.manifest.origin.world_size, engine.manifest.origin.gpu_arch) == (8, "sm90")
    assert stages.generate(workspace, engine, ["count", "again"], max_new_tokens=17) == ["un, deux,\ntrois"] * 2
    repository = stages.write_repository(workspace, engine, skip_special_tokens=False)
    skip = r'"skip_special_tokens"\s*value: \{\s*string_value: "false"'
    assert re.search(skip, (repository.path / "postprocessing" / "config.pbtxt").read_text(encoding="utf-8"))
    preprocessing = (repository.path / "preprocessing" / "config.pbtxt").read_text(encoding="utf-8")
    assert f'string_value: "{root}/p5/model"' in preprocessing
    config = (repository.path / "tensorrt_llm" / "config.pbtxt").read_text(encoding="utf-8")
    assert f'string_value: "{engine.path}"' in config
    assert "decoupled: true" in config

    shown = capsys.readouterr().out
    assert shown.count("$ docker run --name playbook-") >= 8
    assert "quantize.py: exit code 0 after" in shown
    log = (root / "p5" / "logs" / "quantize-0-quantize.log").read_text(encoding="utf-8")
    assert "calibrating with 512 samples of abisee/cnn_dailymail" in log


def test_a_failed_stage_leaves_no_artifact(profile: Profile, root: Path, fake_hub: type[Hub]) -> None:
    workspace = stages.Workspace(root, profile)
    fake_hub.sizes["config.json"] += 1
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
    machine: Machine, profile: Profile, root: Path, fake_hub: type[Hub], error_name: str, why: str
) -> None:
    import httpx
    import huggingface_hub.errors

    response = httpx.Response(403, request=httpx.Request("GET", "https://huggingface.co"))
    fake_hub.refuses_with = getattr(huggingface_hub.errors, error_name)("refused", response=response)
    with pytest.raises(EnvironmentProblem, match="refuses") as caught:
        tensorrt_llm.prepare(profile, root, root=root)
    assert why in caught.value.why
    assert machine.calls() == []


def test_an_unreachable_hub_is_named(profile: Profile, root: Path, fake_hub: type[Hub]) -> None:
    import httpx

    fake_hub.refuses_with = httpx.ConnectError(f"no route with {TOKEN}")
    with pytest.raises(EnvironmentProblem, match="did not answer") as caught:
        tensorrt_llm.prepare(profile, root, root=root)
    assert TOKEN not in str(caught.value)


def test_a_full_disk_is_refused_before_the_download(
    machine: Machine, profile: Profile, root: Path, fake_hub: type[Hub]
) -> None:
    fake_hub.sizes["config.json"] = 10**15
    with pytest.raises(EnvironmentProblem, match=r"10501\d\d\.\d GB"):
        tensorrt_llm.prepare(profile, root, root=root)
    assert machine.calls() == []


def test_what_is_already_there_needs_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "part").write_bytes(b"x" * 105)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    hub.require_space({"part": 100}, tmp_path)
    with pytest.raises(EnvironmentProblem):
        hub.require_space({"part": 101}, tmp_path)


def test_a_short_file_is_found(profile: Profile, root: Path, fake_hub: type[Hub]) -> None:
    fake_hub.sizes["config.json"] += 1
    with pytest.raises(PlaybookError, match="not complete") as caught:
        tensorrt_llm.prepare(profile, folder(root, "model"), root=root)
    assert f"config.json has {fake_hub.sizes['config.json'] - 1} bytes" in caught.value.why


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
DOCKER = """
import os, signal, subprocess, sys
words = sys.argv[1:]
if words[0] == "run":  # a session of processes; when the first ends, so do the others
    image = next(i for i, word in enumerate(words) if "tritonserver:" in word)
    first = subprocess.Popen(words[image + 1:], start_new_session=True)
    signal.signal(signal.SIGTERM, lambda number, _: first.send_signal(number))
    status = first.wait()
    try:
        os.killpg(first.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    sys.exit(status)
"""


@pytest.fixture
def server_programs(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A launch script that starts its ranks and returns at once, as the real one does; gives the folder of mpirun.

    The container is a session of this machine's processes: from it others' mpirun can be seen, too.
    """
    sources = root / "sources"
    for clone in ("tensorrtllm_backend-0.12.0", "TensorRT-LLM-0.12.0"):
        (sources / clone / ".git").mkdir(parents=True)
        (sources / clone / ".git" / "index").touch()
    scripts = sources / "tensorrtllm_backend-0.12.0" / "scripts"
    scripts.mkdir()
    (scripts / "launch_triton_server.py").write_text(LAUNCH, encoding="utf-8")
    programs = tmp_path / "bin"
    programs.mkdir()
    install_program(programs, "docker", DOCKER)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    for room in ("trtllm_check.recipes.triton", "gpu_serving.server"):  # ports that nobody prefers, and always told
        monkeypatch.setattr(f"{room}.TRITON_PORTS", (0, 0, 0))
    return programs


def test_a_server_is_ready_serves_and_ends(server_programs: Path, root: Path) -> None:
    import httpx

    install_program(server_programs, "mpirun", MPIRUN.format(dies=""))
    profile = load_profile("p5", "0.12.0")
    with tensorrt_llm.serve(profile, root, root=root) as server:
        assert server.ready()
        assert httpx.get(f"{server.http_url}/v2/health/ready").status_code == 200
        assert server.ready_s > 0
        report = server.stop()
    assert report.seconds < 15
    assert not server.ready()
    assert server.stop().seconds == 0


def test_a_server_lives_as_long_as_its_own_ranks(server_programs: Path, root: Path) -> None:
    """Somebody else's mpirun, which is older, comes to its end while the server works."""
    install_program(server_programs, "mpirun", MPIRUN.format(dies=""))
    profile = load_profile("p5", "0.12.0")
    other = subprocess.Popen(["mpirun", "0"], start_new_session=True)
    try:
        with tensorrt_llm.serve(profile, root, root=root) as server:
            other.kill()
            other.wait()
            time.sleep(2)  # `tail --pid` looks once a second
            assert server.ready()
    finally:
        other.kill()


def test_a_server_that_dies_is_explained(server_programs: Path, root: Path) -> None:
    install_program(server_programs, "mpirun", MPIRUN.format(dies="Assertion failed: mpiSize == tp * pp"))
    profile = load_profile("p5", "0.12.0")
    with pytest.raises(CommandFailed, match="world-size"):
        tensorrt_llm.serve(profile, root, root=root)


def test_a_server_is_refused_natively_before_anything_starts(server_programs: Path, root: Path) -> None:
    """No wheel brings one; the image is named that loads the engine."""
    install_program(server_programs, "mpirun", MPIRUN.format(dies=""))
    profile = load_profile("p5", "0.12.0").model_copy(update={"runner": "native"})
    with pytest.raises(NotInRelease, match="natively") as caught:
        tensorrt_llm.serve(profile, root, root=root)
    assert load_release("0.12.0").server_image in caught.value.fix
    assert not list(root.rglob("launch.log"))


def test_the_check_of_the_version_knows_the_containers_build(machine: Machine, profile: Profile) -> None:
    """24.08 holds 0.12.0.dev2024080600: that passes, and 0.12.0, whose parser is another one, does not."""
    release = load_release(machine.release)
    check = commands(profile, release, "install")[-1]
    facts = json.loads((machine.folder / "facts.json").read_text(encoding="utf-8"))
    for version, status in ((release.container_version, 0), (f"{release.name}.dev1", 1), ("0.11.0", 1)):
        facts["packages"]["tensorrt_llm"] = version
        (machine.folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
        argv = ("docker", "run", "--rm", "--gpus", "all", release.image, *check.argv)
        assert subprocess.run(argv, capture_output=True, check=False).returncode == status, version
    known = {"0.12.0": "0.12.0.dev2024080600", "1.2.1": "1.2.1"}
    assert release.container_version == known[release.name]
