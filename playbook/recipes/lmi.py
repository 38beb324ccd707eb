"""LMI: the ``serving.properties`` of each image, what an image would make of a given one, and the archive around it."""

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from playbook.errors import UsageError
from playbook.profile import Profile
from playbook.recipes.command import CONTAINER_ROOT, Command, Paths, docker_argv
from playbook.recipes.properties import Fate, Finding, check_properties, fates
from playbook.releases import Release
from playbook.releases.lmi import LmiImage, lmi_facts, lmi_image, lmi_images
from playbook.serving_properties import parse_properties

__all__ = [
    "Fate",
    "Finding",
    "article_properties",
    "check_properties",
    "compile_ahead",
    "environment",
    "fate",
    "image_uri",
    "lmi_image",
    "lmi_images",
    "pack",
    "parse_properties",
    "recommended_image",
    "serving_properties",
]

FILE_NAME = "serving.properties"
REGION = "us-east-1"  # of the printed commands
WRITE_LINES = 'mkdir -p "$0" && printf "%s\\n" "$@" > "$0/serving.properties"'
WHY_AHEAD = (
    "Without this the image builds at every start: 7 minutes and more for a 70B model "
    "(djl-serving@3d6ad832 trtllm_aot_tutorial.md), past SageMaker's default health check."
)
MODEL_PLACE = "s3://your-bucket/llama-3-70b/"
SHORT_DTYPE = {"bfloat16": "bf16", "float16": "fp16"}


def recommended_image(release: str) -> LmiImage:
    """The image for engines of a TensorRT-LLM release; where AWS publishes none, the vLLM one for checkpoints."""
    with_engines = lmi_images(release)
    without = [image for image in lmi_facts().images if not image.engine_release]
    return (with_engines or without)[0]


def serving_properties(profile: Profile, image: str, *, model_id: str, compiled: bool = True) -> str:
    """The file for this profile and image.

    ``compiled``: ``model_id`` holds engines, so what only matters for building one is left out. Otherwise it is a
    Hugging Face checkpoint, from which the image makes what it serves at start-up.
    """
    chosen = lmi_image(image)
    family = lmi_facts().family(chosen)
    builds = not compiled or not chosen.engine_release
    templates = dict(family.settings)
    if builds:
        templates |= family.build_settings
        templates |= _wanted(family.quantization, profile.qformat, none="full_prec", image=image)
        templates |= _wanted(family.kv_cache, profile.kv_cache_dtype, none="auto", image=image)
    values = profile.model_dump() | {"model_id": model_id, "short_dtype": SHORT_DTYPE[profile.dtype]}
    return _text({key: template.format(**values) for key, template in templates.items()})


def _wanted(settings: Mapping[str, dict[str, str]], name: str, *, none: str, image: str) -> dict[str, str]:
    if name != none and name not in settings:
        raise UsageError(
            f"{image} makes no {name} model",
            why=f"it knows: {', '.join(settings)}",
            fix="use another image, or a profile with another qformat and kv_cache_dtype",
        )
    return settings.get(name, {})


def article_properties(*, model_id: str = MODEL_PLACE, max_num_tokens: int = 50000) -> str:
    """The AWS article's file: its keys and values; ``model_id`` and ``max_num_tokens`` are the reader's."""
    settings = lmi_facts().article.settings
    return _text({key: text.format(model_id=model_id, max_num_tokens=max_num_tokens) for key, text in settings.items()})


def fate(image: str) -> list[Fate]:
    """What became of each line of the article's file in ``image``."""
    return fates(article_properties(), image)


def environment(text: str) -> dict[str, str]:
    """The same settings as variables of the container; a ``serving.properties`` beside them would win.

    djl-serving@d21927c4 serving/docs/lmi/deployment_guide/configurations.md: ``option.x`` is ``OPTION_X``, other keys
    ``SERVING_Y``, the model and its tensor parallelism have names of their own.
    """
    own = {"option.model_id": "HF_MODEL_ID", "option.tensor_parallel_degree": "TENSOR_PARALLEL_DEGREE"}
    return {own.get(key) or _variable(key): value for key, value in parse_properties(text).items()}


def _variable(key: str) -> str:
    prefix, _, name = key.rpartition("option.")
    return f"OPTION_{name.upper()}" if key.startswith("option.") else f"SERVING_{(prefix or name).upper()}"


def pack(properties: str, out: Path) -> Path:
    """Write ``model.tar.gz`` with ``serving.properties`` at its root; the same text gives the same bytes."""
    data = properties.encode()
    member = tarfile.TarInfo(FILE_NAME)
    member.size, member.mode = len(data), 0o644
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        archive.addfile(member, io.BytesIO(data))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(gzip.compress(inner.getvalue(), mtime=0))
    return out


def image_uri(image: str, region: str) -> str:
    """The image's address in ``region``; :class:`UsageError` for a region without these images."""
    facts = lmi_facts()
    for account, regions in facts.accounts.items():
        if region in regions:
            suffixes = (suffix for start, suffix in facts.dns_suffixes.items() if region.startswith(start))
            domain = next(suffixes, "amazonaws.com")
            return f"{account}.dkr.ecr.{region}.{domain}/djl-inference:{lmi_image(image).tag}"
    known = sorted(region for regions in facts.accounts.values() for region in regions)
    raise UsageError(f"no LMI images are known in region {region!r}", fix=f"use one of: {', '.join(known)}")


def compile_ahead(profile: Profile, release: Release, paths: Paths) -> list[Command]:
    """Stage lmi: build ahead of time in the image that will serve, and upload what it loads.

    djl-serving@3d6ad832 serving/docs/lmi/tutorials/trtllm_aot_tutorial.md. Without an image for this release's engines
    there is nothing to build, and the checkpoint itself is uploaded.
    """
    image = recommended_image(release.name)
    folder = f"{paths.host_root}/{profile.name}"
    if not image.engine_release:
        why = f"No LMI image loads engines of TensorRT-LLM {release.name}; {image.tag} takes the checkpoint itself."
        return [_upload(f"{folder}/model", why)]
    inside = Paths.under(CONTAINER_ROOT, profile.name, host_root=paths.host_root)
    lines = serving_properties(profile, image.tag, model_id=inside.model, compiled=False).splitlines()
    write = ("bash", "-c", WRITE_LINES, f"{folder}/lmi", *lines)
    partition = (
        *("python", lmi_facts().family(image).partition),
        *("--properties_dir", f"{inside.root}/{profile.name}/lmi"),
        *("--trt_llm_model_repo", f"{inside.root}/{profile.name}/lmi-engine"),
        *("--tensor_parallel_degree", str(profile.tp)),
        *("--pipeline_parallel_degree", str(profile.pp)),
        *("--model_path", inside.model),
    )
    uri = image_uri(image.tag, REGION)
    build = Command("lmi", "python", partition, uri)
    registry = uri.partition("/")[0]
    return [
        Command("lmi", "bash", write, why="The options of the build, as the image reads them."),
        Command(
            "lmi",
            "docker",
            docker_argv(build, inside.mounts),
            why=f"{WHY_AHEAD} {registry} wants a docker login first.",
        ),
        _upload(f"{folder}/lmi-engine", "option.model_id of the endpoint is this place."),
    ]


def _upload(folder: str, why: str) -> Command:
    return Command("lmi", "aws", ("aws", "s3", "cp", "--recursive", folder, MODEL_PLACE), why=why)


def _text(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())
