"""Addresses of databases, and how people may see them: without passwords."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, unquote, unquote_plus, urlsplit, urlunsplit

_SECRET = re.compile("pass|secret|token|key", re.I)  # in the name of what a query sets
_HIDDEN = "***"


def parts_of(url: str) -> SplitResult | None:
    """A URL in parts; None if it has no form: a password may hold characters that end a host or a path."""
    try:
        split = urlsplit(url)
        _ = split.port
    except ValueError:
        return None
    if split.scheme == "sqlite":  # a file, which has no password, may have any name
        return split
    cut = "@" in split.query and "@" not in split.netloc and not split.path  # a password that has a question mark
    return None if cut or "@" in split.path + split.fragment else split


def masked(url: str) -> str:
    """A URL as people may see it: without its passwords; of one without form its kind alone."""
    split = parts_of(url)
    if split is None:
        return f"{url.partition(':')[0]}://{_HIDDEN}"
    who, at, host = split.netloc.rpartition("@")
    user, colon, _ = who.partition(":")
    fragment = f"#{_HIDDEN}" if split.fragment else ""
    query = "&".join(_masked_setting(part) for part in split.query.split("&"))
    place = f"{user}{colon and f':{_HIDDEN}'}{at}{host}"
    return f"{split.scheme}://{place}{split.path}{query and '?'}{query}{fragment}"


def _masked_setting(setting: str) -> str:
    name, equals, _ = setting.partition("=")
    if not setting or (equals and not _SECRET.search(unquote(name))):
        return setting
    return f"{name}={_HIDDEN}" if equals else _HIDDEN


def without_passwords(text: str, url: str) -> str:
    """What a driver says of a URL, without the passwords in it, as they are written or as they are meant."""
    split = parts_of(url)
    if split is None:
        return _HIDDEN
    settings = [setting.partition("=") for setting in split.query.split("&")]
    found = [value for name, _, value in settings if _SECRET.search(unquote(name))]
    found += [split.netloc.rpartition("@")[0].partition(":")[2]]
    every = {form for value in found for form in (value, unquote(value), unquote_plus(value)) if form}
    for secret in sorted(every, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", _HIDDEN, text)
    return text


def for_psycopg(split: SplitResult) -> str:
    """The URL for SQLAlchemy, which takes the first @ for the end of a password; the last one that a host can follow
    is."""
    who, at, host = split.netloc.rpartition("@")
    place, query = who.replace("@", "%40") + at + host, split.query.replace("@", "%40")
    return urlunsplit(("postgresql+psycopg", place, split.path, query, split.fragment))
