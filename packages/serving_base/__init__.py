"""What checker, planner and course stand on: facts (models, GPUs, instances, prices), errors, processes."""
