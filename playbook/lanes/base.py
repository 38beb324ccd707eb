"""What a lane is: the module that does a chapter's work on one kind of machine, and how a profile names it.

A lane is a module with the functions and constants of :class:`Lane`. Those that ship are called ``embedded``,
``tensorrt_llm`` and ``vllm``; a profile may name any other module by its dotted path (``lane: my_package.my_lane``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from playbook.profile import Profile
from serving_base.checks import Check
from serving_base.errors import UsageError

if TYPE_CHECKING:
    from gpu_measurements.tables import StepTables
    from serving_base.measures import StepRecord
    from serving_base.servers import LoopbackServer


SHIPPED = {name: f"playbook.lanes.{name}.lane" for name in ("embedded", "tensorrt_llm", "vllm")}
ELSEWHERE = "PLAYBOOK_ELSEWHERE"
"""In a lane's ``KERNEL_ENVIRONMENT``: packages that work in its containers, so that no kernel imports them ahead."""
Layout = Literal["tensorrt_llm", "hf"]


class LoopbackCloud(Protocol):
    """An AWS on this machine, as :mod:`playbook.cloud` opens it."""

    region: str
    role_arn: str
    scheduler_role_arn: str

    @property
    def endpoint_url(self) -> str: ...
    def start(self) -> None: ...
    def stop(self) -> object: ...


class Lane(Protocol):
    """Every stage reads folders and fills ``out``; ``root`` is the workspace's, for logs and downloads.

    Errors are :class:`serving_base.errors.PlaybookError`: a stage says before it starts what the machine lacks.
    """

    CAN: frozenset[str]
    """Abilities of ``data/abilities.yml``: what a chapter may ask for beyond the stages."""
    CELL_LIMIT_S: int
    CHAPTER_LIMIT_S: int
    AT_ONCE: int
    """Chapters that may run side by side on one machine, on as many cores at least."""
    KERNEL_ENVIRONMENT: Mapping[str, str]
    """For the kernels of its chapters, headless."""

    def settle(self) -> None:
        """Set what libraries that are loaded already need, when a chapter starts."""

    def preflight(self, profile: Profile, workspace: Path) -> Iterator[Check]:
        """What this lane needs of the machine; reads only."""

    def prepare(self, profile: Profile, out: Path, *, root: Path) -> object:
        """Get the model in Hugging Face's layout."""

    def run_in_torch(self, profile: Profile, script: str, job: dict[str, Any], out: Path, *, root: Path) -> None:
        """Write ``result.json``: what ``run(job)`` of ``serving_base.<script>`` returns, by this lane's PyTorch.

        The lane adds ``device_map`` to the job: null for the processor, "auto" for all GPUs.
        """

    def quantize(self, profile: Profile, model: Path, out: Path, *, layout: Layout, root: Path) -> object:
        """Write a checkpoint of TP x PP ranks; ``qformat: full_prec`` keeps 16 bits."""

    def build(self, profile: Profile, checkpoint: Path, out: Path, *, root: Path) -> object:
        """Compile the checkpoint for the profile's limits."""

    def engine_ranks(self, checkpoint_ranks: int) -> int:
        """Ranks of the engine that is built from a checkpoint of so many."""

    def generate(
        self,
        profile: Profile,
        engine: Path,
        prompts: Sequence[str],
        max_new_tokens: int,
        *,
        root: Path,
        sampling: Mapping[str, float],
    ) -> list[str]:
        """The answers to prompts in chat format, up to the end token; an empty ``sampling`` is greedy."""

    def stream(self, profile: Profile, engine: Path, prompt: str, max_new_tokens: int, *, root: Path) -> list[str]:
        """The greedy answer in the pieces in which it came."""

    def step_records(
        self,
        profile: Profile,
        engine: Path,
        prompt: str,
        lengths: Sequence[int],
        slots: int,
        *,
        root: Path,
        narrow: Callable[[], Path],
    ) -> "dict[str, list[StepRecord]]":
        """The steps under "static" and "inflight" batching; ``narrow`` builds an engine of ``slots`` requests."""

    def step_tables(self, engine: Callable[[str], Path], *, profile: Profile, root: Path) -> "StepTables":
        """Where the time of the engines ``engine`` and ``engine-bf16`` goes, kernel by kernel."""

    def write_repository(
        self, profile: Profile, engine: Path, out: Path, *, root: Path, variables: Mapping[str, Any]
    ) -> object:
        """Fill the release's Triton templates; ``variables`` override the profile's and the course's values."""

    def serve(self, profile: Profile, repository: Path, *, root: Path) -> "LoopbackServer":
        """Start Triton and wait until it is ready; the caller stops it."""

    def local_cloud(self, folder: Path) -> LoopbackCloud | None:
        """The cloud on this machine that stands for AWS, not started; None: endpoints are made in a real account."""


REQUIRED = tuple(name for name in vars(Lane) if not name.startswith("_")) + tuple(Lane.__annotations__)


@cache
def lane_of(name: str) -> Lane:
    """The lane that a profile calls ``name``; :class:`UsageError` if there is none, or it is not whole."""
    try:
        module = import_module(SHIPPED.get(name, name))
    except ModuleNotFoundError as error:
        raise UsageError(
            f"there is no lane {name!r}",
            why=str(error),
            fix=f"use {' or '.join(SHIPPED)}, or the dotted path of a module of yours that can be imported",
        ) from error
    if missing := [one for one in REQUIRED if not hasattr(module, one)]:
        raise UsageError(f"{name} is no lane", why=f"it lacks {', '.join(missing)}", fix="see playbook.lanes.base.Lane")
    return cast("Lane", module)


def ability(lane_name: str, name: str, *, fix: str = "") -> Any:
    """The function of an ability that not every lane has; :class:`UsageError` where this lane has not."""
    lane = lane_of(lane_name)
    if not hasattr(lane, name):
        raise UsageError(
            f"the {lane_name} lane cannot {name}",
            why=f'lab.can("{name}") says so before',
            fix=fix or "use a profile of another lane",
        )
    return getattr(lane, name)
