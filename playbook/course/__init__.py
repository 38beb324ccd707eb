"""The course as a whole: its notebooks, running them, and what a run reports."""
