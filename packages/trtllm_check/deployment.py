"""Deployments: which machine, model, precision, parallelism and limits an engine has; what the recipes read."""

from difflib import get_close_matches
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from serving_base.errors import ProfileError, UsageError
from serving_base.facts import fit
from serving_base.facts.fit import CALIBRATION_SOURCE, Fit, fits
from serving_base.facts.gpus import GIB, Gpu, find_gpu, gpus
from serving_base.facts.models import ModelShape, model_shape
from serving_base.facts.prices import known_usd_per_hour
from serving_base.record import Record

Qformat = Literal["fp8", "int8_sq", "int8_wo", "int4_awq", "w4a8_awq", "int4_gptq", "full_prec"]
FP8_ARITHMETIC = ("fp8", "w4a8_awq")
NO_GPU = "none"
THIS_MACHINE = "this machine"
Settings = TypeVar("Settings", bound=BaseModel)


class Deployment(Record):
    """One machine and one way to serve one model on it. Fields carry the names of the tools' flags."""

    model_config = ConfigDict(populate_by_name=True)

    name: str = Field(description="name of the deployment: also its folder in the workspace")
    release: str = Field("0.12.0", description="TensorRT-LLM release whose commands and templates are used")
    model: str = Field(description="tiny, llama-3-8b-instruct or llama-3-70b-instruct")
    instance: str = Field(THIS_MACHINE, description="instance type")
    own_usd_per_hour: float = Field(
        0.0, ge=0, alias="usd_per_hour", description="what you pay for the instance; 0: the dated price that ships"
    )
    gpu: str = Field(NO_GPU, description="GPU type, a name or an alias of packages/serving_base/facts/gpus.yml")
    gpu_count: int = Field(0, ge=0, description="GPUs of the machine")
    runner: Literal["docker", "inside", "native"] = Field(
        "native", description="docker: in the release's container; inside: we are in it; native: installed packages"
    )
    dtype: Literal["bfloat16", "float16"] = Field("bfloat16", description="compute type of what is not quantized")
    qformat: Qformat = Field("fp8", description="quantization of the linear layers")
    kv_cache_dtype: Literal["fp8", "int8", "auto"] = Field("fp8", description="KV cache precision; auto: as dtype")
    tp: int = Field(1, ge=1, description="tensor parallelism")
    pp: int = Field(1, ge=1, description="pipeline parallelism")
    calib_samples: int = Field(512, ge=1, description="texts shown to the model during calibration")
    calib_max_length: int = Field(512, ge=8, description="tokens per calibration text")
    max_batch_size: int = Field(64, ge=1, description="requests in flight at once")
    max_num_tokens: int = Field(8192, ge=1, description="tokens per engine step, all requests together")
    max_input_len: int = Field(2048, ge=1, description="tokens of the longest prompt")
    max_seq_len: int = Field(4096, ge=2, description="tokens of the longest prompt and answer together")
    kv_cache_free_gpu_mem_fraction: float = Field(0.9, gt=0, lt=1, description="share of free memory for the KV cache")
    decoupled: bool = Field(True, description="several answers per request: needed for streaming")

    @property
    def world_size(self) -> int:
        """Ranks of the engine: TP x PP."""
        return self.tp * self.pp

    @property
    def shape(self) -> ModelShape:
        return model_shape(self.model)

    @property
    def hardware(self) -> Gpu | None:
        """The facts on one GPU of the machine; None without one."""
        return find_gpu(self.gpu)

    @property
    def on_gpus(self) -> bool:
        """Whether the profile's machine computes on GPUs."""
        return self.gpu != NO_GPU

    @property
    def gpu_arch(self) -> str:
        """What an engine of this profile is compiled for."""
        return self.hardware.architecture if self.hardware else "cpu"

    @property
    def usd_per_hour(self) -> float:
        """Price of the instance: your own, else the dated one on demand; 0 where neither is known."""
        return self.own_usd_per_hour or known_usd_per_hour(self.instance)

    @model_validator(mode="after")
    def refuse_the_impossible(self) -> "Deployment":
        shape = self.shape
        if self.on_gpus and self.hardware is None:
            raise ValueError(f"gpu {self.gpu!r} is unknown; known: {', '.join((NO_GPU, *gpus()))}")
        if shape.num_attention_heads % self.tp:
            raise ValueError(
                f"tp {self.tp} does not divide the {shape.num_attention_heads} attention heads of {self.model}; "
                f"use {_divisors(shape.num_attention_heads)}"
            )
        if shape.num_hidden_layers % self.pp:
            raise ValueError(f"pp {self.pp} does not divide the {shape.num_hidden_layers} layers of {self.model}")
        if self.max_input_len >= self.max_seq_len:
            raise ValueError(
                f"max_input_len {self.max_input_len} leaves no room for an answer in max_seq_len {self.max_seq_len}; "
                "max_seq_len counts prompt and answer"
            )
        if self.max_seq_len > shape.max_position_embeddings:
            raise ValueError(
                f"max_seq_len {self.max_seq_len} is above the {shape.max_position_embeddings} positions "
                f"that {self.model} was trained on"
            )
        if self.hardware:
            self._refuse_impossible_gpus(self.hardware)
        return self

    def _refuse_impossible_gpus(self, gpu: Gpu) -> None:
        if self.world_size > self.gpu_count:
            raise ValueError(
                f"tp {self.tp} x pp {self.pp} needs {self.world_size} GPUs and the machine has {self.gpu_count}; "
                "lower tp or pp, or take a larger instance"
            )
        if not gpu.fp8 and (self.qformat in FP8_ARITHMETIC or self.kv_cache_dtype == "fp8"):
            raise ValueError(
                f"{self.gpu} ({gpu.architecture}) has no FP8 units; use qformat int8_sq, or an H100, H200 or L4"
            )
        weights = fits(self.shape, gpu, self.qformat, tp=self.tp, pp=self.pp)
        if not weights:
            raise ValueError(
                f"{self.model} in {self.qformat} is {weights.needed / GIB:.0f} GiB per GPU and {self.gpu} has "
                f"{gpu.visible_gib:.0f} GiB; raise tp or pp"
            )


def _divisors(number: int) -> str:
    return ", ".join(str(n) for n in range(1, number + 1) if number % n == 0)


def changed(profile: Settings, **settings: Any) -> Settings:
    """``profile`` with other settings, checked again; empty ones (0, "", []) are left alone. :class:`ProfileError`."""
    given = {key: value for key, value in settings.items() if value}
    try:
        return type(profile)(**{**profile.model_dump(), **given}) if given else profile
    except ValidationError as error:
        asked = ", ".join(f"{key}={value}" for key, value in given.items())
        raise ProfileError(f"{asked} is refused: {reasons(error, type(profile))}", fix="choose other values") from error


def reasons(error: ValidationError, model: type[BaseModel]) -> str:
    """What is wrong with the settings that ``model`` refused, in a line."""
    found = []
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        reason = f"{key}: {message}" if key else message
        if problem["type"] == "extra_forbidden":
            near = get_close_matches(key, (field.alias or name for name, field in model.model_fields.items()), n=1)
            reason = f"unknown key {key!r}" + (f", did you mean {near[0]!r}?" if near else "")
        found.append(reason)
    return "; ".join(found)


def reference_fit(profile: Deployment) -> Fit:
    """The model's weights in 16 bits against one GPU."""
    return fit.fits(profile.shape, _gpu(profile), "full_prec")


def weights_gb(profile: Deployment) -> float:
    """The model's weights in 16 bits, as quantizing and comparing load them."""
    return profile.shape.weight_bytes("full_prec") / 1e9


def calibration_fits(profile: Deployment) -> Fit:
    """What quantizing needs at its peak against all GPUs together."""
    return fit.calibration_fits(profile.shape, _gpu(profile), profile.gpu_count)


def too_small(profile: Deployment) -> str:
    """The sentence on a machine whose GPUs are too small to quantize on."""
    room = calibration_fits(profile)
    return (
        f"Quantizing {profile.model} needs about {room.needed_gb:.0f} GB ({CALIBRATION_SOURCE}: 1.5 times the "
        f"16-bit weights) and {profile.gpu_count} x {profile.gpu} have {room.there_gb:.1f} GB."
    )


def _gpu(profile: Deployment) -> Gpu:
    """One of the GPUs of the profile; :class:`UsageError` if it names none."""
    if profile.hardware is None:
        raise UsageError(f"profile {profile.name} has no GPU", fix="name its gpu and gpu_count")
    return profile.hardware
