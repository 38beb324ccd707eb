"""What the commands of a text are: tools, flags, servers, clones, packages, requests."""
