"""The download of a gated model, checked before it (token, access, disk) and after it (every byte there)."""

import json
import os
import shutil
import struct
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

from gpu_serving.execute import TOKEN, execute_all, logs, setting
from serving_base.errors import EnvironmentProblem, PlaybookError
from trtllm_check.deployment import Deployment
from trtllm_check.recipes import commands

SECOND_COPY = "original/*"  # the same weights in Meta's own format
SPARE = 1.05  # of the download's size, for the client's partial files


def fetch(profile: Deployment, out: Path, *, root: Path) -> None:
    """Download the model and put its files into ``out``.

    Token, access and disk are checked before the first byte, every file's size after the last. The download stays
    under ``<root>/downloads``, so an interrupted one goes on where it stopped, and profiles share it.
    """
    sizes = file_sizes(profile.shape.hf_id)
    downloads = root / "downloads" / profile.model
    downloads.mkdir(parents=True, exist_ok=True)
    require_space(sizes, downloads)
    release, paths = setting(profile, root)
    paths = replace(paths, model=str(downloads))
    execute_all(commands(profile, release, "fetch", paths), paths, logs(profile, root), writes=downloads)
    verify(downloads, sizes)
    shutil.copytree(downloads, out, copy_function=os.link, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".cache"))


def file_sizes(hf_id: str) -> dict[str, int]:
    """Bytes of each file that the recipe downloads, by name, as the hub lists them.

    The token comes from ``$HF_TOKEN`` only. Raises :class:`EnvironmentProblem` when it is missing, the model is not
    granted to it, or the hub cannot be reached.
    """
    token = os.environ.get(TOKEN, "")
    if not token:
        raise EnvironmentProblem(
            f"{TOKEN} is not set",
            why=f"{hf_id} is gated: Hugging Face gives it only to accounts that accepted its licence",
            fix=f"accept the licence on huggingface.co/{hf_id}, then export {TOKEN} in the shell that starts this",
        )
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, OfflineModeIsEnabled, RepositoryNotFoundError

    hub = HfApi(token=token)
    try:
        hub.auth_check(hf_id)
        listed = hub.model_info(hf_id, files_metadata=True).siblings or []
    except GatedRepoError:
        raise _refused(hf_id, "the account of this token has not been granted the model") from None
    except RepositoryNotFoundError:
        raise _refused(hf_id, "the hub does not know this token, or the model") from None
    except (HfHubHTTPError, httpx.HTTPError, OfflineModeIsEnabled) as error:
        raise EnvironmentProblem(
            f"huggingface.co did not answer for {hf_id}",
            why=str(error).replace(token, "[hidden]"),
            fix="check the network, and that HF_HUB_OFFLINE is not set",
        ) from None
    return {file.rfilename: file.size or 0 for file in listed if not fnmatch(file.rfilename, SECOND_COPY)}


def require_space(sizes: dict[str, int], folder: Path) -> None:
    """Refuse a download that does not fit; what ``folder`` already holds of it is not counted again."""
    present = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    needed = int(max(0, sum(sizes.values()) * SPARE - present))
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise EnvironmentProblem(
            f"the download needs {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free under {folder}",
            why=f"the files are {sum(sizes.values()) / 1e9:.1f} GB",
            fix="free space, or use a workspace on a larger disk; nothing was downloaded",
        )


def verify(folder: Path, sizes: dict[str, int]) -> None:
    """Compare each file with the hub's size, and the shards' tensors with the total in the model's own index."""
    wrong = [
        f"{name} has {_size(folder / name)} bytes instead of {size}"
        for name, size in sizes.items()
        if _size(folder / name) != size
    ]
    if wrong:
        raise _damaged(folder, "; ".join(wrong))
    index_path = folder / "model.safetensors.index.json"
    if index_path.is_file():
        _verify_index(folder, json.loads(index_path.read_text(encoding="utf-8")))


def _verify_index(folder: Path, index: dict[str, dict[str, object]]) -> None:
    shards = sorted({str(shard) for shard in index["weight_map"].values()})
    absent = [shard for shard in shards if not (folder / shard).is_file()]
    if absent:
        raise _damaged(folder, f"the index names {', '.join(absent)}, which is not there")
    found = sum(_tensor_bytes(folder / shard) for shard in shards)
    if found != index["metadata"]["total_size"]:
        total = index["metadata"]["total_size"]
        raise _damaged(folder, f"its shards hold {found} bytes of tensors, the index says {total}")


def _tensor_bytes(shard: Path) -> int:
    """Bytes after the header; a safetensors file starts with the header's length as a 64-bit integer."""
    with shard.open("rb") as file:
        (header_bytes,) = struct.unpack("<Q", file.read(8))
    return shard.stat().st_size - 8 - int(header_bytes)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _refused(hf_id: str, why: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"Hugging Face refuses {hf_id}",
        why=why,
        fix=f"accept the licence on huggingface.co/{hf_id} with the account whose read token is in {TOKEN}",
    )


def _damaged(folder: Path, why: str) -> PlaybookError:
    return PlaybookError(f"the model in {folder} is not complete", why=why, fix="run it again: the download goes on")
