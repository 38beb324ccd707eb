"""The course as a whole: its notebooks, running them, and what a run reports."""

import sys

# nbformat's schema checker would build a grammar of web addresses that no notebook's schema asks for: 2 s a process.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
