"""The rulebook: what must hold between flags, checkpoint, GPU, templates and release, as one table.

``playbook check`` asks it whether a command was right, the recipes ask it before they write one, and ``playbook
explain`` and the pages of docs/ print it.
"""

from trtllm_check.rules.table import TOPICS, Condition, Entry, Rule, Severity, all_rules, rule, topic

__all__ = ["TOPICS", "Condition", "Entry", "Rule", "Severity", "all_rules", "rule", "topic"]
