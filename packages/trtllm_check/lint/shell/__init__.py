"""Shell text, as people paste it, to words and commands that know where they stand."""
