"""A stand-in for huggingface.co on the loopback: what the hub's own client asks for, from a folder of sparse files.

The client (huggingface_hub, httpx) is the real one; ``HF_ENDPOINT`` sends it here. Two questions are answered: may this
token read the model, and which files of which size it has. Files themselves come by the stand-in of `hf download`.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Hub:
    """Models by name (``meta-llama/...``) -> folder; ``token``: the only one that was granted them."""

    models: dict[str, Path]
    token: str

    def answer(self, path: str, authorization: str) -> tuple[int, dict[str, str], object]:
        """Status, headers and body for one GET."""
        name = urlsplit(path).path.removeprefix("/api/models/").removesuffix("/auth-check")
        if not path.startswith("/api/models/") or name not in self.models:
            return 404, {"X-Error-Code": "RepoNotFound"}, {"error": "Repository not found"}
        if authorization != f"Bearer {self.token}":
            return 403, {"X-Error-Code": "GatedRepo"}, {"error": f"Access to model {name} is restricted"}
        if urlsplit(path).path.endswith("/auth-check"):
            return 200, {}, {}
        files = [{"rfilename": file.name, "size": file.stat().st_size} for file in sorted(self.models[name].iterdir())]
        # the same weights in Meta's own format, which the recipe leaves out
        files.append({"rfilename": "original/consolidated.00.pth", "size": sum(int(str(f["size"])) for f in files)})
        return 200, {}, {"id": name, "modelId": name, "sha": "0" * 40, "gated": "manual", "siblings": files}


@contextmanager
def hub_server(hub: Hub) -> Iterator[str]:
    """Serve ``hub`` on a free port of the loopback; gives the address for ``HF_ENDPOINT``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = hub.answer(self.path, self.headers.get("Authorization", ""))
            content = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Type": "application/json"}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
