"""The time, memory and power of one engine step, from laws fitted to measurements."""
