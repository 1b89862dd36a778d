"""White space around a URL, which is trimmed: that of XML, and the other blanks of Unicode.

`str.strip` and the class for it in patterns know more, among them control characters: a URL that
has one of those is refused, not rewritten.
"""

from __future__ import annotations

XML_WHITE_SPACE = " \t\r\n"
WHITE_SPACE = (
    XML_WHITE_SPACE
    + "\u00a0\u1680\u2028\u2029\u202f\u205f\u3000"
    + "".join(map(chr, range(0x2000, 0x200B)))
)
ANY_XML_WHITE_SPACE = f"[{XML_WHITE_SPACE}]*+"
