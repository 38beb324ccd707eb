"""Findings: drafted by rules, mended, shown, and the page that lists them."""
