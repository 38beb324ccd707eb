"""What an account must be allowed before a GPU instance starts: codes, and requests that AWS's own model takes."""

import pytest
from botocore.session import get_session

from serving_base.errors import UsageError
from serving_base.facts.gpus import instances
from serving_base.facts.quotas import quotas_of
from trtllm_check.recipes import quotas


def test_a_p5_counts_as_vcpus_with_ec2_and_as_an_instance_with_sagemaker() -> None:
    found = [(one.service, one.code, one.needed, one.unit) for one in quotas_of("ml.p5.48xlarge", 2)]
    assert found == [("ec2", "L-417A185B", 384, "vCPUs"), ("sagemaker", "L-16AF71F1", 2, "instances")]


def test_every_instance_of_the_facts_has_a_quota_of_ec2_and_no_code_twice() -> None:
    endpoints = [one.code for name in instances() for one in quotas_of(name) if one.service == "sagemaker"]
    assert all(quotas_of(name)[0].service == "ec2" for name in instances())
    assert len(endpoints) == len(set(endpoints)) >= 20
    assert [one.service for one in quotas_of("p5.4xlarge")] == ["ec2"]  # no code of its endpoint was found


def test_an_unknown_instance_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown instance"):
        quotas_of("p9.48xlarge")


def test_the_requests_are_what_botocore_takes_and_a_wrong_one_is_not() -> None:
    quota = quotas_of("p5.48xlarge")[0]
    read, raised = quotas.get_service_quota(quota), quotas.request_service_quota_increase(quota)
    assert quotas.problems("get_service_quota", read) == []
    assert quotas.problems("request_service_quota_increase", raised) == []
    assert "DesiredValue" in quotas.problems("request_service_quota_increase", read)[0]
    assert quotas.problems("request_service_quota_increase", raised | {"DesiredValue": "192"})
    names = get_session().get_service_model("service-quotas").operation_names
    assert {"GetServiceQuota", "RequestServiceQuotaIncrease"} <= set(names)


def test_the_command_line_says_the_same() -> None:
    quota = quotas_of("p5.48xlarge")[1]
    assert quotas.as_command("request_service_quota_increase", quotas.request_service_quota_increase(quota)) == (
        "aws service-quotas request-service-quota-increase --service-code sagemaker "
        "--quota-code L-16AF71F1 --desired-value 1"
    )
