"""`tabrelay completion`: prints a completion script for bash, zsh or fish.

The script completes commands, flags, client names, server names, tools and arguments. It is generated from the
argument parsers, so it needs no maintenance. Names come from `tabrelay completion words` at completion time, which
reads files and asks no relay (`completion_words`).
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tabrelay.cli import flags
from tabrelay.cli.output import OK

SHELLS = ("bash", "zsh", "fish")
# The words up to the cursor; the program as it was typed, since it may not be on the PATH.
BASH_WORDS = '"${COMP_WORDS[0]}" completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null'
ZSH_WORDS = '"${words[1]}" completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null'
FISH_WORDS = "eval (commandline -opc)[1] completion words -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null"


@dataclass(frozen=True, slots=True)
class Word:
    """A command or an action of one, with the words that can follow."""

    path: tuple[str, ...]
    about: str
    flags: tuple[tuple[str, str], ...]
    choices: tuple[str, ...]
    has_names: bool
    """Server names can follow."""


def add(commands: Any) -> None:
    parser = flags.add_command(
        commands,
        "completion",
        "Print a script for a shell to complete commands with.",
        'eval "$(tabrelay completion bash)"                        in ~/.bashrc\n'
        '  eval "$(tabrelay completion zsh)"                         in ~/.zshrc\n'
        "  tabrelay completion fish > ~/.config/fish/completions/tabrelay.fish",
    )
    about = f"{', '.join(SHELLS)}; words: print what can follow the words that were typed, as the scripts ask"
    parser.add_argument("shell", choices=(*SHELLS, "words"), help=about)
    parser.add_argument("typed", nargs="*", default=[], metavar="WORD", help="for `words`: what was typed, after --")
    parser.set_defaults(run=_completion)


def _completion(args: argparse.Namespace) -> int:
    if args.shell == "words":
        from tabrelay.cli import completion_words

        for word in completion_words.reply(args.typed):
            print(word)
        return OK
    words = list(walk(args.whole()))
    print({"bash": bash, "zsh": zsh, "fish": fish}[args.shell](words), end="")
    return OK


def walk(parser: argparse.ArgumentParser, path: tuple[str, ...] = (), about: str = "") -> Iterator[Word]:
    """The program itself, its commands, and their actions."""
    from tabrelay.cli.client_files.known import BY_NAME

    own, choices, below = [], [], []
    has_names = False
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            abouts = {one.dest: one.help or "" for one in action._choices_actions}
            below = [(name, inner, abouts.get(name, "")) for name, inner in action.choices.items()]
            choices += list(action.choices)
        elif action.option_strings:
            own += [(string, action.help or "") for string in action.option_strings]
        elif action.choices:
            choices += [str(choice) for choice in action.choices]
        elif action.metavar == "CLIENT":
            choices += BY_NAME
        has_names = has_names or ("NAME" in str(action.metavar) and not action.option_strings)
    yield Word(path, about, tuple(own), tuple(choices), has_names)
    for name, inner, text in below:
        yield from walk(inner, (*path, name), text)


def bash(words: list[Word]) -> str:
    cases = []
    for word in words:
        options = " ".join(flag for flag, _ in word.flags)
        names = f" $({BASH_WORDS})" if word.has_names else ""
        cases.append(f'    "{" ".join(word.path)}") words="{" ".join(word.choices)}{names}"; flags="{options}" ;;')
    actions = sorted({word.path[-1] for word in words if word.path})
    lines = "\n".join(cases)
    return f"""_tabrelay() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}"
  [[ "$current" == "=" ]] && current=""
  local path="" words="" flags="" word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case " {" ".join(actions)} " in
      *" $word "*) _tabrelay_known "${{path:+$path }}$word" && path="${{path:+$path }}$word" ;;
    esac
  done
  case "$path" in
{lines}
  esac
  if [[ "$current" == -* ]]; then words="$flags"; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ "${{COMPREPLY[0]}}" == *= ]]; then compopt -o nospace 2>/dev/null; fi
}}
_tabrelay_known() {{
  case "$1" in
    {"|".join(shlex.quote(" ".join(word.path)) for word in words if word.path)}) return 0 ;;
  esac
  return 1
}}
complete -o default -F _tabrelay tabrelay
"""


def zsh(words: list[Word]) -> str:
    """With zsh's own functions: under `bashcompinit`, `path` and `words` are variables of the shell itself."""
    cases = []
    for word in words:
        abouts = _abouts(word, words)
        choices = " ".join(_zsh_described(choice, abouts.get(choice, "")) for choice in word.choices)
        options = " ".join(_zsh_described(flag, about) for flag, about in word.flags)
        names = f'\n      names=("${{(@f)$({ZSH_WORDS})}}")' if word.has_names else ""
        cases.append(f'    "{" ".join(word.path)}")\n      choices=({choices})\n      options=({options}){names} ;;')
    known = "|".join(shlex.quote(" ".join(word.path)) for word in words if word.path)
    lines = "\n".join(cases)
    return f"""#compdef tabrelay
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit; }}
_tabrelay() {{
  local command="" word
  local -a choices options names
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case "${{command:+$command }}$word" in
      {known}) command="${{command:+$command }}$word" ;;
    esac
  done
  case "$command" in
{lines}
  esac
  if [[ "$PREFIX" == -* ]]; then
    _describe option options
    return
  fi
  local -a begun=(${{(M)names:#*=}}) whole=(${{names:#*=}})
  local found=1
  (( $#choices )) && _describe word choices && found=0
  (( $#begun )) && compadd -S "" -a begun && found=0
  (( $#whole )) && compadd -a whole && found=0
  (( found )) && _files
}}
compdef _tabrelay tabrelay
"""


def _zsh_described(word: str, about: str) -> str:
    text = " ".join(about.split())[:80]
    return shlex.quote(word.replace(":", "\\:") + (f":{text}" if text else ""))


def _abouts(word: Word, words: list[Word]) -> dict[str, str]:
    """What the actions of a command do."""
    return {one.path[-1]: one.about for one in words if one.path and one.path[:-1] == word.path}


def fish(words: list[Word]) -> str:
    lines = ["complete -c tabrelay -f"]
    for word in words:
        is_here = _fish_condition(word, words)
        begun = f"complete -c tabrelay -n {shlex.quote(is_here)}"
        abouts = _abouts(word, words)
        for choice in word.choices:
            lines.append(f"{begun} -a {shlex.quote(choice)} -d {_fish_text(abouts.get(choice, ''))}")
        if word.has_names:
            lines.append(f"{begun} -a {shlex.quote(f'({FISH_WORDS})')}")
        for flag, about in word.flags:
            kind = "-l" if flag.startswith("--") else "-s"
            lines.append(f"{begun} {kind} {shlex.quote(flag.lstrip('-'))} -d {_fish_text(about)}")
    return "\n".join(lines) + "\n"


def _fish_condition(word: Word, words: list[Word]) -> str:
    below = [one.path[-1] for one in words if one.path and one.path[:-1] == word.path]
    parts = [f"__fish_seen_subcommand_from {name}" for name in word.path]
    if below:
        parts.append(f"not __fish_seen_subcommand_from {' '.join(below)}")
    return "; and ".join(parts) or "true"


def _fish_text(text: str) -> str:
    return shlex.quote(" ".join(text.split())[:80])
