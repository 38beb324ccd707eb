"""What Triton itself says against a model configuration whose syntax is right.

Read in triton-inference-server/core src/model_config_utils.cc (ValidateModelConfig, ValidateIOShape).
"""

from collections.abc import Iterator
from typing import NamedTuple

from trtllm_check.lint.pbtxt import TRUE, Message, Scalar

PLATFORMS = (
    "tensorrt_plan",
    "onnxruntime_onnx",
    "pytorch_libtorch",
    "tensorflow_graphdef",
    "tensorflow_savedmodel",
    "ensemble",
    "caffe2_netdef",
    "custom",
)
BACKENDS = {"tensorrtllm": "tensorrtllm", "tensorrt_llm": "tensorrtllm", "vllm": "vllm", "python": "python"}
# Names that are no backend (a backend is the folder of libtriton_NAME.so), and the one that is meant:
# github.com/triton-inference-server/backend, README, Backends; server#6541, server#4200.
NO_BACKENDS = {
    "tensorrt_plan": "tensorrt",
    "trt": "tensorrt",
    "onnxruntime_onnx": "onnxruntime",
    "onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "libtorch": "pytorch",
    "torch": "pytorch",
    "tensorflow_savedmodel": "tensorflow",
    "tensorflow_graphdef": "tensorflow",
    "tensorrt_llm": "tensorrtllm",
    "tensorrt-llm": "tensorrtllm",
    "trtllm": "tensorrtllm",
    "trt_llm": "tensorrtllm",
    "vLLM": "vllm",
    "python_backend": "python",
    "Python": "python",
    "ensemble": "",
}
WITHOUT_A_FILE = ("python", "tensorrtllm")  # backends that read no model's own description of its tensors
LAYOUTS = ("FORMAT_NCHW", "FORMAT_NHWC")
CONTROLS = ("CONTROL_SEQUENCE_START", "CONTROL_SEQUENCE_READY", "CONTROL_SEQUENCE_END")
CONTROL_VALUES = ("int32_false_true", "fp32_false_true", "bool_false_true")
OWN_BACKENDS = ("tensorrt", "onnxruntime", "pytorch", "tensorflow")  # whose platform the server knows
WITHOUT_GPUS = ("KIND_CPU", "KIND_MODEL")


class Objection(NamedTuple):
    """What the server says at ``place``, and what to write instead."""

    place: Scalar
    problem: str
    instead: str


def refused(config: Message, *, is_whole: bool = True) -> Iterator[Objection]:
    """Everything that the server refuses before it loads the model; ``is_whole``: what lacks is not left out."""
    yield from _platform(config, is_whole=is_whole)
    yield from _backend(config)
    yield from _groups(config)
    yield from _profiles(config)
    yield from _controls(config)
    yield from _pair(config)
    yield from _maps(config)
    told = is_whole and is_told(config)
    for name in ("input", "output"):
        for tensor in config.messages(name):
            yield from _dims(tensor, is_input=name == "input", told=told)
    yield from _batches(config)
    yield from _scalars(config)
    yield from _queues(config)
    yield from _cache(config)


def is_told(config: Message) -> bool:
    """True for a model of which the server knows nothing but its configuration."""
    return config.text("backend") in WITHOUT_A_FILE or config.text("platform") == "ensemble"


def _scalars(config: Message) -> Iterator[Objection]:
    """A tensor without dimensions, which only a batch gives one."""
    batch = config.scalar("max_batch_size")
    if batch is None or batch.text != "0":
        return
    for tensor in config.messages("input"):
        for reshape in tensor.messages("reshape"):
            if not reshape.scalars("shape"):
                yield Objection(
                    batch,
                    f"input {tensor.text('name')}: model input cannot have empty reshape for non-batching model",
                    "write a max_batch_size of 1 or more, as the template's reshape wants",
                )
                return


def _queues(config: Message) -> Iterator[Objection]:
    """Levels of priority, and an order that they would break."""
    for batching in config.messages("dynamic_batching"):
        levels = _numbers(batching.scalars("priority_levels")[-1:])
        if not levels or levels[0] < 1:
            continue
        place, ordered = batching.scalar("default_priority_level"), batching.scalar("preserve_ordering")
        default = _numbers([place]) if place is not None else [0]
        if default is not None and not 1 <= default[0] <= levels[0]:
            yield Objection(
                place or batching.scalars("priority_levels")[-1],
                f"default priority level must be in range [1, {levels[0]}]",
                f"write default_priority_level: {levels[0]}",
            )
        if levels[0] > 1 and ordered is not None and ordered.text.lower() in TRUE:
            yield Objection(
                ordered,
                "only one priority level is allowed when preserve_ordering is true",
                "leave preserve_ordering out, or the levels",
            )


def _cache(config: Message) -> Iterator[Objection]:
    """Answers that are kept, of a model that gives several to one request."""
    for cache in config.messages("response_cache"):
        enable = cache.scalar("enable")
        if enable is None or enable.text.lower() not in TRUE:
            continue
        policies = config.messages("model_transaction_policy")
        if policies and policies[-1].text("decoupled").lower() in TRUE:
            yield Objection(
                enable,
                "Response Cache does not support a model with decoupled transaction policy",
                "write enable: false, or decoupled: false",
            )
        if config.messages("sequence_batching"):
            yield Objection(
                enable,
                "Response Cache does not support a model with the sequence batching scheduler",
                "write enable: false",
            )


def _platform(config: Message, *, is_whole: bool) -> Iterator[Objection]:
    platform = config.scalar("platform")
    if platform is None or not platform.text or "$" in platform.text:
        return
    if platform.text not in PLATFORMS and not config.text("backend"):
        backend = BACKENDS.get(platform.text, "the backend's name")
        known = ", ".join(PLATFORMS[:6])
        yield Objection(
            platform,
            f"unexpected platform type '{platform.text}' (there are {known}), and it names no backend",
            f'write backend: "{backend}" instead of the platform',
        )
    if is_whole and platform.text == "ensemble" and not config.messages("ensemble_scheduling"):
        yield Objection(
            platform, "its platform is ensemble, and it has no ensemble_scheduling", "add the steps, or name a backend"
        )


def _backend(config: Message) -> Iterator[Objection]:
    """The name of a platform where a backend belongs."""
    backend = config.scalar("backend")
    right = NO_BACKENDS.get(backend.text) if backend is not None else None
    if backend is None or right is None:
        return
    instead = f'write backend: "{right}"' if right else 'write platform: "ensemble" instead of the backend'
    if backend.text in PLATFORMS and right:
        instead = f'{instead}, or platform: "{backend.text}"'
    yield Objection(backend, f"it finds no libtriton_{backend.text}.so: {backend.text} is no backend", instead)


def _groups(config: Message) -> Iterator[Objection]:
    """Instances that are to run on the CPU, or where the model says, and name GPUs."""
    for group in config.messages("instance_group"):
        kind, gpus, count = group.scalar("kind"), group.scalars("gpus"), group.scalar("count")
        if kind is not None and kind.text in WITHOUT_GPUS and gpus:
            yield Objection(
                gpus[0],
                f"the instance group has kind {kind.text} but specifies one or more GPUs",
                "write kind: KIND_GPU, or leave gpus out",
            )
        if count is not None and count.text == "0":
            yield Objection(count, "the instance group must specify count > 0", "write 1 or more, or leave count out")


def _profiles(config: Message) -> Iterator[Objection]:
    """Optimization profiles, which plans of TensorRT alone have."""
    if "tensorrt" in (config.text("backend"), config.text("platform").removesuffix("_plan")) or not is_told(config):
        return
    for group in config.messages("instance_group"):
        for profile in group.scalars("profile")[:1]:
            problem = "the instance group specifies the profile field, which is only supported for TensorRT models"
            yield Objection(profile, problem, "leave profile out")


def _controls(config: Message) -> Iterator[Objection]:
    """A control of sequences that tells its values in no type."""
    for batching in config.messages("sequence_batching"):
        for control in (one for tensor in batching.messages("control_input") for one in tensor.messages("control")):
            kind = control.scalar("kind")
            if kind is None or kind.text not in CONTROLS or any(control.scalars(name) for name in CONTROL_VALUES):
                continue
            problem = f"sequence batching must specify one of {', '.join(CONTROL_VALUES)} for {kind.text}"
            yield Objection(kind, problem, "add int32_false_true: [ 0, 1 ]")


def _pair(config: Message) -> Iterator[Objection]:
    """A platform, and the backend of another one."""
    backend, platform = config.scalar("backend"), config.text("platform")
    right = NO_BACKENDS.get(platform, "")
    if (
        backend is not None
        and right
        and platform in PLATFORMS
        and backend.text in OWN_BACKENDS
        and backend.text != right
    ):
        problem = f"unexpected platform and backend pair, got: {platform}, {backend.text}"
        yield Objection(backend, problem, f'write backend: "{right}", or leave the platform out')


def _maps(config: Message) -> Iterator[Objection]:
    """Two tensors of a step under one key: the map keeps the last of them."""
    for scheduling in config.messages("ensemble_scheduling"):
        for step in scheduling.messages("step"):
            for name in ("input_map", "output_map"):
                kept: dict[str, str] = {}
                for entry in step.messages(name):
                    key, value = entry.scalar("key"), entry.text("value")
                    if key is not None and kept.setdefault(key.text, value) != value:
                        yield Objection(
                            key,
                            f"{name} has the key {key.text} twice, so that {kept[key.text]} is left out of it",
                            f"write the model's own name of the tensor for {value}",
                        )


def _dims(tensor: Message, *, is_input: bool, told: bool) -> Iterator[Objection]:
    """``told``: no file of weights tells the server what the configuration leaves out."""
    dims = tensor.scalars("dims")
    sizes = _numbers(dims)
    named = tensor.scalar("name")
    first = tensor.scalar("data_type")
    if named is None and first is not None and dims and told:
        kind = "input" if is_input else "output"
        yield Objection(first, f"model {kind} must specify 'name'", 'write name: "..." in front of the type')
    if not dims and named is not None and told:
        kind = "input" if is_input else "output"
        yield Objection(named, f"model {kind} must specify 'dims' ({named.text})", "write dims: [ -1 ] for any length")
    if not tensor.scalar("data_type") and named is not None and dims and told:
        kind = "input" if is_input else "output"
        yield Objection(named, f"model {kind} must specify 'data_type' ({named.text})", "write data_type: TYPE_...")
    if sizes is None or not dims:
        return
    layout = tensor.scalar("format")
    name = tensor.text("name")
    if layout is not None and layout.text in LAYOUTS and len(sizes) != len("CHW"):
        yield Objection(
            layout,
            f"tensor {name}: {layout.text} requires 3 dims",
            "write three dims (without the batch), or no format",
        )
    for place, size in zip(dims, sizes, strict=True):
        if size == 0 or size < -1:
            yield Objection(
                place, f"tensor {name}: dims must be 1 or more, or -1 for any size", "write -1 where the size varies"
            )
            return
    for reshape in tensor.messages("reshape"):
        shape = _numbers(reshape.scalars("shape"))
        if shape is not None and _pieces(shape) != _pieces(sizes):
            yield Objection(
                dims[0],
                f"tensor {name} has different size for dims and reshape",
                "give both the same number of elements, and as many -1",
            )


def _pieces(sizes: list[int]) -> list[int]:
    """The elements between the dimensions of any size."""
    found = [1]
    for size in sizes:
        if size < 0:
            found.append(1)
        else:
            found[-1] *= size
    return found


def _batches(config: Message) -> Iterator[Objection]:
    """A preferred batch may not be larger than the largest one."""
    largest = _numbers(config.scalars("max_batch_size")[-1:])
    if largest and largest[0] < 0:
        yield Objection(
            config.scalars("max_batch_size")[-1],
            "'max_batch_size' must be non-negative value",
            "write 0 for a model without batches",
        )
        return
    if not largest or (
        not largest[0] and not is_told(config)
    ):  # the server asks the model, and may take one of its own
        return
    for name in ("dynamic_batching", "sequence_batching"):
        for batching in config.messages(name):
            places = [*batching.scalars("preferred_batch_size")]
            for part in batching.messages("oldest"):
                places += part.scalars("preferred_batch_size")
            for place, size in zip(places, _numbers(places) or (), strict=False):
                if size < 1 or size > largest[0]:
                    yield Objection(
                        place,
                        f"preferred_batch_size {size} must be positive and at most max_batch_size ({largest[0]})",
                        f"leave {size} out, or set max_batch_size to {max(size, 1)} or more",
                    )
                    return


def _numbers(places: list[Scalar]) -> list[int] | None:
    """None where one is no number, such as a variable of a template."""
    try:
        return [int(place.text) for place in places]
    except ValueError:
        return None
