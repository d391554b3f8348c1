"""A terminal as clever as the tests need: it wraps, moves up, erases, and wraps anew when it is resized."""

import io
import re

_SEQUENCE = re.compile(r"\x1b\[(?P<arguments>[0-9;?]*)(?P<final>[A-Za-z])|(?P<text>[^\x1b])", re.DOTALL)


class Terminal(io.TextIOBase):
    """Takes what is written to it; it has no height. Each character is one column."""

    encoding = "utf-8"

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows = [""]
        self.raw = ""
        self.is_cursor_shown = True
        self._joined = [False]  # whether a row goes on in the next
        self._row = self._column = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.raw += text
        for match in _SEQUENCE.finditer(text):
            if match["text"] is None:
                self._control(match["final"], match["arguments"])
            else:
                self._put(match["text"])
        return len(text)

    def resize(self, width: int) -> None:
        """Wraps each line anew, as most terminals do; the cursor must be at the end."""
        del self.rows[self._row + 1 :], self._joined[self._row + 1 :]
        logical, start = [], True
        for row, joined in zip(self.rows, self._joined, strict=True):
            if start:
                logical.append(row)
            else:
                logical[-1] += row
            start = not joined
        self.width, self.rows, self._joined = width, [], []
        for line in logical:
            pieces = [line[at : at + width] for at in range(0, len(line), width)] or [""]
            self.rows += pieces
            self._joined += [True] * (len(pieces) - 1) + [False]
        self._row, self._column = len(self.rows) - 1, len(self.rows[-1])

    @property
    def text(self) -> str:
        """What one would see, without the empty rows at its end."""
        return "\n".join(row.rstrip() for row in self.rows).rstrip("\n")

    def _control(self, final: str, arguments: str) -> None:
        if final == "A":
            self._row = max(0, self._row - int(arguments or 1))
        elif final == "K":
            assert arguments == "2"
            self.rows[self._row], self._joined[self._row] = "", False
        elif final in "hl" and arguments == "?25":
            self.is_cursor_shown = final == "h"
        else:
            assert final == "m", f"{arguments}{final} is not known here"

    def _put(self, character: str) -> None:
        if character == "\r":
            self._column = 0
            return
        if character == "\n" or self._column >= self.width:
            self._joined[self._row] = character != "\n"
            self._row, self._column = self._row + 1, 0
            if self._row == len(self.rows):
                self.rows.append("")
                self._joined.append(False)
        if character != "\n":
            row = self.rows[self._row].ljust(self._column)
            self.rows[self._row] = row[: self._column] + character + row[self._column + 1 :]
            self._column += 1
