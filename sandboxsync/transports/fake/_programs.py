"""Programs of the fake that bashkit has not, or has in a way that would lie."""

from __future__ import annotations

import posixpath
import re
import signal
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from sandboxsync.transports.fake._program import Answer, Invocation, Program, Step, complaint

__all__ = ["PROGRAMS"]

_ENDLESS = 4 << 20
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _sleep(call: Invocation) -> Answer:
    """`sleep`, on the fake's clock."""
    seconds = 0.0
    if not call.argv:
        return complaint("sleep: missing operand")
    for word in call.argv:
        number, unit = (word[:-1], word[-1]) if word[-1:] in _UNITS else (word, "s")
        try:
            value = float(number) * _UNITS[unit]
        except ValueError:
            value = -1.0
        if not value >= 0:
            return complaint(f"sleep: invalid time interval '{word}'")
        seconds += value
    return Answer(delay=seconds)


def _mkfifo(call: Invocation) -> Answer:
    """`mkfifo`, which bashkit cannot do on a foreign file system. Nobody waits at one: it never blocks."""
    if not call.argv:
        return complaint("mkfifo: missing operand")
    for word in call.argv:
        try:
            call.shell.sandbox.volume.mkfifo(posixpath.join(call.cwd, word))
        except OSError as exc:
            return complaint(f"mkfifo: cannot create fifo '{word}': {exc.strerror}")
    return Answer()


def _seq(call: Invocation) -> Answer:
    """`seq`, of which bashkit's stops at 100,000 lines without a word."""
    words = list(call.argv)
    separator, width = "\n", False
    while words and words[0].startswith("-") and not _is_number(words[0]):
        option = words.pop(0)
        if option == "-s" and words:
            separator = words.pop(0)
        elif option == "-w":
            width = True
        elif option != "--":
            return complaint(f"seq: the fake has no option {option}")
    bad = [word for word in words if not _is_number(word)]
    if bad:
        return complaint(f"seq: invalid floating point argument: '{bad[0]}'")
    if not 1 <= len(words) <= 3:
        return complaint("seq: missing operand" if not words else f"seq: extra operand '{words[3]}'")
    numbers = [Decimal(word) for word in words]
    last = numbers[-1]
    first = numbers[0] if len(numbers) > 1 else Decimal(1)
    step = numbers[1] if len(numbers) > 2 else Decimal(1)
    if step == 0:
        return complaint(f"seq: invalid Zero increment value: '{words[1]}'")
    count = int((last - first) / step) + 1 if (last - first) / step >= 0 else 0
    places = max(len(word.partition(".")[2]) for word in (words[:-1] or ["1"]))
    if places:
        texts = [f"{first + step * index:.{places}f}" for index in range(count)]
    else:
        whole, by = int(first), int(step)
        texts = list(map(str, range(whole, whole + by * count, by)))
    if width:
        longest = max(map(len, texts), default=0)
        texts = [text.zfill(longest) for text in texts]
    data = separator.join(texts) + ("\n" if texts else "")
    return Answer([Step(0.0, "stdout", data.encode())])


def _touch(call: Invocation) -> Answer:
    """`touch`: bashkit has no way to set a time on a foreign file system."""
    words, paths, create, like = list(call.argv), [], True, None
    while words:
        word = words.pop(0)
        if word == "--":
            paths += words
            break
        if word == "-r" and words:
            like = words.pop(0)
        elif word.startswith("-") and set(word[1:]) <= set("acm") and word != "-":
            create = create and "c" not in word
        elif word.startswith("-") and word != "-":
            return complaint(f"touch: the fake has no option {word}")
        else:
            paths.append(word)
    if not paths:
        return complaint("touch: missing file operand")
    volume, problems = call.shell.sandbox.volume, []
    for path in paths:
        place = posixpath.join(call.cwd, path)
        try:
            when = None if like is None else volume.stat(posixpath.join(call.cwd, like)).mtime_ns
            if volume.exists(place):
                volume.utime(place, when)
            elif create:
                volume.write(place, b"")
                volume.utime(place, when)
        except OSError as exc:
            problems.append(f"touch: cannot touch '{path}': {exc.strerror}")
    return complaint("\n".join(problems)) if problems else Answer()


def _date(call: Invocation) -> Answer:
    """`date`, of the fake's clock. It knows `-u` (its zone is UTC anyway), `-I` and `+FORMAT`."""
    now = call.shell.engine.clock.now()
    text = "%a %b %e %H:%M:%S UTC %Y"
    for word in call.argv:
        if word.startswith("+"):
            text = word[1:]
        elif word in ("-I", "--iso-8601"):
            text = "%Y-%m-%d"
        elif word not in ("-u", "--utc", "--universal"):
            return complaint(f"date: the fake has no option {word}")
    own = {"%s": str(int(now.timestamp())), "%N": f"{now.microsecond * 1000:09}", "%%": "%%"}
    text = re.sub("%[sN%]", lambda match: own[match[0]], text)
    return Answer([Step(0.0, "stdout", f"{now.strftime(text)}\n".encode())])


def _yes(call: Invocation) -> Answer:
    """`yes`, as if who reads it had had enough after 4 MiB; bashkit's stops after some thousand lines."""
    line = f"{' '.join(call.argv) or 'y'}\n".encode("utf-8", "surrogateescape")
    return Answer([Step(0.0, "stdout", line * (_ENDLESS // len(line) + 1))], 128 + signal.SIGPIPE)


def _is_number(word: str) -> bool:
    try:
        return Decimal(word).is_finite()
    except InvalidOperation:
        return False


PROGRAMS: Mapping[str, Program] = {
    "date": Program(_date),
    "mkfifo": Program(_mkfifo),
    "seq": Program(_seq),
    "sleep": Program(_sleep),
    "touch": Program(_touch),
    "yes": Program(_yes),
}
