"""A link from Spark's UI to one of our pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkjet.java import has_member, is_stopped, scala_context
from sparkjet.query_log import logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PATH = "/sparkjet"
_OF_SIX = "org.apache.spark.ui.JettyUtils$.createRedirectHandler(6)"


def link(session: SparkSession, address: str) -> None:
    """Make ``/sparkjet/`` in Spark's UI lead to an address; does nothing if the UI is gone.

    A tab would need a Scala class. If a new Spark lacks something, this is logged: the page works without its link.
    """
    if is_stopped(session.sparkContext):
        return
    jvm: Any = session._jvm
    try:
        # Not getOrCreate(): if the user's context has just been stopped, that would start another one.
        ui = scala_context(session).ui()
        if ui.isEmpty():
            return
        same = _module(jvm.scala, "$less$colon$less").refl()
        methods = _module(jvm.scala.collection.immutable, "Set").empty().incl("GET")
        jetty = _module(jvm.org.apache.spark.ui, "JettyUtils")
        # Releases of one line differ in whether there is a sixth parameter; Spark's own default for it is none.
        further = [jvm.scala.Option.empty()] if has_member(session.sparkContext, _OF_SIX) else []
        handler = jetty.createRedirectHandler(PATH, address, same, "", methods, *further)
        # A second one would be behind the first, which may lead to a stopped page.
        ui.get().detachHandler(PATH)
        ui.get().attachHandler(handler)
    except Exception as error:  # noqa: BLE001 - whatever a new Spark answers
        logger.warning("Spark's UI has no link to %s: %s", address, error)


def _module(package: Any, name: str) -> Any:
    return getattr(getattr(package, f"{name}$"), "MODULE$")
