"""Profiles: one YAML file says which machine, model, precision, parallelism and limits a run has."""

from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveInt, ValidationError

from serving_base.errors import NotYaml, ProfileError
from serving_base.record import Record
from serving_base.yaml_files import read_yaml
from trtllm_check.deployment import Deployment, changed, reasons

PROFILES_DIR = Path(__file__).parent / "profiles"
FEWEST_REQUESTS = 16  # of one point of a benchmark


class BenchmarkLoad(Record):
    """The load of chapter 08. Lengths, in tokens, are drawn uniformly between the two that are given."""

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


class Profile(Deployment):
    """One machine and one way to serve one model on it. Fields carry the names of the tools' flags."""

    name: str = Field(description="name of the profile: also its folder in the workspace")
    lane: str = Field(description="what does the work: embedded (this CPU), tensorrt_llm, vllm, or a module of yours")
    weights: Literal["published", "random"] = Field(
        "published", description="random: the model's architecture without a hub; speed and bytes only"
    )
    build_from: Literal["checkpoint", "model"] = Field(
        "checkpoint",
        description="model: the engine computes in 16 bits, for engines without kernels for the checkpoint",
    )
    bf16_beside: bool = Field(
        True,
        description="lane vllm: false builds no engine in BF16 to compare with; of 70B it is 141 GB more",
    )
    benchmark: BenchmarkLoad = Field(default=BenchmarkLoad(), description="the load of chapter 08")


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
        raise ProfileError(
            f"profile {path.name} is refused", why=reasons(error, Profile), fix=f"edit {path}"
        ) from error
