"""Make the table of SageMaker's images: packages/trtllm_check/releases/data/sagemaker/images.yml.

    python -m benchmarks.checker.sagemaker_images --mirror FOLDER   # a git repository of aws/sagemaker-python-sdk

Read is what the SDK itself looks up, image_uri_config/*.json, at the head of the repository.
"""

import argparse
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).parents[2] / "packages/trtllm_check/releases/data/sagemaker/images.yml"
FOLDER = "sagemaker-core/src/sagemaker/core/image_uri_config"
TAGGED = ("djl-lmi", "djl-deepspeed", "djl-tensorrtllm", "djl-neuronx", "djl-fastertransformer", "huggingface-llm")
LIBRARY = "huggingface"  # its versions are those of transformers, each with versions of PyTorch
WIDTH = 118
HEAD = """# Made by benchmarks/checker/sagemaker_images.py; see packages/trtllm_check/releases/sagemaker.py.
# `tags`: how the tag of each version begins; `aliases`: shorter names of versions; `transformers`: for each version of
# transformers the versions of PyTorch and, for each of those, of Python; `frameworks`: what image_uris.retrieve knows.
"""


def _git(mirror: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(mirror), *words], check=True, capture_output=True, text=True).stdout


def table(mirror: Path) -> dict[str, Any]:
    """What the SDK at the head of ``mirror`` knows."""
    names = _git(mirror, "ls-tree", "--name-only", "HEAD", f"{FOLDER}/").split()
    frameworks = sorted(Path(name).stem for name in names if name.endswith(".json"))
    configs = {name: json.loads(_git(mirror, "show", f"HEAD:{FOLDER}/{name}.json")) for name in (*TAGGED, LIBRARY)}
    commit = _git(mirror, "rev-parse", "--short=8", "HEAD").strip()
    return {
        "source": f"aws/sagemaker-python-sdk@{commit} {FOLDER}",
        "tags": {name: _tags(_serving(configs[name])) for name in TAGGED},
        "aliases": {
            name: one for name in (*TAGGED, LIBRARY) if (one := _serving(configs[name]).get("version_aliases"))
        },
        "transformers": _transformers(_serving(configs[LIBRARY])),
        "frameworks": " ".join(frameworks),
    }


def _serving(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = config.get("inference", config)
    return found


def _tags(config: Mapping[str, Any]) -> dict[str, str]:
    return {version: entry["tag_prefix"] for version, entry in config["versions"].items()}


def _transformers(config: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    prefix = "pytorch"
    return {
        version: {
            name.removeprefix(prefix): " ".join(one["py_versions"])
            for name, one in entry.items()
            if name.startswith(prefix)
        }
        for version, entry in config["versions"].items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirror", type=Path, required=True)
    content = yaml.safe_dump(table(parser.parse_args().mirror), sort_keys=False, width=WIDTH)
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(HEAD + content, encoding="utf-8")


if __name__ == "__main__":
    main()
