"""Any engine that steps, behind real servers: Triton's backend, the LMI container, a local SageMaker."""
