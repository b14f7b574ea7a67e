#!/usr/bin/env python3
"""bash completion of a program, from its --help: its options, the values that they name, and
its commands, if it lists any.

Usage: completion.py NAME EXE, the script on stdout.
"""

import os
import re
import subprocess
import sys

OPTION = re.compile(r"^ +((?:-\S|--[\w-]+)(?:[ =,].*?)?)(?:  +|$)")
COMMAND = re.compile(r"^  (\S.*?)(?:  |$)")
FILES = {"FILE", "PATH", "FOLDER"}
# What a value begins with, of options whose --help lists that in words.
KINDS = {"--link": "memif: tap: vhost: af_packet: af_xdp: pci: port: ring: pcap:"}

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
	case $opt in
{cases}	esac
{commands}	mapfile -t COMPREPLY < <(compgen -W "{options}" -- "$cur")
	if [[ ${{#COMPREPLY[@]}} == 1 && ${{COMPREPLY[0]}} == *= ]]; then
		compopt -o nospace
	fi
}}
complete -F _{function} {name}
"""
WORDS = """	{option})
		mapfile -t COMPREPLY < <(compgen -W "{words}"{files} -- "$cur")
{nospace}		return
		;;
"""
NAMES = """	{option})
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
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
{files}			;;
"""
FILENAMES = "\t\t\tcompopt -o filenames\n"
NOSPACE = "\t\tcompopt -o nospace\n"


def help_of(exe):
    return subprocess.run([exe, "--help"], check=True, stdout=subprocess.PIPE, text=True, env={
        **os.environ, "ARGP_HELP_FMT": "rmargin=2000,opt-doc-col=60"}).stdout


def options_of(text):
    """{--name: what stands for its value, or None}, in the order of --help."""
    found = {}
    for line in text.splitlines():
        option = OPTION.match(line)
        if option:
            value = None
            # "--cpu=N, --lcore=N": other names of one option.
            for name in re.findall(r"(--[\w-]+)(=[^ ]*?)?(?=, |$)", option[1].strip()):
                value = name[1].lstrip("=") or None
                found[name[0]] = value
    return found


def case_of(option, value):
    if option in KINDS:
        return WORDS.format(option=option, words=KINDS[option], nospace=NOSPACE, files="")
    if re.fullmatch(r"[\w-]+(\|[\w-]+)+", value):
        words = value.split("|")
        files = FILES.intersection(words)
        names = " ".join(word for word in words if word not in FILES)
        return WORDS.format(option=option, words=names, nospace=FILENAMES[1:] if files else "",
                            files=" -f" if files else "")
    return (NAMES if value in FILES else NOTHING).format(option=option)


def positions_of(text):
    """{words before, a pattern: (words that may follow, whether a file may)}."""
    positions = {}
    for line in text.partition("\nCommands:\n")[2].splitlines():
        command = COMMAND.match(line)
        before = []
        for word in command[1].split() if command else []:
            words, files = positions.setdefault(" ".join(before), ([], []))
            choices = word.strip("[]").split("|")
            literal = all(re.fullmatch(r"[a-z.]+", choice) for choice in choices)
            words += [choice for choice in choices if literal and choice not in words]
            files += [word] if word in FILES else []
            before.append(word if literal and word == choices[0] else "*")
    return positions


def commands_of(text, options):
    positions = {before: found for before, found in positions_of(text).items() if any(found)}
    if not positions:
        return ""
    return COMMANDS.format(
        valued="|".join(option for option, value in options.items() if value),
        # A pattern after what it would hide.
        positions="".join(PLACE.format(
            before=(re.sub(r"[a-z. ]+", r'"\g<0>"', before) or '""'),
            what=f'-W "{" ".join(words)}"' + (" -f" if files else ""),
            files=FILENAMES if files else "")
            for before, (words, files) in sorted(positions.items(), key=lambda kv: "*" in kv[0])))


def main():
    name, exe = sys.argv[1:]
    text = help_of(exe)
    options = options_of(text)
    sys.stdout.write(SCRIPT.format(
        name=name, function=re.sub(r"\W", "_", name), commands=commands_of(text, options),
        cases="".join(case_of(option, value) for option, value in options.items() if value),
        options=" ".join(option + ("=" if value else "") for option, value in options.items())))


if __name__ == "__main__":
    main()
