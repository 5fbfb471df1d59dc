"""Stream-processing semantics of Hazelcast Jet for PySpark Structured Streaming."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

# Installed by pip with sparkjet, but not by `--py-files`. Only looked up: pytest imports this at every start.
_absent = [each for each in ("msgspec", "tenacity", "typing_extensions") if find_spec(each) is None]
if _absent:
    import platform
    import sys

    from sparkjet.errors import lacking

    _packages = {each: each for each in ("msgspec", "tenacity", "typing-extensions")}
    _python = f"sparkjet: {sys.executable} on {platform.node()}"
    raise ModuleNotFoundError(lacking(_python, _absent[:1], _packages), name=_absent[0])

if TYPE_CHECKING:
    # For tools the same names, and no others: to them, a module with a `__getattr__` has every name.
    from sparkjet._names import *  # noqa: F403 - see above
else:

    def __getattr__(name: str) -> Any:
        # On use: readers of a grid, and its members, have no PySpark, and need nothing of this.
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        # Packages first: `from sparkjet import grid` asks for the name before it imports one, also without PySpark.
        if find_spec(f"{__name__}.{name}") is not None:
            return import_module(f"{__name__}.{name}")
        names = import_module(f"{__name__}._names")
        if not hasattr(names, name):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals().setdefault(name, getattr(names, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *import_module(f"{__name__}._names").__all__})
