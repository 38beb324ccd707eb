"""A quantization in a Python of its own, on its GPUs: ``python -m ptq.job JOB.json RESULT.json``.

For the interpreter that has CUDA's PyTorch, where the course's own has a CPU build. The job: ``model`` (folder),
``out``, ``options`` (fields of :class:`ptq.quantize.QuantizeOptions`), ``texts`` (lists of token ids) or ``dataset``
(of :class:`ptq.dataset.TextDataset`), ``layouts`` (layout -> folder below ``out``), ``device_map``.
The result: :class:`JobResult`.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ptq.dataset import TextDataset, dataset_texts
from ptq.quantize import QuantizeOptions, apply_quantization, check_options, export_checkpoint, export_hf, load_model


@dataclass
class JobResult:
    """Seconds and peak GPU memory (GB of all GPUs together, 0 on a CPU) of each step, and what it ran on."""

    device: str = ""
    torch: str = ""
    modelopt: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    gpu_peak_gb: dict[str, float] = field(default_factory=dict)
    checkpoint_bytes: dict[str, int] = field(default_factory=dict)


def run(job: dict[str, Any]) -> JobResult:
    """Load, quantize on the job's texts, and write every layout that is asked for."""
    import importlib.metadata

    import torch

    options, out = QuantizeOptions(**job["options"]), Path(job["out"])
    check_options(options)
    texts = job["texts"]
    if "dataset" in job:
        dataset = TextDataset(**job["dataset"])
        texts = dataset_texts(dataset, Path(job["model"]), options.calib_samples, options.calib_max_length)
    found = JobResult(torch=torch.__version__, modelopt=importlib.metadata.version("nvidia-modelopt"))
    with timed(found, "load"):
        model = load_model(Path(job["model"]), options.dtype, job["device_map"])
    found.device = torch.cuda.get_device_name() if model.device.type == "cuda" else "CPU"
    with timed(found, "calibrate"):
        apply_quantization(model, options, texts)
    for layout, folder in job["layouts"].items():
        with timed(found, f"export {layout}"):
            EXPORTS[layout](model, Path(job["model"]), out / folder, options)
        found.checkpoint_bytes[layout] = sum(path.stat().st_size for path in (out / folder).glob("*.safetensors"))
    return found


Export = Callable[[Any, Path, Path, QuantizeOptions], None]
EXPORTS: dict[str, Export] = {
    "hf": lambda model, source, out, options: export_hf(model, source, out),
    "tensorrt_llm": export_checkpoint,
}


@contextmanager
def timed(found: JobResult, step: str) -> Iterator[None]:
    """Note how long a step takes, and the largest memory of the GPUs in it."""
    import torch

    cuda = range(torch.cuda.device_count())
    if cuda:
        torch.cuda.init()  # before it, a GPU's memory figures cannot be reset: "Invalid device argument"
    for device in cuda:
        torch.cuda.reset_peak_memory_stats(device)
    started = time.perf_counter()
    yield
    for device in cuda:
        torch.cuda.synchronize(device)
    found.seconds[step] = time.perf_counter() - started
    found.gpu_peak_gb[step] = sum(torch.cuda.max_memory_allocated(device) for device in cuda) / 1e9
    print(f"job: {step}: {found.seconds[step]:.1f} s, {found.gpu_peak_gb[step]:.1f} GB of GPU memory", flush=True)


def main() -> None:
    job, result = (Path(word) for word in sys.argv[1:3])
    found = run(json.loads(job.read_text(encoding="utf-8")))
    result.write_text(json.dumps(asdict(found), indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
