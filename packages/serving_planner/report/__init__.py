"""Plans and choices as text and as lines of JSON."""
