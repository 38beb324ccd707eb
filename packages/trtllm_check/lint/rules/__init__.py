"""The rules, one family per file: each has ``check(document, setting)``, which yields drafts."""
