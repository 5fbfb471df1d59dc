"""The page: a server in the driver, or in a process that reads records, for viewers; it changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from sparkjet.clock import SystemClock
from sparkjet.errors import AnalysisError, SparkjetError
from sparkjet.monitoring.late_rows import newest_rows
from sparkjet.monitoring.metrics import exposition
from sparkjet.monitoring.open_pages import Note, OpenPage
from sparkjet.monitoring.runs import DRIVER, Runs, condition_of
from sparkjet.monitoring.view import details, summary
from sparkjet.query_log import logger, without_users

if TYPE_CHECKING:
    from sparkjet.clock import Clock

LOOK_SECONDS = 1.0
"""Seconds between checks for something new for an open page."""
QUIET_LOOKS = 5
"""Checks after which it is updated in any case, as what it shows ages; a quiet query must not pay for each check."""
READERS = 100
"""Connections served at a time: unread data of each stays in the driver's memory, a megabyte at most."""
_TOKEN = re.compile(r"[A-Za-z0-9._~-]+")
_HEADERS = {
    # Nothing from anywhere else: the page works without a network, and what a name contains is never run.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_LOCKED = "This needs the page's token, as Authorization: Bearer TOKEN; `sparkjet page` prints it to its user.\n"
_LAST_PORT = 65_535
_KINDS = {
    "page.html": "text/html",
    "page.js": "text/javascript",
    "page.css": "text/css",
    "alerts.yml": "application/yaml",
    "dashboard.json": "application/json",
}
_Answer: TypeAlias = Callable[[Request], Awaitable[Response]]


class Page:
    """A server of the page in its own thread, until :meth:`stop` or the end of the process.

    What it says of queries can be read only with its token, on loopback too: names of substreams, errors and late rows
    come from users' rows, and a machine may have several users. The token comes in a header set by the page's script,
    and never automatically as a cookie does: other sites, and other ports of this host, get nothing.

    Args:
        host: The address to listen on.
        port: The port; 0 for any free one.
        token: The token that readers must know; made up if not given.
        runs: The runs to show; by default the queries of this driver.
        clock: Source of the time.

    Raises:
        AnalysisError: The address or the token cannot be used.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        *,
        runs: Runs = DRIVER,
        clock: Clock | None = None,
    ) -> None:
        self._asked = host, token, runs
        if token is not None and not _TOKEN.fullmatch(token):
            message = (
                "The page's token is not made of letters, digits, -, _, . and ~, which addresses and headers carry as "
                "they are. Without one, a token is made up."
            )
            raise AnalysisError(message)
        self._socket = _listening(host, port)
        self.port: int = self._socket.getsockname()[1]
        # An address that means all addresses leads nobody here from another machine.
        shown = socket.gethostname() if _is_any(host) else f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self.port}/"
        page = OpenPage(os.getpid(), self.address, token or secrets.token_urlsafe(24))
        self.url = page.url
        # One that the user has chosen stays valid: it must not get into saved notebooks and service logs.
        self._printed = self.url if token is None else self.address
        self._routes = _Routes(runs, clock or SystemClock(), page.token)
        app = Starlette(routes=self._routes.all())
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
            date_header=False,
            # The one that asks counts too.
            limit_concurrency=READERS + 1,
        )
        self._server = _Server(config)
        self._thread = threading.Thread(
            # A duplicate, which the server closes.
            target=self._server.run,
            kwargs={"sockets": [self._socket.dup()]},
            name="sparkjet-page",
            daemon=True,
        )
        self._thread.start()
        self._note = _noted(page)

    def stop(self) -> None:
        """End the server; a second call does nothing."""
        note, self._note = self._note, None
        if note is not None:
            note.remove()
        self._routes.ended.set()
        self._server.end()
        self._thread.join()
        # A process forked in the meantime has the socket too: clients would wait there for an answer.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server has ended; returns False if that takes longer than ``timeout`` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def is_open(self) -> bool:
        """Whether it is still served."""
        return self._thread.is_alive()

    def serves(self, host: str, port: int, token: str | None, runs: Runs) -> bool:
        """Whether it is what a call with these arguments would open; no port means any port."""
        return (host, token, runs) == self._asked and port in {0, self.port}

    def __repr__(self) -> str:
        """The address to open; with the token if that was made up."""
        return self._printed

    def _repr_html_(self) -> str:
        """A link, for notebooks."""
        return f'<a href="{escape(self._printed)}" target="_blank">{escape(self._printed)}</a>'


class _Server(uvicorn.Server):
    """Waits to be asked to end; uvicorn's own server polls ten times a second, which is most of what a page costs."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._asked: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    async def main_loop(self) -> None:
        """Called by uvicorn between its start and its end."""
        self._asked = asyncio.get_running_loop(), asyncio.Event()
        # It may have been asked before.
        if not self.should_exit:
            await self._asked[1].wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn at its end."""
        loop = asyncio.get_running_loop()
        for listening in (each for server in self.servers for each in server.sockets):
            loop.remove_reader(listening.fileno())
        # A connection that is accepted when the server is closed would get no transport, and nobody would close it.
        for _ in range(2):
            await asyncio.sleep(0)
        await super().shutdown(sockets)
        # Uvicorn leaves open what a reader does not read, and what was accepted while it asked the others to close.
        while self.server_state.connections:
            for connection in list(self.server_state.connections):
                connection.transport.abort()
            await asyncio.sleep(0)

    def end(self) -> None:
        """Ask it to end, from another thread; a second call does nothing."""
        self.should_exit = True
        if self._asked is not None:
            loop, asked = self._asked
            # Closed once it has ended.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(asked.set)


@dataclass
class _Routes:
    """The server's responses: the page, ``/runs``, ``/events``, ``/metrics``, and rules and a dashboard for them."""

    runs: Runs
    clock: Clock
    token: str = field(repr=False)
    ended: threading.Event = field(default_factory=threading.Event)

    def all(self) -> list[Route]:
        return [
            # What every installation has is readable without a token: a page asks for the token itself.
            Route("/", _file("page.html")),
            *(Route(f"/{name}", _file(name)) for name in _KINDS),
            Route("/runs", self._allowed(self._list)),
            Route("/late/{run:path}", self._allowed(self._late)),
            Route("/grid/{run:path}", self._allowed(self._grid)),
            Route("/runs/{run:path}", self._allowed(self._one)),
            Route("/events", self._allowed(self._events)),
            Route("/metrics", self._allowed(self._metrics)),
        ]

    def _allowed(self, answer: _Answer) -> _Answer:
        async def checked(request: Request) -> Response:
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not secrets.compare_digest(given.encode(), self.token.encode()):
                response: Response = PlainTextResponse(_LOCKED, 401, {"WWW-Authenticate": "Bearer"})
            else:
                response = await answer(request)
            response.headers.update(_HEADERS)
            return response

        return checked

    async def _list(self, _: Request) -> Response:
        return JSONResponse(self._summaries())

    async def _one(self, request: Request) -> Response:
        run = self.runs.get(request.path_params["run"])
        if run is None:
            return PlainTextResponse("There is no such run; /runs lists them.\n", 404)
        told = details(run, self.clock.now())
        if request.query_params.get("points") != "no":
            told["points"] = msgspec.to_builtins(run.history.points)
        return JSONResponse(told)

    async def _late(self, request: Request) -> Response:
        run = self.runs.get(request.path_params["run"])
        if run is None or run.history.dropped is None:
            return PlainTextResponse("No output of this run has written late rows into files.\n", 404)
        return JSONResponse(await asyncio.to_thread(newest_rows, run.history.dropped))

    async def _grid(self, request: Request) -> Response:
        run = self.runs.get(request.path_params["run"])
        ask = None if run is None else run.grid
        if ask is None:
            return PlainTextResponse("The home of this run is in no grid.\n", 404)
        try:
            return JSONResponse(await asyncio.to_thread(ask))
        except (SparkjetError, OSError) as error:
            return JSONResponse({"error": {"condition": condition_of(error), "message": without_users(str(error))}})

    async def _events(self, request: Request) -> Response:
        told = self._told(request.query_params.get("run"))
        # Otherwise nginx, which the guide puts in front for TLS, holds back events until some kilobytes are together.
        return StreamingResponse(told, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _metrics(self, _: Request) -> Response:
        try:
            text = exposition(self.clock, self.runs)
        except AnalysisError as error:
            return PlainTextResponse(f"{error}\n", 501)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _told(self, chosen: str | None) -> AsyncIterator[str]:
        """All runs in brief and one in full, after each epoch; the first one until an existing one is chosen.

        Its points once, and then only new ones: a day of them is some hundred kilobytes.
        """
        seen: tuple[str, int | None, int] = "", None, 0
        told_of: object = None
        quiet = 0
        while not self.ended.is_set():
            known = [(each.run, each.state, each.failure, each.history.totals.epochs) for each in self.runs.all()]
            quiet = quiet + 1 if known == told_of else 0
            told_of = known
            if quiet % QUIET_LOOKS:
                await asyncio.sleep(LOOK_SECONDS)
                continue
            listed = self._summaries()
            # A restarted driver knows nothing of the run that a page has been showing.
            run = self.runs.get(chosen or "") or self.runs.get(listed[0]["run"] if listed else "")
            told: dict[str, Any] = {"runs": listed, "run": None}
            if run is not None:
                merges, points, whole = run.history.since(*(seen[1:] if seen[0] == run.run else ()))
                # Not the time of a run shown before: this one may begin earlier, if the clock was set back.
                seen = run.run, merges, points[-1].at if points else 0 if whole else seen[2]
                told["run"] = details(run, self.clock.now())
                told["points" if whole else "more"] = msgspec.to_builtins(points)
            yield f"data: {json.dumps(told)}\n\n"
            await asyncio.sleep(LOOK_SECONDS)

    def _summaries(self) -> list[dict[str, Any]]:
        return [summary(run, self.clock.now()) for run in self.runs.all()]


def _file(name: str) -> _Answer:
    async def answer(_: Request) -> Response:
        content = (resources.files("sparkjet.monitoring") / "static" / name).read_bytes()
        return Response(content, media_type=f"{_KINDS[name]}; charset=utf-8", headers=_HEADERS)

    return answer


def _noted(page: OpenPage) -> Note | None:
    try:
        return Note(page)
    except OSError as error:
        logger.warning("sparkjet top and page do not find the page at %s by themselves: %s", page.address, error)
        return None


def _is_any(host: str) -> bool:
    return host in {"", "0.0.0.0", "::"}  # noqa: S104 - compared


def _listening(host: str, port: int) -> socket.socket:
    if type(port) is not int or not 0 <= port <= _LAST_PORT:
        message = f"The page cannot listen on port={port!r}: ports are 1 to {_LAST_PORT}, and 0 is any that is free."
        raise AnalysisError(message)
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, TypeError) as error:
        # The latter for something that is not text, or does not name a host.
        reason = (isinstance(error, OSError) and error.strerror) or error
        message = (
            f"The page cannot listen on host={host!r}, port={port}: {reason}. Give it a port that is "
            "free (0 for any), and an address of this machine."
        )
        raise AnalysisError(message) from error
