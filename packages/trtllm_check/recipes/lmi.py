"""LMI: the ``serving.properties`` of each image, what an image would make of a given one, and the archive around it."""

import gzip
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving_base.errors import NotInRelease, ProfileError, UsageError
from trtllm_check.deployment import Deployment, changed
from trtllm_check.recipes.command import CONTAINER_ROOT, Command, Paths, docker_argv
from trtllm_check.recipes.properties import Fate, PropertyProblem, check_properties, fates, takes
from trtllm_check.releases import Release, load_release
from trtllm_check.releases.lmi import KvCache, LmiImage, Settings, lmi_facts, lmi_image, lmi_images
from trtllm_check.serving_properties import parse_properties

__all__ = [
    "EndpointModel",
    "Fate",
    "FittedProfile",
    "PropertyProblem",
    "check_properties",
    "compile_ahead",
    "endpoint_model",
    "environment",
    "fates",
    "fitted",
    "image_uri",
    "lmi_image",
    "lmi_images",
    "pack",
    "parse_properties",
    "recommended_image",
    "serving_properties",
    "vllm_image",
]


PLAIN = {"qformat": "full_prec", "kv_cache_dtype": "auto"}
JIT_STARTUP_S = 3600
"""SageMaker's longest health check: the image builds at every start before it answers."""
STARTUP_S = 1800
FILE_NAME = "serving.properties"
ARCHIVE_NAME = "model.tar.gz"
REGION = "us-east-1"  # of the printed commands
BUCKET = "s3://your-bucket"
WRITE_LINES = 'mkdir -p "$0" && printf "%s\\n" "$@" > "$0/serving.properties"'
LOGIN = 'aws ecr get-login-password --region "$0" | docker login --username AWS --password-stdin "$1"'
WHY_AHEAD = (
    "Without this the image builds at every start: 7 minutes and more for a 70B model, past SageMaker's default health "
    "check. The engine serves on the GPU architecture that it was built on (djl-serving@3d6ad832 "
    "trtllm_aot_tutorial.md)."
)
SHORT_DTYPE = {"bfloat16": "bf16", "float16": "fp16"}


@dataclass(frozen=True)
class FittedProfile:
    """The profile as the image can serve it, and in sentences what is left out of the one that was asked for."""

    profile: Deployment
    left_out: tuple[str, ...]


def fitted(profile: Deployment, image: LmiImage, *, quantized: bool = False) -> FittedProfile:
    """What ``image`` makes of ``profile``; ``quantized``: it is given a checkpoint that is quantized already.

    Raises :class:`NotInRelease` if the GPUs cannot hold what remains.
    """
    missing = missing_formats(profile, image, quantized=quantized)
    staged = one_stage(profile, image)
    stages = (
        f"{image.tag} takes one pipeline stage: tensor parallelism over {staged.tp} GPUs "
        f"instead of {profile.tp} x {profile.pp}."
    )
    try:
        left = changed(staged, **{field: PLAIN[field] for field in missing})
    except ProfileError as error:
        raise NotInRelease(
            f"{image.tag} cannot serve profile {profile.name}", why=error.what, fix="use a profile with more GPUs"
        ) from error
    return FittedProfile(left, (*([] if staged == profile else [stages]), *missing.values()))


def one_stage(profile: Deployment, image: LmiImage) -> Deployment:
    """The same GPUs in one pipeline stage, if that is all that ``image`` takes."""
    if takes(image, "option.pipeline_parallel_degree", str(profile.pp)):
        return profile
    return changed(profile, tp=profile.world_size, pp=1)


def missing_formats(profile: Deployment, image: LmiImage, *, quantized: bool = False) -> dict[str, str]:
    """Fields of ``profile`` that ask for a format without an option in ``image``, each with a sentence on it."""
    family = lmi_facts().family(image)
    known = family.checkpoints if quantized else family.quantization
    missing = {}
    qformat = profile.qformat
    if qformat not in (PLAIN["qformat"], *known):
        missing["qformat"] = f"{image.tag} has no option for {qformat}: the model stays in {profile.dtype}."
        qformat = "full_prec"
    asked = profile.kv_cache_dtype
    cache = family.kv_cache.get(asked)
    if cache and not _goes_with(cache, qformat, profile.gpu_arch):
        missing["kv_cache_dtype"] = f"{', '.join(cache.settings)} is left out: {cache.why} ({cache.source})."
    if not cache and asked != PLAIN["kv_cache_dtype"]:
        missing["kv_cache_dtype"] = f"{image.tag} has no option for a KV cache in {asked}: the image chooses."
    return missing


def _goes_with(cache: KvCache, qformat: str, architecture: str) -> bool:
    return qformat in (cache.qformats or (qformat,)) and architecture in (cache.architectures or (architecture,))


@dataclass(frozen=True)
class EndpointModel:
    """The folder that goes to S3, and what the image does with it.

    ``profile``: what the image can serve of the one that was asked for, ``left_out`` the rest in sentences.
    ``startup_timeout_s``: how long the endpoint may take before its health check fails.
    """

    source: Path
    compiled: bool
    quantized: bool
    profile: Deployment
    left_out: tuple[str, ...]
    why: str
    startup_timeout_s: int


def endpoint_model(profile: Deployment, image: LmiImage, folder: Path, *, same_build: bool = False) -> EndpointModel:
    """The best of what is in the profile's workspace ``folder`` for ``image``; asks nothing of anybody.

    Engines of that image (stage ``lmi`` builds them into ``lmi-engine``) start fastest. Without them the image gets
    the checkpoint and builds at every start. ``same_build``: the container is this machine's own, which loads chapter
    03's engine whatever the image.
    """
    ahead = folder / ("engine" if same_build else "lmi-engine")
    if (same_build or image.engine_release) and ahead.is_dir():
        quantized = not image.engine_release
        fit = fitted(profile, image, quantized=quantized) if quantized else FittedProfile(profile, ())
        why = "it was built before, so a start only downloads and loads it"
        return EndpointModel(ahead, True, quantized, fit.profile, fit.left_out, why, STARTUP_S)
    quantized = loads_own_checkpoint(profile, load_release(profile.release), image)
    source = folder / ("checkpoint" if quantized else "model")
    fit = fitted(profile, image, quantized=quantized)
    timeout = JIT_STARTUP_S if image.engine_release else STARTUP_S
    return EndpointModel(source, False, quantized, fit.profile, fit.left_out, _why(image, quantized), timeout)


def loads_own_checkpoint(profile: Deployment, release: Release, image: LmiImage) -> bool:
    """True if the release's own checkpoint is one that the image loads: the unified one of the PyTorch flow."""
    own = not image.engine_release and not release.builds_engines
    return own and profile.qformat in lmi_facts().family(image).checkpoints


def _why(image: LmiImage, quantized: bool) -> str:
    if image.engine_release:
        return f"there is no lmi-engine folder, so {image.tag} quantizes and builds at every start (just in time)"
    what = "loads the quantized checkpoint" if quantized else "loads the checkpoint and quantizes it"
    return f"AWS publishes no image with engines of this release, so the vLLM one {what} at every start"


def recommended_image(release: str) -> LmiImage:
    """The first image for engines of a TensorRT-LLM release; if AWS publishes none, the newest vLLM one."""
    return next(iter(lmi_images(release)), vllm_image())


def vllm_image() -> LmiImage:
    """The newest image with vLLM."""
    return [image for image in lmi_facts().images if not image.engine_release][-1]


def serving_properties(
    profile: Deployment, image: str, *, model_id: str, compiled: bool = True, quantized: bool = False
) -> str:
    """The file for this profile and image. :class:`UsageError` for a format that the image has no option for.

    ``compiled``: ``model_id`` holds engines, so what only matters for building one is left out. Otherwise it is a
    Hugging Face checkpoint, ``quantized`` already or not, from which the image makes what it serves at start-up.
    Pipeline stages become tensor parallelism over the same GPUs in an image that takes one stage.
    """
    chosen = lmi_image(image)
    family = lmi_facts().family(chosen)
    templates = dict(family.settings)
    if not compiled or not chosen.engine_release:
        templates |= family.build_settings | _format_settings(profile, chosen, quantized)
    values = one_stage(profile, chosen).model_dump()
    values |= {"model_id": model_id, "short_dtype": SHORT_DTYPE[profile.dtype]}
    return _text({key: template.format(**values) for key, template in templates.items()})


def _format_settings(profile: Deployment, image: LmiImage, quantized: bool) -> Settings:
    missing = missing_formats(profile, image, quantized=quantized)
    if missing:
        raise UsageError(
            f"{image.tag} does not serve what profile {profile.name} asks for",
            why=" ".join(missing.values()),
            fix="use another image, or lmi.fitted(profile, image).profile: what this one can do",
        )
    family = lmi_facts().family(image)
    formats = family.checkpoints if quantized else family.quantization
    cache = family.kv_cache.get(profile.kv_cache_dtype)
    return formats.get(profile.qformat, {}) | (cache.settings if cache else {})


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


def compile_ahead(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    """Stage lmi: build ahead of time in the image that will serve, and upload what the endpoint loads.

    Without an image for this release's engines there is nothing to build: vLLM's image gets a checkpoint, the
    quantized one if the release makes one that it loads.
    """
    image = recommended_image(release.name)
    folder = f"{paths.host_root}/{profile.name}"
    place = f"{BUCKET}/{profile.name}/model/"
    if image.engine_release:
        fit = fitted(profile, image)
        endpoint = serving_properties(fit.profile, image.tag, model_id=place)
        built = _build(fit, image, folder, Paths.under(CONTAINER_ROOT, profile.name, host_root=paths.host_root))
        return [*built, *_publish(image, endpoint, folder, "lmi-engine", place)]
    quantized = loads_own_checkpoint(profile, release, image)
    fit = fitted(profile, image, quantized=quantized)
    endpoint = serving_properties(fit.profile, image.tag, model_id=place, quantized=quantized)
    why = f"No LMI image runs TensorRT-LLM {release.name}: the vLLM one serves the checkpoint. "
    return _publish(image, endpoint, folder, "checkpoint" if quantized else "model", place, why, fit.left_out)


def _build(fit: FittedProfile, image: LmiImage, folder: str, inside: Paths) -> list[Command]:
    uri = image_uri(image.tag, REGION)
    options = serving_properties(fit.profile, image.tag, model_id=inside.model, compiled=False)
    family = lmi_facts().family(image)
    why = f"The options of the build, as the image reads them; confidence {family.confidence}: {family.note}."
    return [
        Command("lmi", "bash", _write(f"{folder}/lmi", options), why=why, left_out=fit.left_out),
        Command("lmi", "bash", ("bash", "-c", LOGIN, REGION, uri.partition("/")[0]), why=_availability(image)),
        Command("lmi", "docker", _partition(fit.profile, image, uri, inside), why=f"{WHY_AHEAD}{_differ(image)}"),
    ]


def _partition(profile: Deployment, image: LmiImage, uri: str, inside: Paths) -> tuple[str, ...]:
    script = lmi_facts().family(image).partition
    assert script is not None, f"{image.tag} builds engines without a script"
    root = f"{inside.root}/{profile.name}"
    values = {
        "--properties_dir": f"{root}/lmi",
        "--trt_llm_model_repo": f"{root}/lmi-engine",
        "--tensor_parallel_degree": str(profile.tp),
        "--pipeline_parallel_degree": str(profile.pp),
        "--model_path": inside.model,
    }
    arguments = [word for flag in script.arguments for word in (flag, values[flag])]
    return docker_argv(Command("lmi", "python", ("python", script.path, *arguments), uri), inside.mounts)


def _availability(image: LmiImage) -> str:
    if not image.removed:
        return "AWS's registry wants a login."
    return (
        "AWS's registry wants a login. It took this image off its list of available ones on "
        f"{image.removed} ({image.source}); whether it can still be pulled is not known."
    )


def _differ(image: LmiImage) -> str:
    return f" Build in this image, not in {image.triton}: {image.engines_differ}." if image.engines_differ else ""


def _publish(
    image: LmiImage,
    endpoint: str,
    folder: str,
    model: str,
    place: str,
    why: str = "",
    left_out: tuple[str, ...] = (),
) -> list[Command]:
    """The endpoint's file in an archive, and both the model and the archive in S3."""
    own = f"{folder}/lmi-endpoint"
    archive = f"{own}/{ARCHIVE_NAME}"
    reads = f"{why}What the endpoint's container reads ({image.tag})."
    return [
        Command("lmi", "bash", _write(own, endpoint), why=reads, left_out=left_out),
        Command("lmi", "tar", ("tar", "-czf", archive, "-C", own, FILE_NAME), why="SageMaker unpacks it at the start."),
        _upload(f"{folder}/{model}", place, "option.model_id is this place; put the name of your bucket there."),
        _upload(archive, place.replace("/model/", f"/{ARCHIVE_NAME}"), "The endpoint's ModelDataUrl is this place."),
    ]


def _write(folder: str, text: str) -> tuple[str, ...]:
    return ("bash", "-c", WRITE_LINES, folder, *text.splitlines())


def _upload(source: str, place: str, why: str) -> Command:
    recursive = ("--recursive",) if place.endswith("/") else ()
    return Command("lmi", "aws", ("aws", "s3", "cp", *recursive, source, place), why=why)


def _text(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())
