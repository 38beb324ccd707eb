"""The paths of a server of OpenAI's protocol, and what people write for them."""

import re

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
NEAR_PATHS = {
    **dict.fromkeys(("/v1/chat/completion", "/v1/chat", "/chat/completions", "/v1/chat_completions"), CHAT),
    **dict.fromkeys(("/v1/completion", "/completions", "/v1/complete", "/generate", "/v1/generate"), TEXT),
    **dict.fromkeys(("/v1/embedding", "/embeddings", "/api/embeddings", "/api/embed"), "/v1/embeddings"),
    "/api/chat": CHAT,  # of Ollama, as /api/generate is
    "/api/generate": TEXT,
}
ALWAYS_WRONG = re.compile(r"/v1/(?:chat/completion|chat_completions|completion|embedding)$")
TWICE = re.compile(r"(?:/v1/*){2,}(?=/|$)")
# DJL Serving has /ping, /invocations, /predictions, /v1/chat/completions and /models: InferenceRequestHandler.java.
NOT_OF_LMI = (TEXT, *(path for path in NEAR_PATHS if path != CHAT), "/v1/embeddings")
HEALTH = ("/health", "/healthz", "/ready", "/health/ready", "/ping")
