"""A case: what a plan is asked for. The flags of ``playbook plan`` and the keys of a line of ``--batch``."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from serving_base.errors import UsageError, nearest
from serving_base.facts.gpus import Gpu, instance
from serving_base.facts.models import ModelShape, Variant, element_bytes, model_name, variant, variants
from serving_base.record import FiniteRecord
from serving_planner.hardware import gpu, gpu_name, gpus

Precision = Literal["bf16", "fp8"]
Engine = Literal["tensorrt-llm", "vllm", "sglang"]
BYTES: dict[Precision, int] = {precision: int(element_bytes(precision)) for precision in get_args(Precision)}

# Other ways to write a precision or an engine. FP16 has BF16's bytes and peak, so it is planned as BF16.
SAME_PRECISION = {"bfloat16": "bf16", "fp16": "bf16", "float16": "bf16", "e4m3": "fp8", "fp8-e4m3": "fp8"}
SAME_ENGINE = {"trtllm": "tensorrt-llm", "trt-llm": "tensorrt-llm", "tensorrtllm": "tensorrt-llm"}


def _word(known: tuple[str, ...], same: dict[str, str], what: str) -> BeforeValidator:
    """Accept a word of ``known`` in any case or under another name; refuse the rest, naming the nearest."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        plain = value.strip().lower().replace("_", "-")
        plain = same.get(plain, plain)
        if plain not in known:
            raise UsageError(
                f"unknown {what} {value!r}",
                why=f"the planner knows {', '.join(known)}",
                fix=f"use {nearest(plain, known)}, the nearest",
            )
        return plain

    return BeforeValidator(read)


def _as_computed(value: Any) -> Any:
    """``auto``, the engines' word for "as the model computes", is BF16: FP8 linear layers still give K and V so."""
    return "bf16" if value == "auto" else value


AnyPrecision = Annotated[Precision, _word(get_args(Precision), SAME_PRECISION, "precision")]


class Case(FiniteRecord):
    """One model on some GPUs under some load. ``tp`` x ``pp`` GPUs make a replica; ``gpus`` hold whole replicas."""

    model: str = Field(description="llama3-8b, llama3-70b, llama3.1-8b, llama3.3-70b ... (facts/models.yml)")
    gpu: str = Field(description="one of gpus.yml, such as h100-sxm, or a measured local machine")
    gpus: int | None = Field(None, ge=1, description="GPUs in all; not given: tp x pp")
    tp: int = Field(1, ge=1, description="tensor parallelism")
    pp: int = Field(1, ge=1, description="pipeline parallelism")
    weights: AnyPrecision = Field("fp8", description="of the linear layers")
    kv: Annotated[AnyPrecision, BeforeValidator(_as_computed)] = Field("fp8", description="of the KV cache")
    isl: int = Field(ge=1, description="prompt tokens, nominal")
    osl: int = Field(ge=1, description="answer tokens, nominal")
    concurrency: Annotated[int, Field(ge=1)] | Literal["max"] | None = Field(
        None, description="closed loop: requests in flight over all replicas; max: what the memory holds"
    )
    rate: float | None = Field(None, gt=0, description="open loop: requests/s over all replicas, Poisson")
    engine: Annotated[Engine, _word(get_args(Engine), SAME_ENGINE, "engine")] = Field("tensorrt-llm")
    length_ratio: float = Field(
        0.8, gt=0, le=1, description="lengths are drawn uniformly from [ratio x nominal, nominal]; 1: all nominal"
    )
    max_num_tokens: int = Field(8192, ge=1, description="tokens per engine step, all requests of a replica together")
    max_batch_size: int = Field(2048, ge=1, description="requests in flight in a replica at once")
    kv_fraction: float = Field(
        0.9,
        gt=0,
        le=1,
        description="the engine's own flag; cost_model/memory.py says what it is a share of",
    )
    chunked: bool = Field(True, description="whether a prompt may be computed in several steps")
    requests: int | None = Field(None, ge=1, description="requests of the simulation")
    seed: int = Field(0, ge=0, description="of the drawn lengths and arrivals")
    usd_per_hour: float | None = Field(None, gt=0, description="of the whole machine")
    instance: str | None = Field(None, description="p5.48xlarge ... (facts/instances.yml)")

    @property
    def shape(self) -> ModelShape:
        return self.variant.shape

    @property
    def variant(self) -> Variant:
        return variant(self.model)

    @property
    def hardware(self) -> Gpu:
        """The GPU, or the measured machine as it was measured last."""
        return gpu(self.gpu)

    @property
    def world_size(self) -> int:
        """GPUs of one replica: TP x PP."""
        return self.tp * self.pp

    @property
    def gpu_count(self) -> int:
        """GPUs in all."""
        return self.gpus or self.world_size

    @property
    def replicas(self) -> int:
        """Engines that share the load."""
        return self.gpu_count // self.world_size

    @property
    def warnings(self) -> tuple[str, ...]:
        """What can be planned and may still surprise."""
        found = []
        if self.isl + self.osl > self.variant.trained:
            found.append(
                f"isl {self.isl} + osl {self.osl} is above the {self.variant.trained} positions that {self.model} was "
                f"trained on; this plan is for its shape (use llama3.1 for a model that holds it)"
            )
        if self.world_size > self.hardware.link_gpus:
            found.append(
                f"tp {self.tp} x pp {self.pp} spans several machines; the plan takes {self.hardware.link} for every "
                f"link, and the network between them is slower"
            )
        if isinstance(self.concurrency, int) and self.concurrency < self.replicas:
            found.append(f"concurrency {self.concurrency} leaves {self.replicas - self.concurrency} replicas idle")
        return tuple(found)

    @model_validator(mode="before")
    @classmethod
    def _gpu_of_the_instance(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and isinstance(given.get("instance"), str) and not given.get("gpu"):
            return {**given, "gpu": instance(given["instance"]).gpu}
        return given

    @field_validator("model")
    @classmethod
    def _known_model(cls, name: str) -> str:
        return model_name(name)

    @field_validator("gpu")
    @classmethod
    def _known_gpu(cls, name: str) -> str:
        return gpu_name(name)

    @model_validator(mode="after")
    def _refuse_the_impossible(self) -> "Case":
        self._check_split()
        self._check_precision()
        self._check_lengths()
        if self.concurrency is not None and self.rate is not None:
            raise UsageError(
                f"concurrency {self.concurrency} and rate {self.rate} are both given",
                why="a closed loop sends when an answer is there, an open loop at its own rate: a load is one of them",
                fix="leave one out",
            )
        if self.instance is not None:
            self._check_instance(self.instance)
        return self

    def _check_split(self) -> None:
        heads, layers = self.shape.num_attention_heads, self.shape.num_hidden_layers
        for flag, value, total, what in (("tp", self.tp, heads, "attention heads"), ("pp", self.pp, layers, "layers")):
            if total % value:
                fits = [n for n in range(1, total + 1) if total % n == 0]
                raise UsageError(
                    f"{flag} {value} does not divide the {total} {what} of {self.model}",
                    why="every rank gets an equal share of them",
                    fix=f"use {flag} {_closest(value, fits)}, the nearest that does",
                )
        if self.gpu_count % self.world_size:
            whole = max(1, round(self.gpu_count / self.world_size)) * self.world_size
            raise UsageError(
                f"gpus {self.gpus} is not a multiple of tp {self.tp} x pp {self.pp} = {self.world_size}",
                why="every replica takes tp x pp GPUs",
                fix=f"use gpus {whole}, or {self._nearest_split()}",
            )

    def _nearest_split(self) -> str:
        """The TP and PP nearest to those asked that divide ``gpus``; TP 1, PP 1 always does."""
        heads, layers, count = self.shape.num_attention_heads, self.shape.num_hidden_layers, self.gpu_count
        splits = [
            (tp, pp)
            for tp in range(1, count + 1)
            for pp in range(1, count // tp + 1)
            if heads % tp == 0 and layers % pp == 0 and count % (tp * pp) == 0
        ]
        tp, pp = min(splits, key=lambda split: (abs(split[0] - self.tp) + abs(split[1] - self.pp), -split[0]))
        return f"tp {tp} and pp {pp}"

    def _check_precision(self) -> None:
        if not self.hardware.fp8 and "fp8" in (self.weights, self.kv):
            able = ", ".join(name for name, known in gpus().items() if known.fp8 and not known.measured)
            raise UsageError(
                f"{self.gpu} cannot run weights {self.weights} with kv {self.kv}",
                why=f"it is {self.hardware.architecture}, which has no FP8 units; they came with sm89",
                fix=f"use weights bf16 and kv bf16 on {self.gpu}, or one of {able}",
            )

    def _check_lengths(self) -> None:
        room = self.variant.positions
        if self.isl + self.osl > room:
            raise UsageError(
                f"isl {self.isl} + osl {self.osl} is above the {room} positions of {self.model}",
                why="prompt and answer share them",
                fix=self._shorter(room),
            )
        if not self.chunked and self.isl > self.max_num_tokens:
            raise UsageError(
                f"isl {self.isl} does not fit a step of max_num_tokens {self.max_num_tokens}",
                why="without chunked prefill a prompt is computed in one step",
                fix=f"use max_num_tokens {self.isl}, or chunked prefill",
            )

    def _shorter(self, room: int) -> str:
        layers, needed = self.shape.num_hidden_layers, self.isl + self.osl
        longer = [
            name
            for name, known in variants().items()
            if known.shape.num_hidden_layers == layers and known.positions >= needed
        ]
        shorter = f"isl {room - self.osl}" if room > self.osl else f"isl {room // 2} and osl {room - room // 2}"
        return f"use {shorter}" + (f", or {longer[0]}" if longer else "")

    def _check_instance(self, name: str) -> None:
        machine = instance(name)
        if machine.gpu != self.gpu:
            raise UsageError(
                f"{name} has {machine.gpu}, not {self.gpu}", why="an instance brings its GPUs", fix=f"use {machine.gpu}"
            )
        if self.gpu_count > machine.gpus:
            raise UsageError(
                f"{self.gpu_count} GPUs are more than the {machine.gpus} of {name}",
                why="a plan is for one machine when it names an instance",
                fix=f"use gpus {machine.gpus} or fewer, with tp x pp dividing it, or a larger instance",
            )


def _closest(value: int, allowed: list[int]) -> int:
    return min(allowed, key=lambda fit: (abs(fit - value), fit))


def parse_case(given: Mapping[str, Any]) -> Case:
    """A :class:`Case` from flags or a JSON object; keys that are None count as not given.

    :class:`UsageError` says which value is refused, why, and the nearest that fits.
    """
    if not isinstance(given, Mapping):
        raise UsageError(f"{given!r} is no case", why="a case is an object of keys", fix='start from {"model": ...}')
    try:
        return Case(**{str(key): value for key, value in given.items() if value is not None})
    except ValidationError as error:
        raise _refusal(error) from error


def changed(case: Case, **settings: Any) -> Case:
    """``case`` with other settings, checked again as :func:`parse_case` does; None: not given."""
    return parse_case({**case.model_dump(), **settings})


def _refusal(error: ValidationError) -> UsageError:
    problems = error.errors()
    missing = [str(problem["loc"][0]) for problem in problems if problem["type"] == "missing"]
    unknown = [str(problem["loc"][0]) for problem in problems if problem["type"] == "extra_forbidden"]
    if unknown:
        near = nearest(unknown[0], Case.model_fields)
        return UsageError(
            f"unknown key {unknown[0]!r}",
            why=f"a case has {', '.join(Case.model_fields)}",
            fix=f"did you mean {near!r}?",
        )
    if missing:
        return UsageError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
            why="a plan needs model, gpu, isl and osl",
            fix=f"give {', '.join(missing)}",
        )
    key = str(problems[0]["loc"][0])
    same = [problem for problem in problems if problem["loc"] and problem["loc"][0] == key]
    field = Case.model_fields[key]
    default = "" if field.is_required() or field.default is None else f"; {field.default!r} is the default"
    return UsageError(
        f"{key}={problems[0]['input']!r} is refused",
        why=" or ".join(dict.fromkeys(problem["msg"][0].lower() + problem["msg"][1:] for problem in same)),
        fix=f"{key}: {field.description or 'see the flags'}{default}",
    )
