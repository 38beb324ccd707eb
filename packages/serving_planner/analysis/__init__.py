"""What follows from a case and its simulation: steady state, bounds, costs, warnings."""
