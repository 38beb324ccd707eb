"""The embedded lane: the real job of every stage, done on a CPU."""
