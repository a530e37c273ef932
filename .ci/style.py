"""Check of names and prose: words that CONTRIBUTING.md ("Style") replaces by the usual terms, and long sentences.

usage: python3 .ci/style.py [PATH ...]     files or folders; default: everything that is checked

Reads comments, strings and identifiers of Python and JavaScript, and the text of Markdown pages, whose sentences have
fewer than 35 words. Names of tests are sentences too. A line with `style: ok` is not checked; the reason belongs beside
it.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
# What is checked when no path is given.
CHECKED: Final = (
    "relay",
    "browser_pkg",
    "bench",
    "tests",
    ".ci",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "README.md",
    "docs",
    "web_demo",
)
EXEMPT: Final = (".ci/style.py", "tests/test_style.py", "tests/fuzz/corpus")

# Words and phrases of prose, and what to write instead.
PROSE: Final = {
    r"who(m)?ever|whosoever": "name the subject: the caller, the client, any page",
    r"(nobody|no one)": "name the subject: no client, no caller",
    r"(some|any|every)body|everyone|anyone|someone": "name the subject: a client, any process, all callers",
    r"elsewhere": "name the place: another relay, another tab, upstream",
    r"(is|are|be|was|were|been) had": "is available, can be obtained",
    r"hear|hears|heard|hearing": "receive",
    r"knock|knocks|knocked|knocking": "connect, request a handshake",
    r"(the )?ordinary (way|path|lane)": "the regular path",
    r"fast lane": "fast path",
    r"letters(?!,? (?:and )?digits)": "characters",
    r"server elsewhere": "upstream",
    r"backplane": "bus",
    r"take[sn]? the floor|on the floor": "name the queue or the order",
    r"as it came": "unchanged",
    r"by heart": "cached",
    r"for ever": "without a limit, permanently",
    r"and be done": "name the end of it",
    r"under way already": "already running",
    r"stands?(?! (in )?for)": "is, is written",
    r"(say|says|said) so": "reports it, names the reason",
    r"aloud": "name what is shown",
    r"(wants|want) to know": "asks, needs",
    r"(is|are|was|were) told": "gets a message, is notified",
    r"knows of": "name what it has",
    r"of (its|their) own accord": "by itself",
}
MAX_WORDS: Final = 34
# Parts of identifiers (snake_case and camelCase words), and the word of the field.
NAMES: Final = {
    "hear": "receive",
    "heard": "received",
    "hears": "receives",
    "knock": "handshake",
    "knocking": "handshaking",
    "sip": "feed",
    "atlas": "locator",
    "shelf": "catalogues, state_file",
    "desk": "invocations",
    "errand": "routed_request",
    "errands": "routed_requests",
    "slate": "shared_buffer",
    "stencil": "header_cache",
    "turnstile": "handshake_limiter",
    "gist": "skeleton",
    "vault": "private_files",
    "crew": "worker_processes",
    "fleet": "pool",
    "diary": "session_store",
    "mailbox": "body",
    "briefing": "session_replay",
    "librarian": "catalogue_reader",
    "loan": "remote_stream",
    "bureau": "translator",
    "letters": "characters",
    "astray": "routing_error",
    "thaw": "reset_after_snapshot",
    "unfold": "hand_over",
    "elsewhere": "upstream",
    "backplane": "bus",
    "wishes": "request_meta",
    "ledger": "request_history",
    "roster": "pending_calls",
    "tally": "counter",
    "seat": "waiting_request",
    "fleets": "pools",
    "stocktaking": "name what is counted",
    "ladder": "retry_policy",
}

Pattern = tuple[re.Pattern[str], str]


def _compiled(words: dict[str, str]) -> list[Pattern]:
    return [(re.compile(rf"(?<![\w-])(?:{one})(?![\w-])", re.IGNORECASE), instead) for one, instead in words.items()]


_PROSE: Final = _compiled(PROSE)
# Fences and comments of Markdown.
_NOT_PROSE: Final = re.compile(r"^( *)```.*?^\1```|<!--.*?-->|^---$", re.DOTALL | re.MULTILINE)
# A row of a table, an item of a list, a heading, or a paragraph.
_BLOCK: Final = re.compile(r"^ *(?:\|[^\n]*|\S[^\n]*(?:\n(?! *(?:[-*+] |\d+\. |#|\||$))[^\n]*)*)", re.MULTILINE)
_CODE: Final = re.compile(r"`[^`]*`")
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_SENTENCE: Final = re.compile(r"(?<=[.!?:])[\"')*]*\s+")
_COUNTED: Final = re.compile(r"[^\W_][\w'’-]*")
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_JS_TOKEN: Final = re.compile(
    r"(?P<prose>//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)|(?P<name>[A-Za-z_$][\w$]*)",
    re.DOTALL,
)


def main() -> int:
    chosen = [Path(name).resolve() for name in sys.argv[1:]]
    if any(flag in sys.argv[1:] for flag in ("-h", "--help")):
        print(__doc__)
        return 0
    count = 0
    for path in _files(chosen):
        for line, column, text, instead in sorted(set(_findings(path))):
            print(f"{path.relative_to(ROOT)}:{line}:{column}: {text!r}: {instead}")
            count += 1
    if count:
        print(f'{count} findings. CONTRIBUTING.md, "Style", has the rules.', file=sys.stderr)
    return 1 if count else 0


def _files(chosen: list[Path]) -> Iterator[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", *([] if chosen else CHECKED), *map(str, chosen)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listing.stdout.split("\0"):
        if name.endswith((".py", ".js", ".mjs", ".md")) and not name.startswith(EXEMPT) and (ROOT / name).is_file():
            yield ROOT / name


def _findings(path: Path) -> Iterator[tuple[int, int, str, str]]:
    source = path.read_text()
    lines = source.splitlines()
    tokens = {".py": _python, ".md": _markdown}.get(path.suffix, _javascript)(source)
    if path.suffix == ".md":
        yield from _long_sentences(source)
    for kind, line, column, text in tokens:
        for found in _prose(line, column, text) if kind == "prose" else _names(line, column, text):
            if found[0] > len(lines) or "style: ok" not in lines[found[0] - 1]:
                yield found


def _prose(line: int, column: int, text: str) -> Iterator[tuple[int, int, str, str]]:
    for pattern, instead in _PROSE:
        for match in pattern.finditer(text):
            before = text[: match.start()]
            breaks = before.count("\n")
            yield (
                line + breaks,
                match.start() - before.rfind("\n") if breaks else column + match.start() + 1,
                match[0],
                instead,
            )


def _names(line: int, column: int, text: str) -> Iterator[tuple[int, int, str, str]]:
    for word in _WORD.findall(text):
        if word.lower() in NAMES:
            yield line, column + 1, text, f"{word} → {NAMES[word.lower()]}"
    if text.startswith("test_"):
        yield from _prose(line, column, text.replace("_", " "))


def _python(source: str) -> Iterator[tuple[str, int, int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_prose = (
            token.type in (tokenize.COMMENT, tokenize.STRING) or tokenize.tok_name[token.type] == "FSTRING_MIDDLE"
        )
        if is_prose or token.type == tokenize.NAME:
            yield "prose" if is_prose else "name", *token.start, token.string


def _javascript(source: str) -> Iterator[tuple[str, int, int, str]]:
    for match in _JS_TOKEN.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        column = match.start() - source.rfind("\n", 0, match.start()) - 1
        yield "prose" if match["prose"] else "name", line, column, match[0]


def _long_sentences(source: str) -> Iterator[tuple[int, int, str, str]]:
    """Sentences of paragraphs, list items and cells of tables, where a semicolon ends one. Code, comments and addresses
    do not count."""
    plain = _NOT_PROSE.sub(lambda match: "\n" * match[0].count("\n"), source)
    for block in _BLOCK.finditer(plain):
        cells = re.split(r"\||; ", block[0]) if block[0].lstrip().startswith("|") else [block[0]]
        for cell in cells:
            text = _LINK.sub(r"\1", _CODE.sub("code", " ".join(cell.split())))
            for sentence in _SENTENCE.split(text):
                count = len(_COUNTED.findall(sentence))
                if count > MAX_WORDS:
                    line = plain.count("\n", 0, block.start()) + 1
                    yield line, 1, f"{sentence[:60]}…", f"{count} words: make two sentences of it"


def _markdown(source: str) -> Iterator[tuple[str, int, int, str]]:
    """Code may quote what other programs write."""
    plain = _NOT_PROSE.sub(lambda match: "\n" * match[0].count("\n"), source)
    for number, text in enumerate(plain.splitlines(), 1):
        yield "prose", number, 0, _CODE.sub(lambda match: " " * len(match[0]), text)


if __name__ == "__main__":
    sys.exit(main())
