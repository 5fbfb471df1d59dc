"""A schema registry on the loopback address: as much of Confluent's REST protocol as serializers and readers use."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from typing_extensions import Self


class SchemaRegistry:
    """A registry in a thread of this process; a context manager.

    Args:
        user: Who may come in, as ``name:password``; anybody by default.
        serialized: What makes of a schema of Protobuf the bytes of its FileDescriptorProto, from its text.

    Attributes:
        asked: The paths of all requests.
        broken: Status with which it answers everything, while it is set.
        answer: What it answers everything with, while it is set.
        deleted: Subjects that were deleted, softly.
    """

    def __init__(self, *, user: str | None = None, serialized: Callable[[str], bytes] | None = None) -> None:
        self.asked: list[str] = []
        self.broken: int | None = None
        self.answer: Any = None
        self.deleted: set[str] = set()
        self._user, self._serialized = user, serialized
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def register(self, subject: str, schema: Any, **more: Any) -> int:
        """Add a version to a subject; the number of its schema."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return int(self._registered(subject, {"schema": text, **more})["id"])

    def _registered(self, subject: str, given: dict[str, Any]) -> dict[str, Any]:
        kept = {name: given[name] for name in ("schema", "schemaType", "references") if given.get(name)}
        with self._lock:
            if kept not in self._schemas:
                self._schemas.append(kept)
            number = self._schemas.index(kept) + 1
            versions = self._subjects.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
            return {**kept, "subject": subject, "id": number, "version": versions.index(number) + 1}

    def _answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:  # noqa: PLR0911 - one by path
        parts, query = urlsplit(path), parse_qs(urlsplit(path).query)
        match [unquote(each) for each in parts.path.strip("/").split("/")], method:
            case ["schemas", "ids", number], "GET":
                if int(number) >= 2**31:
                    # It is no int of Java, so that the path is no path of the registry.
                    return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
                if not 0 < int(number) <= len(self._schemas):
                    return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
                return 200, self._shown(self._schemas[int(number) - 1], query)
            case ["subjects", subject, "versions"], "POST":
                return 200, self._registered(subject, body)
            case ["subjects", subject], "POST":
                if subject not in self._subjects:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                return 200, self._registered(subject, body)
            case ["subjects", subject, "versions", version], "GET":
                versions = self._subjects.get(subject)
                if versions is None or (subject in self.deleted and query.get("deleted") != ["true"]):
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                at = len(versions) if version == "latest" else int(version)
                if not 0 < at <= len(versions):
                    return 404, {"error_code": 40402, "message": f"Version {version} not found."}
                found = self._shown(self._schemas[versions[at - 1] - 1], query)
                return 200, {**found, "subject": subject, "id": versions[at - 1], "version": at}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _shown(self, kept: dict[str, Any], query: dict[str, list[str]]) -> dict[str, Any]:
        if query.get("format") == ["serialized"] and self._serialized is not None:
            return {**kept, "schema": base64.b64encode(self._serialized(kept["schema"])).decode()}
        return kept

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._do("GET")

            def do_POST(self) -> None:
                self._do("POST")

            def log_message(self, *_: Any) -> None:
                """Into no log: the test looks at ``asked``."""

            def _do(self, method: str) -> None:
                registry.asked.append(self.path)
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                user = registry._user
                if registry.broken is not None:
                    status, answer = registry.broken, {"error_code": 50001, "message": "broken"}
                elif user and self.headers.get("Authorization") != "Basic " + base64.b64encode(user.encode()).decode():
                    status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
                elif registry.answer is not None:
                    status, answer = 200, registry.answer
                else:
                    status, answer = registry._answer(method, self.path, json.loads(data) if data else {})
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        return Handler
