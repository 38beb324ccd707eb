"""What the tools of a TensorRT-LLM container write and print: the work of the stand-ins, after their parsers.

A tool of these starts a hundred times in a run of the tests, so what only one of them needs it imports itself.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from made_once import SHARED, made_once
from serving_base.errors import ServerError
from serving_base.facts.models import ModelShape, model_shapes
from sparse_models import rank_tensors, write_sparse
from stand_in_inference import answer_of, print_build_total, print_rank_build, print_streamed, summarize
from stand_ins import PLACE, Machine, fail
from tiny_llama import MODEL_DIR
from trtllm_check.releases import Release

if TYPE_CHECKING:
    from model_server.triton.server import TritonServer

SHOWN, SHOWN_ROWS = "model.layers.0.mlp.down_proj.weight", 256
"""The weights of a sparse model that are there: what chapter 02 looks at."""
SERVED_MODELS = ("preprocessing", "postprocessing", "tensorrt_llm_bls")
Work = Callable[[Machine, Release, argparse.Namespace], int]


def shape_of(folder: str) -> ModelShape:
    """The model of a Hugging Face folder, by its config.json."""
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    return next(
        shape
        for shape in model_shapes().values()
        if (shape.hidden_size, shape.num_hidden_layers) == (config["hidden_size"], config["num_hidden_layers"])
    )


def quantize(machine: Machine, release: Release, given: argparse.Namespace) -> int:
    formats = {"fp8": "FP8", "int8_sq": "W8A8_SQ_PER_CHANNEL", "full_prec": None}
    kv = {"fp8": "FP8", "int8": "INT8", None: None}[given.kv_cache_dtype]
    print(f"calibrating with {given.calib_size} samples of {given.calib_dataset}")
    return write_checkpoint(given, formats[given.qformat], kv)


def convert(machine: Machine, release: Release, given: argparse.Namespace) -> int:
    return write_checkpoint(given, None, None)


def write_checkpoint(given: argparse.Namespace, algorithm: str | None, kv: str | None) -> int:
    shape = shape_of(given.model_dir)
    out = Path(given.output_dir)
    out.mkdir(parents=True, exist_ok=True)
    config = {
        "architecture": "LlamaForCausalLM",
        "dtype": given.dtype,
        "logits_dtype": "float32",
        "num_hidden_layers": shape.num_hidden_layers,
        "num_attention_heads": shape.num_attention_heads,
        "num_key_value_heads": shape.num_key_value_heads,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "norm_epsilon": shape.rms_norm_eps,
        "vocab_size": shape.vocab_size,
        "max_position_embeddings": shape.max_position_embeddings,
        "hidden_act": "silu",
        "position_embedding_type": "rope_gpt_neox",
        "rotary_base": shape.rope_theta,
        "use_parallel_embedding": True,
        "embedding_sharding_dim": 0,
        "quantization": {"quant_algo": algorithm, "kv_cache_quant_algo": kv, "exclude_modules": ["lm_head"]},
        "mapping": {
            "world_size": given.tp_size * given.pp_size,
            "tp_size": given.tp_size,
            "pp_size": given.pp_size,
        },
        "producer": {"name": "modelopt", "version": "0.15.0"},
    }
    (out / "config.json").write_text(json.dumps(config, indent=4), encoding="utf-8")
    scales = known_scales(Path(given.model_dir)) if algorithm == "FP8" else {}
    for rank in range(given.tp_size * given.pp_size):
        tensors = rank_tensors(shape, rank, given.tp_size, given.pp_size, algorithm, kv)
        write_sparse(out / f"rank{rank}.safetensors", tensors, scales)
    return 0


def known_scales(model: Path) -> dict[str, bytes]:
    """The scale of the one matrix that the sparse model has values of: its largest one over FP8's, 448."""
    import numpy as np

    if not (model / "model.safetensors.index.json").is_file():
        return {}
    index = json.loads((model / "model.safetensors.index.json").read_text(encoding="utf-8"))
    with (model / index["weight_map"][SHOWN]).open("rb") as file:
        (header_bytes,) = struct.unpack("<Q", file.read(8))
        entry = json.loads(file.read(header_bytes))[SHOWN]
        file.seek(8 + header_bytes + entry["data_offsets"][0])
        upper = np.frombuffer(file.read(2 * SHOWN_ROWS * entry["shape"][1]), dtype="<u2")
    largest = np.abs((upper.astype(np.uint32) << 16).view(np.float32)).max()
    return {"transformer.layers.0.mlp.proj.weights_scaling_factor": struct.pack("<f", largest / 448)} if largest else {}


def build(machine: Machine, release: Release, given: argparse.Namespace) -> int:
    checkpoint = Path(given.checkpoint_dir)
    pretrained = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    world_size = pretrained["mapping"]["world_size"]
    missing = [rank for rank in range(world_size) if not (checkpoint / f"rank{rank}.safetensors").is_file()]
    if missing:
        print(f"FileNotFoundError: rank{missing[0]}.safetensors")
        return 1
    out = Path(given.output_dir)
    out.mkdir(parents=True, exist_ok=True)
    plugins = ("gemm_plugin", "gpt_attention_plugin", "use_paged_context_fmha", "use_fp8_context_fmha")
    given_flags = vars(given)
    config = {
        "version": release.name,
        "pretrained_config": pretrained,
        "build_config": {
            **{key: given_flags[key] for key in ("max_batch_size", "max_num_tokens", "max_input_len")},
            "max_seq_len": given_flags.get("max_seq_len"),
            "max_beam_width": 1,
            "kv_cache_type": "PAGED",
            "strongly_typed": True,
            "plugin_config": {
                **{key: given_flags.get(key) for key in plugins},
                "paged_kv_cache": True,
                "tokens_per_block": 64,
            },
        },
    }
    (out / "config.json").write_text(json.dumps(config, indent=4), encoding="utf-8")
    for rank in range(world_size):
        size = (checkpoint / f"rank{rank}.safetensors").stat().st_size  # an engine holds its rank's weights
        write_engine(out / f"rank{rank}.engine", size)
        print_rank_build(rank, out, size)
    print_build_total()
    return 0


def write_engine(path: Path, size: int) -> None:
    """A file of ``size`` bytes with a hole in place of the program."""
    with path.open("wb") as file:
        file.write(b"ftrt")
        file.truncate(size)


def ranks_fit(engine: Path, ranks: int) -> bool:
    config = json.loads((engine / "config.json").read_text(encoding="utf-8"))
    needed = config["pretrained_config"]["mapping"]["world_size"]
    if needed != ranks:
        print(f"Assertion failed: mpiSize == tp * pp ({ranks} != {needed})")
    return bool(needed == ranks)


def run(machine: Machine, release: Release, given: argparse.Namespace) -> int:
    """Prints what run.py prints: special tokens are decoded, too."""
    if not ranks_fit(Path(given.engine_dir), int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))):
        return 1
    if not (Path(given.tokenizer_dir) / "tokenizer.json").is_file():
        print(f"OSError: Can't load tokenizer for '{given.tokenizer_dir}'")
        return 1
    for number, prompt in enumerate(given.input_text):
        answer = answer_of(machine, given, prompt)
        if given.streaming:
            print_streamed(number, prompt, answer, given.streaming_interval)
            continue
        print(f'Input [Text {number}]: "{prompt}"')
        print(f'Output [Text {number} Beam 0]: "{answer}<|eot_id|>"')
    return 0


def write_templates(release: str, folder: Path, models: Iterable[str] = ()) -> None:
    """The release's inflight_batcher_llm, with the data's variables in it; ``models``: only these of it."""
    from model_server.triton.repository import render_templates

    rendered = render_templates(release)
    for name in models or rendered:
        text = rendered[name]
        (folder / name / "1").mkdir(parents=True, exist_ok=True)
        (folder / name / "config.pbtxt").write_text(text, encoding="utf-8")
        (folder / name / "1" / ".tmp").write_text("")
        if name in SERVED_MODELS:
            (folder / name / "1" / "model.py").write_text("# NVIDIA's\n")


def fill_template(machine: Machine, release: Release, given: argparse.Namespace) -> int:
    """With that release's rules: escapes where it has them, and then an unknown variable is refused."""
    path = Path(given.file_path)
    template = path.read_text(encoding="utf-8")
    if machine.failure().get("tool") == "fills nothing":
        return 0
    values = {}
    if release.behaviour.fill_template_escapes.value:
        for pair in split_escaped(given.substitutions, ","):
            key, value = split_escaped(pair, ":")
            values[key] = value
    else:
        for pair in given.substitutions.split(","):
            key, value = pair.split(":")
            values[key] = value
    path.write_text(Template(template).safe_substitute(values), encoding="utf-8")
    return 0


def split_escaped(text: str, separator: str) -> list[str]:
    """Split at ``separator``; a backslash takes the next character as it is."""
    parts = [""]
    for token in re.findall(r"\\.|[^\\]", text, re.DOTALL):
        if token == separator:
            parts.append("")
        else:
            parts[-1] += token[-1]
    return parts


# The server.


def launch(machine: Machine, release: Release, given: argparse.Namespace) -> int:
    """Starts the ranks and returns at once, as the real script does."""
    folder = Path(given.model_repo)
    found = re.search(r'gpt_model_path"\s*value: \{\s*string_value: "([^"]+)"', read_config(folder, "tensorrt_llm"))
    if not found or not ranks_fit(Path(found[1]), given.world_size):
        return 1
    ports = [given.http_port, given.grpc_port, given.metrics_port]
    rank = ["/opt/tritonserver/bin/tritonserver", f"--model-repository={folder}"]
    words = ["--allow-run-as-root", *["-n", "1", *rank, ":"] * given.world_size, *(str(port) for port in ports)]
    subprocess.Popen(["mpirun", *words])
    return 0


def read_config(repository: Path, model: str) -> str:
    return (repository / model / "config.pbtxt").read_text(encoding="utf-8")


def tritonserver(machine: Machine, words: list[str]) -> int:
    """The embedded lane's server on the filled repository, with the tiny engine in place of the 70B one.

    Of the backend's figures /metrics has those of the release.
    """
    from model_server.triton.repository import CONDUCT_FILE, MODELS
    from model_server.triton.server import TritonServer
    from serving_base.processes import free_port
    from stand_in_metrics import metrics_server
    from trtllm_check.releases.templates import release_templates

    if machine.failure().get("tool") == "tritonserver":
        return fail(machine.failure())
    source = Path(next(word for word in words if word.startswith("--model-repository=")).partition("=")[2])
    served = machine.folder / f"served-{os.getpid()}"
    for path in source.glob("*/config.pbtxt"):
        name = path.parent.name
        text = re.sub(r"count: \d+", "count: 1", path.read_text(encoding="utf-8"))
        text = re.sub(r'(gpt_model_path"\s*value: \{\s*string_value: )"[^"]+"', rf'\1"{machine.tiny_engine}"', text)
        (served / name / "1").mkdir(parents=True)
        (served / name / "config.pbtxt").write_text(text, encoding="utf-8")
        if (MODELS / name).is_dir():
            shutil.copyfile(MODELS / name / "1" / "model.py", served / name / "1" / "model.py")
    conduct = {"unasked_outputs": release_templates(machine.release).unasked_outputs}
    (served / CONDUCT_FILE).write_text(json.dumps(conduct), encoding="utf-8")
    http, grpc, metrics = (int(word) for word in words[-3:])
    server = TritonServer(
        served, http_port=http, grpc_port=grpc, metrics_port=free_port(0, taken=(http, grpc, metrics))
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        start(server)
        with metrics_server(metrics, server.metrics_url.removesuffix("/metrics"), machine.release):
            signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        server.stop()
    return 0


def start(server: "TritonServer", attempts: int = 3) -> None:
    """On a machine that is busy elsewhere, the locks of Triton's python backend run out of time now and then."""
    for attempt in range(1, attempts + 1):
        try:
            server.start()
            return
        except ServerError:
            if attempt == attempts:
                raise


def run_in_torch(machine: Machine, words: list[str]) -> int:
    """The course's own script, really run: only on the CPU, and with the tiny model for 70B over eight GPUs."""
    script, job, result = (Path(word) for word in words)
    machine.note(script.name, words[1:], place=os.environ.get(PLACE, "host"))
    if machine.failure().get("tool") == script.name:
        return fail(machine.failure())
    asked = json.loads(job.read_text(encoding="utf-8"))
    model = asked.get("model")
    if asked["device_map"] != "auto" or (model and not (Path(model) / "model.safetensors.index.json").is_file()):
        print(f"RuntimeError: {model} does not fit into one GPU")
        return 1
    tiny = {"model": str(MODEL_DIR)} if model else {}
    here = json.dumps(asked | tiny | {"device_map": None})
    if not model or SHARED not in os.environ:
        return in_torch(script, here, machine.folder, result)
    told = hashlib.sha256(script.read_bytes() + here.encode()).hexdigest()[:16]
    found = made_once(f"torch-{told}", lambda folder: in_torch(script, here, folder, folder / RESULT)) / RESULT
    if not found.is_file():
        return 1
    shutil.copyfile(found, result)
    return 0


RESULT = "result.json"


def in_torch(script: Path, job: str, folder: Path, result: Path) -> int:
    """One run of the script; what it says of the same job and model does not change."""
    folder.mkdir(exist_ok=True)
    path = folder / "torch-job.json"
    path.write_text(job, encoding="utf-8")
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.call([sys.executable, str(script), str(path), str(result)], env=one_thread)


WORK: dict[str, Work] = {
    "quantize.py": quantize,
    "convert_checkpoint.py": convert,
    "trtllm-build": build,
    "run.py": run,
    "summarize.py": summarize,
    "fill_template.py": fill_template,
    "launch_triton_server.py": launch,
}
