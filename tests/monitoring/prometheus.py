"""A real Prometheus that scrapes a page, with rules."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

if TYPE_CHECKING:
    from sparkjet.monitoring.page import Page


def found(program: str) -> str:
    """Where a program is."""
    path = shutil.which(program)
    assert path is not None, f"{program} is missing: install Debian's package prometheus"
    return path


class Prometheus:
    """The server; a context manager that leaves no process behind.

    Args:
        folder: For its files.
        page: What it scrapes each second.
        rules: Alert rules, as YAML.
    """

    def __init__(self, folder: Path, page: Page, rules: str) -> None:
        self._folder = folder
        job = {
            "job_name": "sparkjet",
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "authorization": {"credentials": page.url.partition("#token=")[2]},
            "static_configs": [{"targets": [f"127.0.0.1:{page.port}"]}],
        }
        (folder / "alerts.yml").write_text(rules)
        config = {"global": {"evaluation_interval": "1s"}, "scrape_configs": [job], "rule_files": ["alerts.yml"]}
        (folder / "prometheus.yml").write_text(json.dumps(config))

    def __enter__(self) -> Self:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        command = [
            found("prometheus"),
            f"--config.file={self._folder}/prometheus.yml",
            f"--storage.tsdb.path={self._folder}/data",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]
        self._server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()
        self._server.wait()

    def asked(self, expression: str) -> list[Any]:
        """The samples of an expression; none while the server starts."""
        return list(self._get(f"query?{urllib.parse.urlencode({'query': expression})}").get("result", ()))

    def value(self, expression: str) -> float | None:
        """The value of an expression that has one sample."""
        samples = self.asked(expression)
        return float(samples[0]["value"][1]) if len(samples) == 1 else None

    def firing(self, label: str) -> set[tuple[str, str]]:
        """The alerts that fire, each with the value of a label, empty where it has none."""
        alerts = self._get("alerts").get("alerts", ())
        return {
            (each["labels"]["alertname"], each["labels"].get(label, "")) for each in alerts if each["state"] == "firing"
        }

    def _get(self, path: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}", timeout=10) as answer:
                data: dict[str, Any] = json.loads(answer.read())["data"]
                return data
        except OSError:
            return {}
