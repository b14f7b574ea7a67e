#!/usr/bin/env python3
"""bash completion of a program, from its --help: its options, the values that they name, and
its commands, if it lists any.

A value's alternatives stand between bars: words in small letters are offered as they are, and so is
a word before a colon (tap:NAME); FILE, PATH and DIRECTORY stand for names of files, and other words
in capitals for values of the user's own. The kinds of KIND:NAME are listed in the option's text.

Usage: completion.py NAME EXE, the script on stdout.
"""

import os
import re
import subprocess
import sys

OPTION = re.compile(r"^ +((?:-\S|--[\w-]+)(?:[ =,[].*?)?)(?:  +(.*)|$)")
NAME = re.compile(r"(--[\w-]+)(\[?)=?(.*?)\]?")
COMMAND = re.compile(r"^  (\S.*?)(?:  |$)")
# What compgen offers for a value of this name.
FILES = {"FILE": "-f", "PATH": "-f", "DIRECTORY": "-d"}

SCRIPT = """# bash completion of {name}, made from its --help.
_{function}() {{
	local cur=${{COMP_WORDS[COMP_CWORD]}} opt=${{COMP_WORDS[COMP_CWORD-1]}}
	COMPREPLY=()
	# bash takes the = of --option=value for a word.
	if [[ $cur == = ]]; then
		cur=
	elif [[ $opt == = ]]; then
		opt=${{COMP_WORDS[COMP_CWORD-2]}}
	fi
{optional}	case $opt in
{cases}	esac
{commands}	mapfile -t COMPREPLY < <(compgen -W "{options}" -- "$cur")
	if [[ ${{#COMPREPLY[@]}} == 1 && ${{COMPREPLY[0]}} == *= ]]; then
		compopt -o nospace
	fi
}}
complete -F _{function} {name}
"""
OPTIONAL = """	# A value may be missing.
	[[ $cur == -* && $opt == @({options}) ]] && opt=
"""
VALUES = """	{option})
		mapfile -t COMPREPLY < <(compgen {what} -- "$cur")
{details}		return
		;;
"""
NOTHING = """	{option}) return ;; # a value of the user's own
"""
# The words before this one, without options, decide which words may stand here.
COMMANDS = """	local i words=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${{COMP_WORDS[i]}} in
		{valued})
			[[ ${{COMP_WORDS[i+1]}} == = ]] && i=$((i + 1))
			i=$((i + 1))
			;;
		-*) ;;
		*) words+=("${{COMP_WORDS[i]}}") ;;
		esac
	done
	if [[ $cur != -* ]]; then
		case "${{words[*]}}" in
{positions}		esac
		return
	fi
"""
PLACE = """		{before})
			mapfile -t COMPREPLY < <(compgen {what} -- "$cur")
{details}			;;
"""
FILENAMES = "\t\tcompopt -o filenames\n"
# A colon is followed by the rest of the value.
NOSPACE_OR_FILENAMES = """\t\tif [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *: ]]; then
\t\t\tcompopt -o nospace
\t\telse
\t\t\tcompopt -o filenames
\t\tfi
"""
NOSPACE = "\t\t[[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *: ]] && compopt -o nospace\n"


def help_of(exe):
    return subprocess.run([exe, "--help"], check=True, stdout=subprocess.PIPE, text=True, env={
        **os.environ, "ARGP_HELP_FMT": "rmargin=2000,opt-doc-col=60"}).stdout


def options_of(text):
    """Yields each option of --help: (--name, what stands for its value or "", whether that may be
    missing, its text)."""
    for line in text.splitlines():
        option = OPTION.match(line)
        # "--cpu=N, --lcore=N": other names of one option.
        for name in re.split(r", (?=-)", option[1].strip()) if option else ():
            found = NAME.fullmatch(name)
            if found:
                yield found[1], found[3], bool(found[2]), option[2] or ""


def kinds_of(option, text):
    """Returns the words for KIND:NAME, from a text such as "memif:PATH or tap:NAME. --link list
    prints"."""
    return re.findall(r"\b[a-z]\w*:(?=[A-Z])", text) + re.findall(rf"{option} ([a-z]+)", text)


def choices_of(option, value, text):
    """Returns the words that a value may be or begin with, and compgen's options for files."""
    words, files = [], []
    for choice in value.split("|"):
        word = re.fullmatch(r"[a-z][\w-]*", choice) or re.match(r"[a-z]\w*:(?=[A-Z])", choice)
        name = re.match(r"[A-Z]+(?=$|\[)", choice)
        if choice.startswith("KIND:"):
            words += kinds_of(option, text)
        elif word:
            words.append(word[0])
        elif name and name[0] in FILES:
            files.append(FILES[name[0]])
    return words, files


def compgen_of(words, files):
    """Returns the arguments of compgen, and what compopt is to be set to."""
    what = [f'-W "{" ".join(words)}"'] if words else []
    details = FILENAMES * bool(files)
    if ":" in "".join(words):
        # As the name of a file, the word would be quoted.
        details = NOSPACE_OR_FILENAMES if files else NOSPACE
    return " ".join(what + files), details


def case_of(option, value, text):
    what, details = compgen_of(*choices_of(option, value, text))
    return (VALUES if what else NOTHING).format(option=option, what=what, details=details)


def positions_of(text):
    """{words before, a pattern: (words that may follow, compgen's options for files)}."""
    positions = {}
    for line in text.partition("\nCommands:\n")[2].splitlines():
        command = COMMAND.match(line)
        before = []
        for word in command[1].split() if command else []:
            words, files = positions.setdefault(" ".join(before), ([], []))
            choices = word.strip("[]").split("|")
            literal = [choice for choice in choices if re.fullmatch(r"[a-z.]+", choice)]
            words += [choice for choice in literal if choice not in words]
            files += [FILES[word]] if word in FILES else []
            before.append(word if [word] == literal else "*")
    return positions


def commands_of(text, options):
    branches = []
    # A pattern after what it would hide.
    for before, found in sorted(positions_of(text).items(), key=lambda kv: "*" in kv[0]):
        what, details = compgen_of(*found)
        if what:
            branches.append(PLACE.format(
                before=re.sub(r"[a-z. ]+", r'"\g<0>"', before) or '""', what=what,
                details=details.replace("\t\t", "\t\t\t")))
    return branches and COMMANDS.format(
        valued="|".join(name for name, value, _, _ in options if value), positions="".join(branches))


def main():
    name, exe = sys.argv[1:]
    text = help_of(exe)
    options = list(options_of(text))
    optional = "|".join(name for name, _, optional, _ in options if optional)
    sys.stdout.write(SCRIPT.format(
        name=name, function=re.sub(r"\W", "_", name), commands=commands_of(text, options) or "",
        optional=OPTIONAL.format(options=optional) if optional else "",
        cases="".join(case_of(name, value, text) for name, value, _, text in options if value),
        options=" ".join(name + "=" * bool(value and not optional)
                         for name, value, optional, _ in options)))


if __name__ == "__main__":
    main()
