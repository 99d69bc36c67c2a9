"""LIBTPU_INIT_ARGS: flags in one text, to which some are added without touching those that are there.

libtpu takes the text apart at each space and knows no quotes: what stands in quotes and holds a space is several words
to it. A flag is `--name=value`, `--name value` or `--name`, with one dash or two; the last one of a name counts, and
after a bare `--` there are no more flags. Words that are no flags are ignored. A flag that libtpu does not know ends
the process.
"""

from __future__ import annotations

from typing import Final

ARGUMENTS: Final = "LIBTPU_INIT_ARGS"
UNBUFFERED: Final = "--logbuflevel=-1"  # each line of the log is written at once, so that a hang's last words are there

# A flag is not added where one of these is there already: it decides the same.
_SAME: Final = {"logbuflevel": frozenset({"logbuflevel", "logbufsecs"})}


def merged(arguments: str, flag: str) -> str:
    """`arguments` with `flag` ("--name=value") before them, or as they are where that flag is given already.

    What is there stays as it is, in its order and with its spaces. The new flag comes first: at the end it could become
    the value of a flag before it, or stand behind a bare `--`; and where a libtpu finds the same flag again in a place
    that is not looked into here, the one that was there comes later and wins.
    """
    given = flag_name(flag)
    if given is None:
        raise ValueError(f"{flag!r} is no flag: write --name=value")
    if names(arguments) & _SAME.get(given, frozenset({given})):
        return arguments
    return f"{flag} {arguments}" if arguments.strip(" ") else flag


def merged_all(arguments: str, flags: str) -> str:
    """`arguments` with all of `flags`, which is such a text itself, as `merged` does it. Other words stay out."""
    for flag in reversed(whole_flags(flags)):
        arguments = merged(arguments, flag)
    return arguments


def names(arguments: str) -> frozenset[str]:
    """The flags that are given, without dashes and values."""
    return frozenset(name for word in _words(arguments) if (name := flag_name(word)) is not None)


def whole_flags(arguments: str) -> list[str]:
    """The flags that are given, each with its value: "--name=value", "--name value" or "--name"."""
    found: list[str] = []
    takes_value = False  # the word before was a flag without a value, so that this word may be one
    for word in _words(arguments):
        if flag_name(word) is not None:
            found.append(word)
            takes_value = "=" not in word
        elif takes_value:
            found[-1] += f" {word}"
            takes_value = False
    return found


def flag_name(word: str) -> str | None:
    """ "name" of `--name=value` or `-name`; None for a word that is no flag, such as a number below 0."""
    name = word.removeprefix("-").removeprefix("-").partition("=")[0].partition(" ")[0]
    return name if word.startswith("-") and name[:1].isalpha() else None


def _words(arguments: str) -> list[str]:
    words = [word for word in arguments.split(" ") if word]
    return words[: words.index("--")] if "--" in words else words
