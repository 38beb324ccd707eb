"""What the rules look at: servers, clones, packages, requests, prompts and templates of a document."""
