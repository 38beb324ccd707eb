"""The families versions and containers: one release for everything, and docker run around it."""

import json
from pathlib import Path
from types import ModuleType

import pytest

from check_cases import fixed, found
from trtllm_check.lint import check_commands, target
from trtllm_check.lint.installs import Requirement
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.rules import containers, versions
from trtllm_check.lint.rules.versions import _holder
from trtllm_check.releases import known_releases, load_release
from trtllm_check.releases.packages import needs_of, takes, versions_of

TRITON = "nvcr.io/nvidia/tritonserver:{}-trtllm-python-py3"
RUN = f"docker run --gpus all --shm-size 2g -v /srv:/srv {TRITON.format('24.08')}"
LMI = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:{}"
BUILD = "trtllm-build --checkpoint_dir /srv/c --output_dir /srv/e"
SERVE = "tritonserver --model-repository=/srv/repo"
CLONE = "git clone https://github.com/NVIDIA/TensorRT-LLM.git"
CLONE_SSH = "git clone git@github.com:NVIDIA/TensorRT-LLM.git x"
QUANTIZE = "python3 quantize.py --model_dir /m/"
ASK = "curl localhost:8000/v2/health/ready"
RUN_PY = "run.py --engine_dir /a/b/e --tokenizer_dir /a/c/t"
LAUNCH = "python3 launch_triton_server.py --world_size 2 --model_repo r"
RANKS = "CUDA_VISIBLE_DEVICES=0,1 mpirun -n {} python3 run.py --engine_dir e"
BACKEND = "https://github.com/triton-inference-server/tensorrtllm_backend"

VERSIONS = [
    # containers
    ("0.12.0", f"docker pull {TRITON.format('24.08')}", []),
    ("0.12.0", f"docker pull {TRITON.format('24.07')}", ["1 container-of-another-release error"]),
    ("0.12.0", f"docker run {TRITON.format('24.07')} {BUILD}", ["1 container-of-another-release error"]),
    (
        "0.12.0",
        f"docker run {TRITON.format('24.07')} {BUILD}\ndocker run {TRITON.format('24.07')} {SERVE}",
        ["1 container-of-another-release error", "2 container-of-another-release error"],
    ),
    ("0.12.0", f"{BUILD}\ndocker run {TRITON.format('24.09')} {SERVE}", ["2 engine-of-another-release error"]),
    ("1.2.1", "docker run nvcr.io/nvidia/tensorrt-llm/release:1.2.1 bash", []),
    ("1.2.1", "docker run nvcr.io/nvidia/tensorrt-llm/release:1.2.0 bash", ["1 container-of-another-release error"]),
    ("1.2.1", "docker run nvcr.io/nvidia/tritonserver:26.04-py3 bash", []),  # not TensorRT-LLM's
    ("0.12.0", f"docker run {LMI.format('0.30.0-tensorrtllm0.12.0-cu125')}", []),
    ("0.13.0", f"docker run {LMI.format('0.30.0-tensorrtllm0.12.0-cu125')}", ["1 lmi-image-of-another-release error"]),
    ("0.13.0", f"docker run {LMI.format('0.36.0-lmi22.0.0-cu129')}", []),
    # packages
    ("0.12.0", "pip install tensorrt_llm==0.12.0 'transformers>=4.43'", []),
    ("0.12.0", "pip3 install --pre tensorrt-llm==0.13.0.dev2024", ["1 wheel-of-another-release error"]),
    ("0.17.0", "pip install tensorrt_llm==0.17.0.post1", []),
    ("0.12.0", "pip install tensorrt_llm", ["1 wheel-of-another-release warning"]),
    ("0.12.0", "pip install nvidia-modelopt==0.17.0", []),  # within ~=0.15
    ("0.12.0", "pip install nvidia-modelopt[all]==0.13.1", ["1 modelopt-not-the-pin error"]),
    ("0.17.0", "pip install nvidia-modelopt==0.23.2", []),
    ("0.17.0", "pip install nvidia-modelopt==0.25.0", ["1 modelopt-not-the-pin error"]),
    ("0.12.0", "pip install nvidia-modelopt==0.7.0", ["1 modelopt-not-the-pin error"]),
    ("0.12.0", "pip install nvidia-ammo==0.7.0", []),
    ("0.8.0", "pip install nvidia-ammo==0.7.3", []),
    ("1.3.0rc22", "pip install nvidia-modelopt==0.46.0", []),
    ("0.12.0", "pip install nvidia-modelopt", []),
    # clones
    ("0.12.0", f"{CLONE} --branch v0.12.0", []),
    ("0.12.0", f"{CLONE} -b release/0.12", []),
    ("0.12.0", f"{CLONE} -b release/0.13", ["1 clone-of-another-release error"]),
    ("0.12.0", f"{CLONE} -b main", ["1 clone-of-another-release warning"]),
    ("0.12.0", f"{CLONE_SSH} && cd x && git checkout tags/v0.12.0 -b mine", []),
    ("0.12.0", f"{CLONE_SSH} && git -C x checkout v0.11.0", ["1 clone-of-another-release error"]),
    (
        "0.12.0",
        f"{CLONE}\ngit clone {BACKEND}\ncd tensorrtllm_backend\ngit checkout v0.12.0\ncd ../TensorRT-LLM\n"
        "git checkout v0.13.0",
        ["6 clone-of-another-release error"],
    ),
    ("0.12.0", f"{CLONE}\ncd TensorRT-LLM\ngit checkout 28fb9aac", []),
    ("0.12.0", f"git clone -b r24.08 {BACKEND}", []),
    ("0.12.0", f"git clone -b r24.09 {BACKEND}", ["1 clone-of-another-release warning"]),
    ("1.2.1", f"git clone -b v0.19.0 {BACKEND}", ["1 clone-of-another-release warning"]),
    ("1.2.1", f"git clone -b r26.04 {BACKEND}", []),
    ("0.12.0", "git clone https://github.com/NVIDIA/cutlass.git", []),
    ("1.3.0rc22", "git clone -b 0.46.0 https://github.com/NVIDIA/Model-Optimizer.git", []),
    # models
    ("0.11.0", f"{QUANTIZE}Llama-3.1-8B\npython3 run.py --tokenizer_dir /m/Llama-3.1-8B", ["1 model-too-new error"]),
    ("0.11.0", f"{QUANTIZE}Meta-Llama-3-8B", []),
    ("0.12.0", f"{QUANTIZE}Llama-3.1-8B", ["1 transformers-too-old error"]),
    ("0.12.0", f"pip install -U transformers\n{QUANTIZE}Llama-3.1-8B", []),
    ("0.12.0", f"pip install transformers==4.42.4\n{QUANTIZE}Llama-3.1-8B", ["2 transformers-too-old error"]),
    ("0.14.0", f"{QUANTIZE}Llama-3.3-70B-Instruct", []),
    ("0.14.0", f"pip install 'transformers<4.43'\n{QUANTIZE}Llama-3.3-70B-Instruct", ["2 transformers-too-old error"]),
    ("0.14.0", f"pip install 'transformers<4.46,>=4.43.1'\n{QUANTIZE}Llama-3.3-70B-Instruct", []),
    # the engine flow
    ("1.3.0rc22", f"{BUILD}\npython3 summarize.py --engine_dir /srv/e", ["1 engine-flow-removed error"]),
    ("1.2.1", BUILD, []),
]

CONTAINERS = [
    ("0.12.0", f"{RUN} {SERVE}", []),
    ("0.12.0", f"docker run --shm-size 2g {TRITON.format('24.08')} bash", ["1 no-gpus warning"]),
    ("0.12.0", f"docker run --runtime=nvidia --ipc=host {TRITON.format('24.08')} bash", []),
    ("0.12.0", f"nvidia-docker run --ipc=host {TRITON.format('24.08')} bash", []),
    ("0.12.0", f"docker run {TRITON.format('24.08')} cp -r /app/all_models /tmp/x", []),  # needs no GPU
    ("0.12.0", "docker run ubuntu:22.04 bash", []),
    ("0.12.0", f"docker run --gpus all {TRITON.format('24.08')} bash", ["1 small-shared-memory info"]),
    (
        "0.12.0",
        f"docker run --gpus all {TRITON.format('24.08')} bash\nmpirun -n 2 python3 run.py --engine_dir /e",
        ["1 small-shared-memory warning"],
    ),
    ("0.12.0", f"docker run --gpus all -v /srv:/srv {TRITON.format('24.08')} {BUILD}", []),
    # mounts
    ("0.12.0", f"{RUN} {BUILD}", []),
    ("0.12.0", f"{RUN} {BUILD.replace('/srv/e', '/data/e')}", ["1 path-not-mounted error"]),
    ("0.12.0", f"{RUN} bash -c '{BUILD.replace('/srv/e', '/data/e')}'", ["1 path-not-mounted error"]),
    ("0.12.0", f"{RUN} {BUILD.replace('/srv/e', '/srv2/e')}", ["1 path-not-mounted error"]),
    ("0.12.0", f"{RUN} {BUILD.replace('/srv/e', '$OUT')}", []),
    ("0.12.0", f"docker run --gpus all -v $PWD:$PWD {TRITON.format('24.08')} {BUILD}", []),
    ("0.12.0", f"docker run --gpus all --mount type=bind,source=/a,target=/srv {TRITON.format('24.08')} {BUILD}", []),
    ("0.12.0", f"docker run --gpus all my-image {BUILD}", []),
    (
        "0.12.0",
        f"python3 fill_template.py -i /srv/repo/tensorrt_llm/config.pbtxt engine_dir:/engines/x\n{RUN} {SERVE}",
        ["1 path-not-mounted error"],
    ),
    ("0.12.0", f"python3 fill_template.py -i /srv/repo/tensorrt_llm/config.pbtxt engine_dir:/srv/x\n{RUN} {SERVE}", []),
    # ports
    ("0.12.0", f"{RUN} {SERVE}\n{ASK}", ["1 server-port-not-published error"]),
    ("0.12.0", f"{RUN.replace('run', 'run --network=host', 1)} {SERVE}\n{ASK}", []),
    ("0.12.0", f"{RUN.replace('run', 'run -p8000:8000', 1)} {SERVE}\n{ASK}", []),
    ("0.12.0", f"{RUN.replace('run', 'run -p 127.0.0.1:8000-8002:8000-8002', 1)} {SERVE}\n{ASK}", []),
    (
        "0.12.0",
        f"{RUN.replace('run', 'run -p 8080:8080', 1)} {SERVE}\ncurl localhost:8080/v2/health/ready",
        ["1 server-port-not-published error"],
    ),
    (
        "0.12.0",
        f"{RUN.replace('run', 'run -p 8080:8080', 1)} {SERVE} --http-port 8080\ncurl localhost:8080/v2/health/ready",
        [],
    ),
    ("0.12.0", f"{RUN} {SERVE}\ncurl example.com:8000/v2/health/ready", []),
    # visible GPUs
    ("0.12.0", RANKS.format(2), []),
    ("0.12.0", RANKS.format(4), ["1 limited-visible-devices warning"]),
    ("0.12.0", f"export CUDA_VISIBLE_DEVICES=0\n{LAUNCH}", ["2 limited-visible-devices warning"]),
    ("0.16.0", f"export CUDA_VISIBLE_DEVICES=0\n{LAUNCH} --multi-model --disable-spawn-processes", []),
    ("0.12.0", "CUDA_VISIBLE_DEVICES=$GPUS mpirun -n 4 python3 run.py --engine_dir e", []),
]


@pytest.mark.parametrize(("release", "text", "expected"), VERSIONS)
def test_what_is_found_of_other_releases(release: str, text: str, expected: object) -> None:
    assert found(versions.check, text, release) == expected


@pytest.mark.parametrize(("release", "text", "expected"), CONTAINERS)
def test_what_is_found_around_the_containers(release: str, text: str, expected: object) -> None:
    assert found(containers.check, text, release) == expected


@pytest.mark.parametrize(
    ("family", "release", "text", "command"),
    [
        (versions, "0.12.0", f"docker pull {TRITON.format('24.07')}", f"docker pull {TRITON.format('24.08')}"),
        (versions, "0.12.0", CLONE, f"{CLONE} --branch v0.12.0"),
        (versions, "0.12.0", f"{CLONE} -b main", f"{CLONE} -b v0.12.0"),
        (versions, "0.12.0", f"{CLONE}\ncd TensorRT-LLM; git checkout v0.13.0", "git checkout v0.12.0"),
        (versions, "0.12.0", "pip install tensorrt-llm==0.13.0 -U", "pip install tensorrt-llm==0.12.0 -U"),
        (versions, "0.12.0", "pip install nvidia-modelopt[all]==0.9.3", "pip install 'nvidia-modelopt[all]~=0.15'"),
        (
            versions,
            "0.12.0",
            "docker run djl-inference:0.29.0-tensorrtllm0.11.0-cu124 serve",
            "docker run djl-inference:0.30.0-tensorrtllm0.12.0-cu125 serve",
        ),
        (
            containers,
            "0.12.0",
            f"docker run {TRITON.format('24.08')} bash",
            f"docker run --gpus all {TRITON.format('24.08')} bash",
        ),
        (
            containers,
            "0.12.0",
            f"docker run --gpus all -v /a:/b {TRITON.format('24.08')} fill_template.py -i /a/c x:1",
            f"docker run --gpus all -v /a:/b {TRITON.format('24.08')} fill_template.py -i /b/c x:1",
        ),
        (
            containers,
            "0.12.0",
            f"docker run --gpus all {TRITON.format('24.08')} {RUN_PY}",
            f"docker run --gpus all --volume /a:/a {TRITON.format('24.08')} {RUN_PY}",
        ),
    ],
)
def test_the_corrected_command(family: ModuleType, release: str, text: str, command: str) -> None:
    found = fixed(family.check, text, release)
    commands = {one.fix.text for one in [one for one in found if one.severity != "info"] or found}
    assert {" ".join(one.replace("\\\n", " ").split()) for one in commands} == {command}


def test_a_pin_is_held_against_a_release_that_somebody_named() -> None:
    document = read_document("pip install nvidia-modelopt==0.7.0\ntrtllm-serve /models/mine\n")
    found = {asked: {one.rule for one in check_commands(document, target(document, asked))} for asked in ("", "0.12.0")}
    assert "modelopt-not-the-pin" in found["0.12.0"] - found[""]


def test_an_engine_of_a_folder(tmp_path: Path) -> None:
    config = {"version": "0.10.0", "pretrained_config": {}, "build_config": {}}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config, indent=1))
    assert found(versions.check, tmp_path, "0.12.0") == ["2 engine-of-another-release error"]
    path.write_text(json.dumps(config | {"version": "0.12.0.dev2024073000"}))
    assert found(versions.check, tmp_path, "0.12.0") == []
    path.write_text(json.dumps({"version": "0.10.0", "architecture": "LlamaForCausalLM"}))
    assert found(versions.check, tmp_path, "0.12.0") == []


def test_the_holder_of_every_known_image() -> None:
    holders: dict[str, str] = {}
    for name in known_releases():
        for image in load_release(name).containers.triton:
            holders.setdefault(image, name)
    assert holders and {image: _holder(image) for image in holders} == holders
    assert _holder(TRITON.format("24.02")) == _holder(TRITON.format("24.03")) == "0.8.0"
    assert _holder(TRITON.format("23.10")) == ""


@pytest.mark.parametrize(
    ("text", "below"),
    [
        ("x<=4.42.4", True),
        ("x<4.43", True),
        ("x==4.36.1", True),
        ("x>=4.38.2", False),
        ("x<=4.45.1", False),
        ("x==4.43.0", False),
        ("x", False),
        ("x>=4.40,<4.43", True),
        ("x~=4.40", False),
    ],
)
def test_requirements_below_a_version(text: str, below: bool | None) -> None:
    assert Requirement.of(text).is_below("4.43") is below


def test_paths_of_a_repositorys_configs(tmp_path: Path) -> None:
    """A path in a config.pbtxt that the server's container does not see."""
    model = tmp_path / "repo" / "tensorrt_llm"
    model.mkdir(parents=True)
    config = 'name: "tensorrt_llm"\nparameters { key: "gpt_model_path" value: { string_value: "/engines/x" } }\n'
    (model / "config.pbtxt").write_text(config)
    (tmp_path / "serve.sh").write_text(f"{RUN} {SERVE}\n")
    assert found(containers.check, tmp_path, "0.12.0") == ["2 path-not-mounted error"]
    (model / "config.pbtxt").write_text(config.replace("/engines/x", "/srv/x"))
    assert found(containers.check, tmp_path, "0.12.0") == []


def test_both_paths_of_a_template_are_mended_at_once() -> None:
    fill = "python3 fill_template.py -i r/tensorrt_llm/config.pbtxt engine_dir:/a/e,tokenizer_dir:/a/t"
    text = f"{fill}\n{RUN.replace('-v /srv:/srv', '-v /a:/b')} tritonserver --model-repository=/b/r"
    commands = {one.fix.text for one in fixed(containers.check, text, "0.12.0")}
    assert len(commands) == 1 and "engine_dir:/b/e,tokenizer_dir:/b/t" in commands.pop()


@pytest.mark.parametrize("version", versions_of("vllm"))
def test_the_pins_of_a_release_fit_each_other(version: str) -> None:
    wanted = needs_of("vllm", version)
    pins = {name: need[2:] for name, need in (wanted.needs if wanted else {}).items() if need.startswith("==")}
    for name, pin in pins.items():
        inner = needs_of(name, pin)
        for other, need in inner.needs.items() if inner else ():
            assert other not in pins or takes(need, pins[other]), (name, other, need)


@pytest.mark.parametrize(("count", "severity"), [(3, "error"), (100, "info")])
def test_two_versions_in_what_a_tool_wrote_down_are_a_hint(count: int, severity: str) -> None:
    """Nobody installs from a list of a whole environment."""
    pins = "\n".join(["vllm==0.11.0", *(f"package-{n}==1.{n}.0" for n in range(count)), "setproctitle==1.2.2"])
    document = read_document(f"{pins}\nsetproctitle==1.3.6\n", "requirements")
    found = [one for one in check_commands(document, target(document)) if "Double requirement" in one.message]
    assert [one.severity for one in found] == [severity]
