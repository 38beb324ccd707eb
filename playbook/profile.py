"""Profiles: one YAML file says which machine, model, precision, parallelism and limits a run has."""

from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from playbook.errors import NotYaml, ProfileError
from playbook.facts.fit import fits
from playbook.facts.gpus import GIB, Gpu, find_gpu, gpus
from playbook.facts.models import ModelShape, model_shape
from playbook.facts.prices import known_usd_per_hour
from playbook.yaml_files import read_yaml

PROFILES_DIR = Path(__file__).parent / "profiles"
Qformat = Literal["fp8", "int8_sq", "int8_wo", "int4_awq", "w4a8_awq", "int4_gptq", "full_prec"]
FP8_ARITHMETIC = ("fp8", "w4a8_awq")
NO_GPU = "none"
THIS_MACHINE = "this machine"
FEWEST_REQUESTS = 16  # of one point of a benchmark


class BenchmarkLoad(BaseModel):
    """The load of chapter 08. Lengths, in tokens, are drawn uniformly between the two that are given."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    concurrency: tuple[PositiveInt, ...] = Field(
        default=(1, 4, 16, 64, 128), min_length=1, description="streams of the closed loop, one point each"
    )
    requests_per_stream: PositiveInt = Field(
        default=12, description="a point's requests, for each stream; 16 at least in all"
    )
    isl: tuple[PositiveInt, PositiveInt] = Field(default=(256, 1024), description="shortest and longest prompt")
    osl: tuple[PositiveInt, PositiveInt] = Field(default=(64, 256), description="shortest and longest answer")
    rate_seconds: float = Field(
        default=60.0, gt=0, description="how long requests arrive at each rate of the open loop"
    )
    ttft_target_ms: float = Field(default=500.0, gt=0, description="a good request's first token comes within this")
    tpot_target_ms: float = Field(default=30.0, gt=0, description="and its others at this pace")

    def requests(self, streams: int) -> int:
        """Requests of the point with so many streams."""
        return max(FEWEST_REQUESTS, self.requests_per_stream * streams)

    def changed(self, **settings: object) -> "BenchmarkLoad":
        """With other settings; empty ones (0, []) are left alone. :class:`ProfileError` for an impossible one."""
        return changed(self, **settings)

    @property
    def case(self) -> dict[str, float]:
        """The lengths as the planner's case has them: the longest, and the shortest prompt as a share of it."""
        return {"isl": self.isl[1], "osl": self.osl[1], "length_ratio": self.isl[0] / self.isl[1]}


class Profile(BaseModel):
    """One machine and one way to serve one model on it. Fields carry the names of the tools' flags."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, populate_by_name=True)

    name: str = Field(description="name of the profile: also its folder in the workspace")
    lane: str = Field(description="what does the work: embedded (this CPU), tensorrt_llm, or a module of yours")
    release: str = Field("0.12.0", description="TensorRT-LLM release whose commands and templates are used")
    model: str = Field(description="tiny, llama-3-8b-instruct or llama-3-70b-instruct")
    instance: str = Field(THIS_MACHINE, description="instance type")
    own_usd_per_hour: float = Field(
        0.0, ge=0, alias="usd_per_hour", description="what you pay for the instance; 0: the dated price that ships"
    )
    gpu: str = Field(NO_GPU, description="GPU type, a name or an alias of playbook/facts/gpus.yml")
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

    benchmark: BenchmarkLoad = Field(default=BenchmarkLoad(), description="the load of chapter 08")

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
    def refuse_the_impossible(self) -> "Profile":
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


def profile_names() -> list[str]:
    """Profiles that ship with the playbook."""
    return sorted(path.stem for path in PROFILES_DIR.glob("*.yml"))


def load_profile(name: str, release: str = "") -> Profile:
    """Read a shipped profile by name, or a user's own YAML file by path; ``release`` overrides the file's.

    Raises :class:`ProfileError` for an unknown name, an unknown key or an impossible value.
    """
    path = Path(name) if name.endswith((".yml", ".yaml")) else PROFILES_DIR / f"{name}.yml"
    if not path.is_file():
        raise ProfileError(
            f"no profile {name!r}",
            why=f"there is no file {path}" if path.parent != PROFILES_DIR else "it is not one that ships",
            fix=f"use one of {', '.join(profile_names())}, or the path of your own .yml",
        )
    try:
        settings = read_yaml(path)
        if not isinstance(settings, dict):
            raise ProfileError(f"{path} is not a profile", why="it holds no keys", fix="start from profiles/p5.yml")
        return Profile(**{"name": path.stem, **settings, **({"release": release} if release else {})})
    except NotYaml as error:
        raise ProfileError(error.what, why=error.why, fix=error.fix) from error
    except ValidationError as error:
        raise ProfileError(f"profile {path.name} is refused", why=_reasons(error), fix=f"edit {path}") from error


Settings = TypeVar("Settings", Profile, BenchmarkLoad)


def changed(profile: Settings, **settings: Any) -> Settings:
    """``profile`` with other settings, checked again; empty ones (0, "", []) are left alone. :class:`ProfileError`."""
    given = {key: value for key, value in settings.items() if value}
    try:
        return type(profile)(**{**profile.model_dump(), **given}) if given else profile
    except ValidationError as error:
        asked = ", ".join(f"{key}={value}" for key, value in given.items())
        raise ProfileError(f"{asked} is refused: {_reasons(error)}", fix="choose other values") from error


def _reasons(error: ValidationError) -> str:
    reasons = []
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        reason = f"{key}: {message}" if key else message
        if problem["type"] == "extra_forbidden":
            near = get_close_matches(key, (field.alias or name for name, field in Profile.model_fields.items()), n=1)
            reason = f"unknown key {key!r}" + (f", did you mean {near[0]!r}?" if near else "")
        reasons.append(reason)
    return "; ".join(reasons)
