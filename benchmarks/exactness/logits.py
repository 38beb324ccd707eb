"""What a model thinks of a token and of another one: ``python3 logits.py JOB.json RESULT.json``.

Only torch and transformers, so that the Python of any engine runs it. The job: ``model`` (folder), ``device_map`` as in
:mod:`serving_base.reference_run`, ``cases``: lists of ``ids`` and of ``tokens`` that may follow them. The result: for
every case the ``tokens``' logits in ``float32`` and in ``bfloat16``.
"""

import json
import sys
from pathlib import Path
from typing import Any

DTYPES = ("float32", "bfloat16")


def run(job: dict[str, Any]) -> list[dict[str, list[float]]]:
    """Load the model once in each format."""
    import torch
    import transformers

    found: list[dict[str, list[float]]] = [{} for _ in job["cases"]]
    for name in DTYPES:
        options = {"dtype": getattr(torch, name), "device_map": job["device_map"]}
        model = transformers.AutoModelForCausalLM.from_pretrained(job["model"], **options).eval()
        for case, logits in zip(job["cases"], found, strict=True):
            with torch.inference_mode():
                scores = model(input_ids=torch.tensor([case["ids"]], device=model.device)).logits[0, -1]
            logits[name] = [float(scores[token]) for token in case["tokens"]]
    return found


def main() -> None:
    job, result = (Path(word) for word in sys.argv[1:3])
    result.write_text(json.dumps(run(json.loads(job.read_text(encoding="utf-8")))), encoding="utf-8")


if __name__ == "__main__":
    main()
