"""One build: a written network, the targets, the ranges of its sizes, and what the builder says of it.

Runs in the environment that has NVIDIA's compiler.
"""

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from trt_compiler.steps import Compilation, read_steps
from trt_compiler.writer import NetworkWriter

Ranges = Mapping[str, tuple[Sequence[int], Sequence[int], Sequence[int]]]
"""Input -> its smallest, usual and largest shape."""
_BAD = ("ERROR", "INTERNAL_ERROR")
_loggers: list[Any] = []


def logger(trt: Any) -> Any:
    """The logger of this process, emptied. TensorRT keeps the first one that it is given and ignores later ones."""
    if not _loggers:

        class Kept(trt.ILogger):  # type: ignore[misc]
            def __init__(self) -> None:
                trt.ILogger.__init__(self)
                self.lines: list[tuple[str, str]] = []

            def log(self, severity: Any, text: str) -> None:
                self.lines.append((severity.name, text))

        _loggers.append(Kept())
    _loggers[0].lines.clear()
    return _loggers[0]


def start(trt: Any, *, weights_outside: bool = False) -> tuple[Any, NetworkWriter]:
    """A builder and an empty network."""
    builder = trt.Builder(logger(trt))
    return builder, NetworkWriter(trt, builder, weights_outside=weights_outside)


def build(
    trt: Any,
    builder: Any,
    writer: NetworkWriter,
    ranges: Ranges,
    targets: Sequence[str] = (),
    flags: Sequence[str] = (),
) -> Compilation:
    """Compile the network for ``targets`` (``SM89``; none: NVIDIA's usual ones). No engine is kept.

    ``flags``: names of ``trt.BuilderFlag``, such as ``REFIT``.
    """
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED  # else the builder lists no steps
    for flag in flags:
        config.set_flag(getattr(trt.BuilderFlag, flag))
    if targets:
        unknown = [name for name in targets if not hasattr(trt.ComputeCapability, name)]
        if unknown:
            raise ValueError(f"this compiler has no target {unknown[0]}; it has {', '.join(known_targets(trt))}")
        config.num_compute_capabilities = len(targets)
        for place, name in enumerate(targets):
            config.set_compute_capability(getattr(trt.ComputeCapability, name), place)
    profile = builder.create_optimization_profile()
    for name, shapes in ranges.items():
        profile.set_shape(name, *(tuple(shape) for shape in shapes))
    config.add_optimization_profile(profile)
    written = tuple(writer.net.get_layer(place).name for place in range(writer.net.num_layers))
    began = time.perf_counter()
    engine = builder.build_serialized_network(writer.net, config)
    seconds = time.perf_counter() - began
    lines = _loggers[0].lines
    refusal = "" if engine is not None else refusal_of([text for severity, text in lines if severity in _BAD])
    return Compilation(
        written=written,
        steps=tuple(read_steps(text for _, text in lines)),
        engine_bytes=0 if engine is None else engine.nbytes,
        weight_bytes=sum(array.nbytes for array in writer.constants.values()),
        seconds=seconds,
        refusal=refusal,
    )


def known_targets(trt: Any) -> list[str]:
    """The GPU architectures that the compiler has a name for."""
    return sorted(
        (name for name in trt.ComputeCapability.__members__ if name.startswith("SM")), key=lambda n: int(n[2:])
    )


def refusal_of(errors: Sequence[str]) -> str:
    """The sentence that says why: ``Cannot compile for target(s) ...`` where it is there, else the first error."""
    for text in errors:
        found = re.search(r"Cannot compile for target.*?\.(?=\s|$)", text)
        if found:
            return found[0]
    return errors[0].strip() if errors else "the compiler gave no engine and no reason"
