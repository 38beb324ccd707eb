"""The `playbook` command line."""
