"""Manifests for an engine over several machines: valid as rendered, refused when broken; what SageMaker can hold."""

import copy
from typing import Any

import pytest

from course_exercises.parallelism import broken_manifests
from playbook.profile import load_profile
from serving_base.errors import UsageError
from serving_base.facts.gpus import find_gpu, instances
from trtllm_check.recipes.kubernetes import (
    NodeGroup,
    engines,
    manifest_problems,
    manifests,
    node_group,
    parsed,
    rendered,
    sagemaker_instances,
)

P5 = load_profile("p5")
BIG: dict[str, Any] = {"model": "llama-3.1-405b-instruct", "qformat": "full_prec", "kv_cache_dtype": "auto"}
Documents = list[dict[str, Any]]


@pytest.fixture
def group() -> NodeGroup:
    return node_group(P5, pp=2, **BIG)


@pytest.fixture
def documents(group: NodeGroup) -> Documents:
    return manifests(group)


def template(documents: Documents) -> dict[str, Any]:
    found: dict[str, Any] = documents[0]["spec"]["leaderWorkerTemplate"]
    return found


@pytest.mark.parametrize("engine", sorted(engines()))
@pytest.mark.parametrize(("settings", "pp"), [({}, 2), ({}, 4), (BIG, 2), (BIG, 3)])
def test_what_is_rendered_is_valid(engine: str, settings: dict[str, Any], pp: int) -> None:
    made = manifests(node_group(P5, pp=pp, replicas=3, **settings), engine)
    assert manifest_problems(made) == []
    assert made[0]["spec"]["replicas"] == 3
    assert template(made)["size"] == pp
    leader = template(made)["leaderTemplate"]["spec"]["containers"][0]
    assert leader["resources"]["limits"] == {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32}


def test_a_group_is_rendered_from_the_profile(group: NodeGroup) -> None:
    text = rendered(group)
    for part in ("--tensor-parallel-size 8", "--pipeline-parallel-size 2", "--max-model-len 4096", "p5.48xlarge"):
        assert part in text
    assert "--kv-cache-dtype" not in text
    assert "--kv-cache-dtype fp8" in rendered(node_group(P5, pp=2))


def test_only_the_leader_serves(documents: Documents) -> None:
    leader, worker = (template(documents)[f"{role}Template"]["spec"]["containers"][0] for role in ("leader", "worker"))
    assert "--headless" in worker["command"][-1] and "--headless" not in leader["command"][-1]
    assert "ports" not in worker


def wrong_field(made: Documents) -> None:
    template(made)["sice"] = 2


def wrong_policy(made: Documents) -> None:
    template(made)["restartPolicy"] = "Always"


def no_worker(made: Documents) -> None:
    del template(made)["workerTemplate"]


def text_port(made: Documents) -> None:
    made[1]["spec"]["ports"][0]["port"] = "eight thousand"


def unknown_field_deep_inside(made: Documents) -> None:
    template(made)["workerTemplate"]["spec"]["containers"][0]["resourses"] = {}


def no_name(made: Documents) -> None:
    del template(made)["leaderTemplate"]["spec"]["containers"][0]["name"]


def older_api(made: Documents) -> None:
    made[0]["apiVersion"] = "leaderworkerset.x-k8s.io/v1alpha1"


def other_kind(made: Documents) -> None:
    made[0]["kind"] = "Deployment"


def bad_quantity(made: Documents) -> None:
    template(made)["workerTemplate"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = "much"


def too_few_pods(made: Documents) -> None:
    template(made)["size"] = 1


def other_gpus(made: Documents) -> None:
    for role in ("leader", "worker"):
        template(made)[f"{role}Template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 4


def to_the_workers(made: Documents) -> None:
    made[1]["spec"]["selector"]["role"] = "worker"


def to_all(made: Documents) -> None:
    del made[1]["spec"]["selector"]["role"]


def to_no_port(made: Documents) -> None:
    made[1]["spec"]["ports"][0]["targetPort"] = 8080


def to_no_name(made: Documents) -> None:
    made[1]["spec"]["ports"][0]["targetPort"] = "grpc"


def no_group(made: Documents) -> None:
    del made[0]


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (wrong_field, "sice"),
        (wrong_policy, "restartPolicy: 'Always'"),
        (no_worker, "workerTemplate"),
        (text_port, "eight thousand"),
        (unknown_field_deep_inside, "resourses"),
        (no_name, "'name' is a required"),
        (older_api, "v1alpha1"),
        (other_kind, "Deployment"),
        (bad_quantity, "much"),
        (too_few_pods, "16 ranks, and 1 pods have 8 GPUs"),
        (other_gpus, "16 ranks, and 2 pods have 8 GPUs"),
        (to_the_workers, "role=worker"),
        (to_all, "also selects workers"),
        (to_no_port, "port 8080"),
        (to_no_name, "port grpc"),
        (no_group, "no LeaderWorkerSet"),
    ],
)
def test_a_broken_manifest_is_refused(documents: Documents, spoil: Any, word: str) -> None:
    broken = copy.deepcopy(documents)
    spoil(broken)
    assert any(word in problem for problem in manifest_problems(broken)), manifest_problems(broken)
    assert manifest_problems(documents) == []


def test_the_number_of_pods_may_stand_in_the_command(documents: Documents) -> None:
    leader = template(documents)["leaderTemplate"]["spec"]["containers"][0]
    leader["command"][-1] = leader["command"][-1].replace("size 2", "size $(LWS_GROUP_SIZE)")
    assert manifest_problems(documents) == []


def test_groups_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="does not fill whole"):
        node_group(P5, pp=1, tp=4)
    with pytest.raises(UsageError, match="pp 4 does not divide the 126 layers"):
        node_group(P5, pp=4, **BIG)
    with pytest.raises(UsageError, match="does not fit 1 x p5"):
        node_group(P5, pp=1, **BIG)
    with pytest.raises(UsageError, match="no engine 'sglang'"):
        rendered(node_group(P5, pp=2), "sglang")
    with pytest.raises(UsageError, match="no YAML"):
        parsed("a: [")


def test_sagemaker_needs_the_model_on_one_instance(group: NodeGroup) -> None:
    holds = {one.name: one.holds for one in sagemaker_instances(group)}
    assert (holds["ml.p5.48xlarge"], holds["ml.p5en.48xlarge"]) == (False, True)
    fp8 = {one.name: one.holds for one in sagemaker_instances(node_group(P5, pp=2, model=BIG["model"]))}
    assert fp8["ml.p5.48xlarge"] and "ml.p4d.24xlarge" not in fp8


def test_sagemakers_model_knows_no_variant_over_instances() -> None:
    """What chapter 14 reads in the API: were there a field for it, the chapter would be wrong."""
    import botocore.session

    members = set(botocore.session.get_session().get_service_model("sagemaker").shape_for("ProductionVariant").members)
    assert {"InitialInstanceCount", "RoutingConfig"} <= members
    assert not {name for name in members if "node" in name.lower() or "parallel" in name.lower()}


def test_every_instance_has_a_known_gpu() -> None:
    assert all(find_gpu(machine.gpu) for machine in instances().values())


def test_the_manifests_of_the_exercise_are_broken_in_two_ways(group: NodeGroup) -> None:
    made = broken_manifests(group)
    assert "restartPolicy" in manifest_problems(made)[0]
    made[0]["spec"]["leaderWorkerTemplate"]["restartPolicy"] = "RecreateGroupOnPodRestart"
    assert len(manifest_problems(made)) == 3  # the pods, the selector, the port
