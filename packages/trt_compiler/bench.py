"""What a chapter holds of NVIDIA's compiler: networks to compile and their tensors, each job in its own process."""

import inspect
import json
import shutil
import tempfile
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from cpu_serving.llama import LlamaShape
from serving_base.errors import EnvironmentProblem, UsageError
from serving_base.facts.models import ModelShape
from serving_base.processes import start_guarded, users_environment
from trt_compiler.environment import CompilerInstallation, find_compiler
from trt_compiler.steps import Compilation, unpack

CARRIED = ("cpu_serving", "model_server", "serving_base", "trt_compiler")
"""Our packages that the job may import: these alone, as the course's environment would bring its own numpy."""
Inputs = Mapping[str, tuple[str, Sequence[int]]]
"""Name -> (number format, shape); -1 is a size known only when the engine runs."""


class CompilerRefusal(UsageError):
    """A network or a function that the job could not write or compile."""


class CompilerBench:
    """NVIDIA's compiler in its own environment. Each call is one process, which is gone when the call returns."""

    def __init__(self, installation: CompilerInstallation) -> None:
        self.installation = installation

    def compile(self, checkpoint: Path, *, targets: Sequence[str] = (), **options: Any) -> Compilation:
        """A checkpoint's Llama. ``options``: the fields of :class:`trt_compiler.llama.NetworkOptions`."""
        asked = {"folder": str(checkpoint), "options": options, "targets": list(targets)}
        return _compilation(self._run("compile_checkpoint", asked)[0])

    def compile_shape(self, shape: ModelShape, *, fp8: bool, layers: int = 0, **options: Any) -> Compilation:
        """A model of which only the sizes are there. Its weights stay outside the engine. ``layers`` 0: all."""
        if not 0 <= layers <= shape.num_hidden_layers:
            fix = f"ask for 1 to {shape.num_hidden_layers}"
            raise UsageError(f"{shape.name} has no {layers} decoder layers", fix=fix)
        asked = asdict(_llama_shape(shape, fp8=fp8)) | ({"num_layers": layers} if layers else {})
        return _compilation(self._run("compile_shape", {"shape": asked, "options": options, "targets": []})[0])

    def compile_formats(self, names: Sequence[str], targets: Sequence[str]) -> dict[str, dict[str, Compilation]]:
        """One linear layer of 4096 x 4096 in each format, for each target alone."""
        found = self._run("compile_formats", {"names": list(names), "targets": list(targets)})[0]
        return {
            name: {target: _compilation(one) for target, one in by_target.items()} for name, by_target in found.items()
        }

    def compile_function(
        self, write: Callable[..., Any], inputs: Inputs, *, targets: Sequence[str] = (), flags: Sequence[str] = ()
    ) -> Compilation:
        """A function that writes a network: it gets a writer and the inputs, and returns the output or several."""
        asked = {**_source(write), "inputs": inputs, "targets": list(targets), "flags": list(flags)}
        return _compilation(self._run("compile_source", asked)[0])

    def run_function(self, write: Callable[..., Any], inputs: Inputs, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """The output of such a function for these values, computed layer by layer by numpy."""
        given = {name: value.tolist() for name, value in values.items()}
        return self._run("run_source", {**_source(write), "inputs": inputs, "values": given})[1]["y"]

    def limits(self) -> dict[str, list[str]]:
        """``targets`` that the library knows, and its ``plugin methods``."""
        found: dict[str, list[str]] = self._run("limits", {})[0]
        return found

    def tensors(self, checkpoint: Path, tokens: Sequence[int], **options: Any) -> dict[str, np.ndarray]:
        """Every tensor of the step that reads ``tokens``, by name, in the order of the layers; float32."""
        asked = {"folder": str(checkpoint), "options": options, "tokens": list(tokens)}
        names, arrays = self._run("list_tensors", asked)
        return {name: arrays[f"t{place}"] for place, name in enumerate(names)}

    def answer(
        self, checkpoint: Path, tokens: Sequence[int], *, max_new_tokens: int, end_id: int, **options: Any
    ) -> list[int]:
        """Greedy tokens of the written network, computed layer by layer by numpy."""
        asked = {
            "folder": str(checkpoint),
            "options": options,
            "tokens": list(tokens),
            "steps": max_new_tokens,
            "stop": end_id,
        }
        found: list[int] = self._run("answer", asked)[0]
        return found

    def write_onnx(self, checkpoint: Path, path: Path, *, max_seq_len: int = 2048) -> dict[str, int]:
        """A checkpoint's Llama as one ONNX file of standard operators; operator -> how many nodes of it."""
        asked = {"folder": str(checkpoint), "path": str(path.resolve()), "max_seq_len": max_seq_len}
        found: dict[str, int] = self._run("write_onnx", asked)[0]
        return found

    def answer_onnx(self, path: Path, tokens: Sequence[int], *, max_new_tokens: int, end_id: int) -> list[int]:
        """Greedy tokens of an ONNX file, by ONNX Runtime on the processor."""
        asked = {"path": str(path.resolve()), "tokens": list(tokens), "steps": max_new_tokens, "stop": end_id}
        found: list[int] = self._run("answer_onnx", asked)[0]
        return found

    def hand_over(self, folder: Path, tokens: Sequence[int], answer: Sequence[int], *, end_id: int) -> Path:
        """Put beside ONNX files what answers with them elsewhere: the script, the prompt, and the answer to compare."""
        asked = {"tokens": list(tokens), "steps": len(answer), "stop": end_id, "answer": list(answer)}
        (folder / "prompt.json").write_text(json.dumps(asked), encoding="utf-8")
        return Path(shutil.copy(Path(__file__).with_name("rtx_answer.py"), folder))

    def compile_onnx(self, path: Path, *, targets: Sequence[str] = ()) -> Compilation:
        """An ONNX file through NVIDIA's own parser and compiler."""
        return _compilation(self._run("compile_onnx", {"path": str(path.resolve()), "targets": list(targets)})[0])

    def _run(self, name: str, arguments: Mapping[str, Any]) -> tuple[Any, dict[str, np.ndarray]]:
        with tempfile.TemporaryDirectory(prefix="playbook-compiler-") as folder:
            asked, answered, arrays, packages, log = (
                Path(folder) / part for part in ("job.json", "result.json", "tensors.npz", "packages", "log")
            )
            asked.write_text(json.dumps({"name": name, "arguments": arguments}), encoding="utf-8")
            _link_packages(packages)
            argv = [str(self.installation.python), "-m", "trt_compiler.worker", *map(str, (asked, answered, arrays))]
            env = {"PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"}
            with start_guarded(argv, env=env, base=users_environment(), log_path=log, name=name) as process:
                status = process.wait()
                if not answered.exists():
                    why = process.tail().strip().splitlines()[-1:] or [f"exit status {status}, and it said nothing"]
                    raise EnvironmentProblem(f"NVIDIA's compiler ended during {name}", why=why[0], fix="try again")
            told = json.loads(answered.read_text(encoding="utf-8"))
            if "error" in told:
                what, why_, fix = told["error"]
                raise CompilerRefusal(what, why=why_, fix=fix)
            with np.load(arrays) as stored:
                return told["result"], dict(stored)


def open_compiler() -> CompilerBench:
    """The compiler of this machine. :class:`EnvironmentProblem` names the command that installs it."""
    return CompilerBench(find_compiler())


def _compilation(told: Mapping[str, Any]) -> Compilation:
    return Compilation(
        **{**told, "written": tuple(told["written"]), "steps": tuple(unpack(step) for step in told["steps"])}
    )


def _source(write: Callable[..., Any]) -> dict[str, str]:
    return {"source": textwrap.dedent(inspect.getsource(write)), "name": write.__name__}


def _link_packages(folder: Path) -> None:
    folder.mkdir()
    for package in CARRIED:
        spec = find_spec(package)
        assert spec is not None and spec.origin is not None
        (folder / package).symlink_to(Path(spec.origin).parent)


def _llama_shape(shape: ModelShape, *, fp8: bool) -> LlamaShape:
    algo = "FP8" if fp8 else None
    return LlamaShape(
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_layers=shape.num_hidden_layers,
        num_heads=shape.num_attention_heads,
        num_kv_heads=shape.num_key_value_heads,
        head_size=shape.head_dim,
        vocab_size=shape.vocab_size,
        norm_epsilon=shape.rms_norm_eps,
        rope_theta=shape.rope_theta,
        rope_scaling=None,
        max_position_embeddings=shape.max_position_embeddings,
        quant_algo=algo,
        kv_cache_quant_algo=algo,
    )
