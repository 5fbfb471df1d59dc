"""Settings of the formats of keys and values, from the options of the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sparkjet.connectors.kafka.formats.registry import NoSchemaError, Registered, Registry
from sparkjet.connectors.kafka.formats.row_ddl import check_columns
from sparkjet.connectors.kafka.options import (
    AVRO,
    BINARY,
    DEBEZIUM_AVRO,
    DEBEZIUM_JSON,
    DESCRIPTOR,
    FORMAT,
    FORMAT_OPTIONS,
    INCLUDE_SCHEMA_ID,
    KEY_PREFIX,
    MESSAGE,
    MODE,
    PERMISSIVE,
    POLL_TIMEOUT,
    PROTOBUF,
    REGISTRY_CA_FILE,
    REGISTRY_PASSWORD,
    REGISTRY_TOKEN,
    REGISTRY_URL,
    REGISTRY_USER,
    SCHEMA,
    SUBJECT,
    VALUE_PREFIX,
    VERSION,
)
from sparkjet.errors import AnalysisError, has_package

if TYPE_CHECKING:
    from sparkjet.options import Option, Options

OF_AVRO = AVRO, DEBEZIUM_AVRO
_TAKEN = {
    AVRO: (SCHEMA, SUBJECT, VERSION),
    DEBEZIUM_AVRO: (SCHEMA, SUBJECT, VERSION),
    DEBEZIUM_JSON: (SCHEMA,),
    PROTOBUF: (SUBJECT, VERSION, DESCRIPTOR, MESSAGE),
    BINARY: (),
}
_NEEDED = {AVRO: ("fastavro", "avro"), DEBEZIUM_AVRO: ("fastavro", "avro"), PROTOBUF: ("google.protobuf", "protobuf")}
"""The package that each format imports, and the extra that installs it."""
_LATEST = "latest"


@dataclass(frozen=True)
class Part:
    """How the key or the value of a record is decoded.

    Attributes:
        prefix: Of its options: ``key.`` or ``value.``.
        format: The option ``format``; not ``binary``.
        schema: The option ``schema``.
        subject: The subject in the registry; empty where none is needed.
        version: The version of it.
        descriptor: The option ``descriptor``.
        message: The option ``message``.
    """

    prefix: str
    format: str
    schema: str | None
    subject: str
    version: str
    descriptor: str | None
    message: str | None

    @property
    def name(self) -> str:
        """The column."""
        return self.prefix[:-1]

    def option(self, option: Option[Any]) -> str:
        """The name of one of its options."""
        return self.prefix + option.name


@dataclass(frozen=True)
class Formats:
    """The formats of a source.

    Attributes:
        key: That of keys; None if they stay as they are.
        value: That of values, likewise.
        registry: The registry; None without.
        permissive: Whether malformed records are told in a column, and do not end the query.
        numbered: The column of whose messages the numbers of schemas are told, in a column too; None if they are not.
    """

    key: Part | None = None
    value: Part | None = None
    registry: Registry | None = None
    permissive: bool = False
    numbered: str | None = None

    @staticmethod
    def of(options: Options, topics: Sequence[str]) -> Formats:
        """The formats in some options; does not connect.

        Args:
            options: The options.
            topics: The topics that are read, if they are known by name.

        Raises:
            AnalysisError: Options that do not go together.
        """
        registry = _registry(options)
        key, value = (_part(options, prefix, topics, registry) for prefix in (KEY_PREFIX, VALUE_PREFIX))
        if key is None and value is None:
            for option in FORMAT_OPTIONS:
                if option in options and not option.name.endswith(FORMAT.name):
                    message = (
                        f'option: {option.name}: without a format, key and value stay as they are. Add option("'
                        f'{VALUE_PREFIX}{FORMAT.name}", "{AVRO}"), or leave it out.'
                    )
                    raise AnalysisError(message)
        return Formats(
            key,
            value,
            registry,
            permissive=options[MODE] == PERMISSIVE,
            numbered=_numbered(value, key, has_registry=registry is not None) if options[INCLUDE_SCHEMA_ID] else None,
        )

    @property
    def parts(self) -> list[Part]:
        """Those that are decoded, keys first."""
        return [part for part in (self.key, self.value) if part is not None]

    def reader(self, part: Part) -> Registered | None:
        """The schema that a part is read with; asks the registry if the user gives none. None if there is none.

        Raises:
            AnalysisError: The registry does not have it.
            SourceError: The registry does not answer.
        """
        if part.format in OF_AVRO and part.schema is not None:
            return Registered(part.schema, "AVRO", 0)
        if part.descriptor is not None:
            from sparkjet.connectors.kafka.formats.protobuf import descriptors_of  # noqa: PLC0415 - it is optional

            return descriptors_of(part.descriptor, part.option(DESCRIPTOR))
        if not part.subject or self.registry is None:
            return None
        kind = "serialized" if part.format == PROTOBUF else ""
        try:
            return self.registry.version(part.subject, part.version, kind)
        except NoSchemaError as error:
            message = (
                f"option: {part.option(FORMAT)}={part.format}: {error}. Name another with option("
                f'"{part.option(SUBJECT)}", "…") or option("{part.option(VERSION)}", "…").'
            )
            raise AnalysisError(message) from error


def _numbered(*parts: Part | None, has_registry: bool) -> str:
    """The first part whose messages begin with the number of a schema."""
    for part in parts:
        if part is not None and (part.format in OF_AVRO or (part.format == PROTOBUF and has_registry)):
            return part.name
    message = (
        f"option: {INCLUDE_SCHEMA_ID.name}: no message has the number of a schema but of {AVRO}, {DEBEZIUM_AVRO} and, "
        f"with {REGISTRY_URL.name}, {PROTOBUF}. Leave it out."
    )
    raise AnalysisError(message)


def _part(options: Options, prefix: str, topics: Sequence[str], registry: Registry | None) -> Part | None:
    def of(option: Option[Any]) -> Option[Any]:
        return option.below(prefix, "")

    chosen = options[of(FORMAT)]
    for option in (SCHEMA, SUBJECT, VERSION, DESCRIPTOR, MESSAGE):
        if of(option) in options and option not in _TAKEN[chosen]:
            message = f'option: {prefix}{option.name} has no effect with option("{prefix}{FORMAT.name}", "{chosen}").'
            raise AnalysisError(message)
    if chosen == BINARY:
        return None
    own = [option for option in (SCHEMA, DESCRIPTOR) if of(option) in options]
    named = [option for option in (SUBJECT, VERSION) if of(option) in options]
    if own and named:
        message = f"option: {prefix}{named[0].name} has no effect beside {prefix}{own[0].name}; leave one of them out."
        raise AnalysisError(message)
    package, extra = _NEEDED.get(chosen, ("json", ""))
    if not has_package(package):
        message = f'option: {prefix}{FORMAT.name}={chosen} needs {package}: pip install "sparkjet[{extra}]".'
        raise AnalysisError(message)
    version = options[of(VERSION)]
    if version != _LATEST and not (version.isascii() and version.isdigit()):
        message = f"option: {prefix}{VERSION.name}={version} must be {_LATEST}, or a number such as 3."
        raise AnalysisError(message)
    part = Part(
        prefix,
        chosen,
        options[of(SCHEMA)],
        options[of(SUBJECT)] or "",
        version,
        options[of(DESCRIPTOR)],
        options[of(MESSAGE)],
    )
    return _complete(part, topics, has_registry=registry is not None)


def _complete(part: Part, topics: Sequence[str], *, has_registry: bool) -> Part:
    """A part that says where its schema is."""
    given = f"option: {part.option(FORMAT)}={part.format}"
    if part.format == DEBEZIUM_JSON:
        if part.schema is None:
            message = (
                f"{given} needs the columns of a row, such as "
                f'option("{part.option(SCHEMA)}", "id bigint, name string").'
            )
            raise AnalysisError(message)
        check_columns(part.schema, part.option(SCHEMA))
        return part
    if not has_registry and (part.format in OF_AVRO or part.descriptor is None):
        message = f'{given} needs option("{REGISTRY_URL.name}", "http://…").'
        raise AnalysisError(message)
    if part.schema is not None or part.descriptor is not None or part.subject:
        return part
    if len({*topics}) != 1:
        message = (
            f'{given}: of several topics, say which schema all are read with: option("{part.option(SUBJECT)}", "…").'
        )
        raise AnalysisError(message)
    # As serializers name it, unless they are told otherwise.
    return replace(part, subject=f"{topics[0]}-{part.name}")


def _registry(options: Options) -> Registry | None:
    url = options[REGISTRY_URL]
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and parts.hostname is not None
    except ValueError:
        known = False
    if not known:
        message = f"option: {REGISTRY_URL.name} must be an address such as https://registry:8081."
        raise AnalysisError(message)
    if parts.username is not None or parts.password is not None:
        # Not shown: Spark would show it in plans.
        message = (
            f"option: {REGISTRY_URL.name}: leave user and password out of the address, which Spark shows in plans. Use "
            f"{REGISTRY_USER.name} and {REGISTRY_PASSWORD.name}."
        )
        raise AnalysisError(message)
    given = options[REGISTRY_USER], options[REGISTRY_PASSWORD], options[REGISTRY_TOKEN], options[REGISTRY_CA_FILE]
    if options[REGISTRY_TOKEN] != options[REGISTRY_TOKEN].strip():
        # Not shown; no header may have it, and the request would fail as if the registry had answered nonsense.
        message = f"option: {REGISTRY_TOKEN.name} begins or ends with a space or a line break, as of a file; strip it."
        raise AnalysisError(message)
    if options[REGISTRY_TOKEN] and options[REGISTRY_USER]:
        message = f"option: {REGISTRY_TOKEN.name} and {REGISTRY_USER.name} are two ways in; give one of them."
        raise AnalysisError(message)
    return Registry(url, options[POLL_TIMEOUT] / 1000, *given)
