"""Slides of the course, made from its notebooks: what a slide shows, and what its speaker reads."""
