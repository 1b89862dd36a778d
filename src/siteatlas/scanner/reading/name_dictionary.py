"""A dictionary of names for each document that libxml2 parses, freed with the document.

lxml has one for each thread, in an object that it keeps in the state of the thread and makes when
it finds none. It only grows, is limited, and is shared by all documents of the thread: junk names
in one would break the parsing of all that come later. So each document, also a web page, brings its
own object. How much one sitemap may put into it is limited by `formats/name_limits.py`; of a web
page, only the start is parsed.
"""

from __future__ import annotations

import ctypes
from types import TracebackType

LXML_KEY = "_ParserDictionaryContext"


class NameDictionary:
    """Of one document; whatever lxml does for that document must be done inside `with`.

    lxml frees the names of a document by the dictionary that it finds, so that a call outside, of
    which there must be none, would end the process.
    """

    def __init__(self) -> None:
        self._own: object | None = None
        self._outer: object | None = None

    def __enter__(self) -> None:
        self._outer = _exchange(self._own)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._own = _exchange(self._outer)
        self._outer = None


def _exchange(new: object | None) -> object | None:
    """Put an object in the place of the one that lxml has; None makes lxml create a new one."""
    values = _thread_values()
    old = values.pop(LXML_KEY, None)
    if new is not None:
        values[LXML_KEY] = new
    return old


# A function type of our own: the attributes of `ctypes.pythonapi` are shared with other users.
_thread_dict_address = ctypes.PYFUNCTYPE(ctypes.c_void_p)(
    ("PyThreadState_GetDict", ctypes.pythonapi)
)


def _thread_values() -> dict[str, object]:
    """The dictionary in which extension modules keep what belongs to this thread.

    Asked for each time: a reference that is kept would keep all of it after the thread has ended.
    """
    values: dict[str, object] = ctypes.cast(_thread_dict_address(), ctypes.py_object).value
    return values
