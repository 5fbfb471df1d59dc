"""A private REST catalog of Iceberg's on the loopback address: its own server, over a database that is in memory."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from typing_extensions import Self

from tests.servers.programs import SMALL, jars, java

_ICEBERG = "org.apache.iceberg"
_JETTY = "org.eclipse.jetty"


class RestCatalogServer:
    """One server in its own JVM; a context manager that leaves no process and no file behind.

    Raises:
        NoProgramError: Saying what to install.
    """

    def __init__(self) -> None:
        own, spark = jars(Path(__file__).with_suffix(".xml")), Path(pyspark.__file__).parent / "jars"
        self._classes = [f"{own}/*", *map(str, spark.glob("hadoop-client-*.jar"))]
        self._py4j = str(next(spark.glob("py4j-*.jar")))
        self.warehouse = Path(tempfile.mkdtemp(prefix="sparkjet-iceberg-rest-"))
        self.port = 0

    def __enter__(self) -> Self:
        # It ends with us, however we do.
        port = launch_gateway(
            jarpath=self._py4j,
            classpath=":".join(self._classes),
            javaopts=["-Xmx256m", *SMALL],
            java_path=java(),
            die_on_exit=True,
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        self._server = self._started(self._gateway.jvm)
        self.port = self._server.getConnectors()[0].getLocalPort()
        return self

    def __exit__(self, *_: object) -> None:
        self._gateway.shutdown()
        shutil.rmtree(self.warehouse, ignore_errors=True)

    def settings(self, port: int | None = None) -> dict[str, str]:
        """How Iceberg's client reaches it, perhaps through a proxy."""
        return {"type": "rest", "uri": f"http://127.0.0.1:{port or self.port}"}

    def _started(self, jvm: Any) -> Any:
        options = {
            "type": "jdbc",
            "uri": "jdbc:h2:mem:rest;DB_CLOSE_DELAY=-1;DATABASE_TO_UPPER=FALSE",
            "warehouse": str(self.warehouse),
        }
        make = getattr(jvm, f"{_ICEBERG}.CatalogUtil").buildIcebergCatalog
        catalog = make("rest", options, getattr(jvm, "org.apache.hadoop.conf.Configuration")())
        adapter = getattr(jvm, f"{_ICEBERG}.rest.RESTCatalogAdapter")(catalog)
        servlet = getattr(jvm, f"{_ICEBERG}.rest.RESTCatalogServlet")(adapter)
        context = getattr(jvm, f"{_JETTY}.servlet.ServletContextHandler")()
        context.addServlet(getattr(jvm, f"{_JETTY}.servlet.ServletHolder")(servlet), "/*")
        server = getattr(jvm, f"{_JETTY}.server.Server")(getattr(jvm, "java.net.InetSocketAddress")("127.0.0.1", 0))
        server.setHandler(context)
        server.start()
        return server
