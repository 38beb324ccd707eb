"""The ways to serve on an instance, judged and ranked."""
