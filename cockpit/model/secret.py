"""Tokens, keys and passwords in names and in free text: found by their names and their shapes.

Errs on the side of hiding. Whose text it is (users, hosts, paths) is not decided here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

HIDDEN = "<hidden>"

_WORDS = frozenset(
    (
        *("key", "keys", "apikey", "accesskey", "token", "tokens", "secret", "secrets", "dsn"),
        *("password", "passwd", "passphrase", "pass", "pw", "credential", "credentials", "cred"),
        *("creds", "auth", "authorization", "cookie", "private", "webhook", "signature", "jwt"),
        "pwd",
    )
)
_COUNTED = frozenset(("key", "keys", "token", "tokens"))
"""Training logs count these: a number behind such a name alone is no secret."""
_NAME = re.compile(r"(?i)(?:password|passwd|secret|credential|api_?key|access_?key)")
_HARMLESS = frozenset(("PWD", "OLDPWD", "SSH_AUTH_SOCK"))
_SHAPES = re.compile(
    r"(?:hf_|sk-|ghp_|gho_|ghs_|ghu_|github_pat_|glpat-|xox[abpr]-|AKIA|ASIA|AIza|ya29\.|npm_"
    r"|pypi-|eyJ)[A-Za-z0-9_\-.]{12,}"
)
_IN_URL = re.compile(r"(?<=://)(?:[^/\s@:'\"]{0,128}:[^\s'\"]{1,256}(?=@)|[^/\s@'\"]+(?=@))")
"""The password may have a slash or an @ in it: up to the last @ of the word."""
_SIGNED = re.compile(
    r"(?i)(?<=[?&])((?:X-Amz-)?(?:sig|signature|token|key|code|secret)=)[^&\s'\"]+"
)
_SCHEME = re.compile(r"(?i)\b(bearer|basic|digest)\s+[A-Za-z0-9._~+/=-]{6,}")
_HEADER = re.compile(r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie)(['\"]?\s*[:=]\s*)\S.*")
_QUOTED = r"\"[^\"]*\"|'[^']*'"
_ASSIGNED = re.compile(
    r"(?P<name>[A-Za-z_][\w.-]{0,80})(?P<sign>['\"]?\s{0,3}(?:=|:(?!:|//))\s{0,3})"
    rf"(?P<value>{_QUOTED}|[^\s,;&)\]}}'\"]+"
    # on through a separator, where no other assignment comes after it
    r"(?:[,;&)\]}](?!['\"]?[A-Za-z_][\w.-]{0,80}['\"]?\s{0,3}[=:])[^\s,;&)\]}'\"]+)*)"
)
_IN_QUOTES = re.compile(
    r"(?P<quote>['\"])(?P<name>-{0,2}[A-Za-z_][\w.-]{0,80})(?P<sign>=)"
    r"(?P<value>[^'\"]{1,400})(?=(?P=quote))"
)
"""A word that a shell had quoted as a whole: ``'token=two words'``."""
_OPTION = re.compile(
    rf"(?<![\w-])(?P<name>--?[A-Za-z][\w-]{{1,60}})(?P<sign>\s+)(?P<value>{_QUOTED}|[^\s-]\S*)"
)
_DASHED = re.compile(
    r"(?i)(?<![\w-])(?P<name>--?[A-Za-z][\w-]{0,40}?(?:token|key|secret|pass|pw|cred|auth)"
    r"[\w-]{0,20})(?P<sign>\s+)(?P<value>-[^\s-]\S+)"
)
"""An option's value that begins with a dash itself; ``-n`` and ``--name`` are options."""
_SHORT = re.compile(rf"\b(sshpass\s+-p|mysql\b.{{0,80}}?\s-p)\s?(?:{_QUOTED}|\S+)")
_SECRET = (
    r"(?i)(?<![\w-])(?P<name>[\w.-]{0,40}?(?:password|passwd|passphrase|secret|token|credential"
    r"|api[_-]?key|access[_-]?key))"
)
_SPOKEN = re.compile(rf"{_SECRET}(?P<sign>\s{{1,3}})(?P<value>\"[^\"]{{4,}}\"|'[^']{{4,}}')")
_STATED = re.compile(
    rf"{_SECRET}(?P<sign>\s{{1,3}}(?:is|was)\s{{1,3}})"
    r"(?!(?:not|no|none|null|an?|the|set|unset|required|needed|missing|empty|invalid|valid|wrong"
    r"|incorrect|correct|expired|unknown|rejected|denied|too|being|used|already|read|stored|saved"
    r"|in|of|for|on|only|deprecated|ok|hidden|still|now)\b)"
    rf"(?P<value>{_QUOTED}|\S+)"
)
"""``Password is hunter2``, not what is told of its state."""
_TAIL_BEGINS = "\udfff"
"""Our mark, for a moment: no decoder makes this one."""
_TAIL = re.compile(
    rf"{_TAIL_BEGINS}(?P<tail>(?: {{1,3}}(?!-|[|&>]|\S{{0,120}}[=:/\\]|\S{{0,120}}\.py\b"
    r"|(?:python|torchrun|accelerate|deepspeed|srun|mpirun|env|sudo|bash|sh|uv|nohup)\b)\S+)*)"
)
"""Words after an assigned secret may belong to it, up to what is clearly something else: an argv
that was joined without quotes looks so.
"""
_PLACE = re.compile(r"[_.-](?:file|path|dir|folder)$", re.IGNORECASE)
_RANDOM = re.compile(r"(?<![A-Za-z0-9_])(?!_Z)[A-Za-z0-9]{32,}(?![A-Za-z0-9_])")
_KEY_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY")
_KEY_END = re.compile(r"-----END [A-Z0-9 ]*PRIVATE KEY")


def is_secret_name(name: str) -> bool:
    """``WANDB_API_KEY`` and ``authToken`` are, ``TOKENIZERS_PARALLELISM`` is not."""
    return name not in _HARMLESS and (bool(_words(name) & _WORDS) or bool(_NAME.search(name)))


def is_secret_value(value: str) -> bool:
    """Has the shape of a well-known kind of token, or is a private key."""
    return bool(_SHAPES.search(value) or _KEY_BEGIN.search(value))


def without_user_info(url: str) -> str:
    """``https://me:pass@host`` without what stands before the ``@``."""
    return _IN_URL.sub(HIDDEN, url)


def hide(text: str, found: Callable[[str], None] = lambda secret: None) -> str:  # noqa: ARG005
    """One line of free text; ``found`` is told each secret that was in it."""

    def whole(match: re.Match[str]) -> str:
        found(match[0])
        return HIDDEN

    def behind(match: re.Match[str]) -> str:
        rest = match[0][len(match[1]) :].strip()
        found(rest)
        return f"{match[1]}{' ' if match[0][len(match[1])].isspace() else ''}{HIDDEN}"

    def header(match: re.Match[str]) -> str:
        found(match[0][match.end(2) - match.start() :])
        return f"{match[1]}{match[2]}{HIDDEN}"

    def named(match: re.Match[str]) -> str:
        value = match["value"].strip("'\"")
        if not _hides(match["name"], value):
            return match[0]
        found(value)
        if len(first := re.split(r"[,;&)\]}]", value, maxsplit=1)[0]) > 3:
            found(first)
        open_end = match["sign"] == "=" and match["value"][0] not in "'\""
        return f"{match['name']}{match['sign']}{HIDDEN}{_TAIL_BEGINS if open_end else ''}"

    def quoted(match: re.Match[str]) -> str:
        if not _hides(match["name"], match["value"]):
            return match[0]
        found(match["value"])
        return f"{match['quote']}{match['name']}={HIDDEN}"

    def tail(match: re.Match[str]) -> str:
        if match["tail"]:
            found(match["tail"].strip())
        return ""

    text = _IN_URL.sub(whole, text)
    text = _HEADER.sub(header, text)
    text = _SCHEME.sub(behind, text)
    text = _SIGNED.sub(behind, text)
    text = _SHAPES.sub(whole, text)
    text = _IN_QUOTES.sub(quoted, text)
    text = _TAIL.sub(tail, _ASSIGNED.sub(named, text))
    for pattern in (_OPTION, _DASHED, _SPOKEN, _STATED):
        text = pattern.sub(named, text)
    text = _SHORT.sub(behind, text)
    return _RANDOM.sub(lambda m: whole(m) if _looks_random(m[0]) else m[0], text)


def hide_lines(
    lines: Iterable[str],
    found: Callable[[str], None] = lambda secret: None,  # noqa: ARG005
) -> Iterator[str]:
    """Line by line; a private key goes from its first line to its last."""
    in_key = False
    for line in lines:
        begins = bool(_KEY_BEGIN.search(line))
        if in_key or begins:
            found(line)
            if begins:
                yield HIDDEN
            in_key = not _KEY_END.search(line)
            continue
        yield hide(line, found)


def _hides(name: str, value: str) -> bool:
    name = name.lstrip("-").replace("-", "_")
    if not is_secret_name(name) or value in ("", HIDDEN) or name.endswith("Error"):
        return False  # "KeyError: 'loss'" is no key
    if _PLACE.search(name) and value.startswith(("/", "./", "../", "~")):
        return False  # where it is kept
    counted = (_words(name) & _WORDS) <= _COUNTED and not _NAME.search(name)
    return not (counted and re.fullmatch(r"[\d.,_]{1,15}[kKMGB]?", value))


def _words(name: str) -> set[str]:
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return set(re.split(r"[_.\-]+", parts.lower()))


def _looks_random(word: str) -> bool:
    digits = sum(c.isdigit() for c in word)
    return digits >= 4 and len(word) - digits >= 4
