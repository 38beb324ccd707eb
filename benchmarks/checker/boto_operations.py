"""Make packages/trtllm_check/lint/carriers/boto_clients.yml: the methods of boto3's clients, and parameters of some.

    python -m benchmarks.checker.boto_operations

Read are botocore's own models of the services, in the release that is installed; boto_operations.yml says of which.
"""

from pathlib import Path
from typing import Any

import botocore
import yaml
from botocore import xform_name
from botocore.session import get_session

from benchmarks.checker.python_names import WIDTH

CONFIG = Path(__file__).with_suffix(".yml")
TABLE = Path(__file__).parents[2] / "packages/trtllm_check/lint/carriers/boto_clients.yml"
MOST_VALUES = 40
HEADING = "# Made by benchmarks/checker/boto_operations.py; `!` stands behind what is required. See NOTICE."


def main() -> None:
    wanted = yaml.safe_load(CONFIG.read_text())
    session = get_session()
    services: dict[str, Any] = {}
    for service, asked in wanted["services"].items():
        model = session.get_service_model(service)
        names = {xform_name(one): one for one in model.operation_names}
        parameters, values = {}, {}
        for name in (asked or "").split():
            shape = model.operation_model(names[name]).input_shape
            members = shape.members if shape is not None else {}
            filled = [one for one, member in members.items() if member.metadata.get("idempotencyToken")]
            required = [one for one in shape.required_members if one not in filled] if shape is not None else []
            for one, member in members.items():
                if 0 < len(member.metadata.get("enum", ())) <= MOST_VALUES:
                    values[f"{name}.{one}"] = " ".join(member.metadata["enum"])
            parameters[name] = " ".join(f"{one}!" if one in required else one for one in members)
        waiters = _waiters(session, service)
        services[service] = {"methods": " ".join(sorted(names)), "waiters": " ".join(waiters)}
        services[service] |= {"parameters": parameters, "values": values}
    content = {"source": f"botocore {botocore.__version__}, models of the services", "services": services}
    text = yaml.safe_dump(content, sort_keys=False, width=WIDTH, default_flow_style=False)
    TABLE.write_text(f"{HEADING}\n{text}")
    print(f"{TABLE.name}: {len(services)} services, {TABLE.stat().st_size} bytes")


def _waiters(session: Any, service: str) -> list[str]:
    try:
        return sorted(xform_name(one) for one in session.get_waiter_model(service).waiter_names)
    except Exception:  # of a service without any, botocore raises what it likes
        return []


if __name__ == "__main__":
    main()
