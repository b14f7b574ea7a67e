#!/usr/bin/env python3
"""Refuses words that stop a reader, each with the word to use instead.

The tables below are this project's list; CONTRIBUTING.md has the rules that they follow. PROSE
applies to sources, documents and commit subjects, NAMES to identifiers, FUNCTIONS to the whole name
of a function, COMMENTS to the beginnings of headings and comments. An underscore ends a word, so
that PROSE finds it in an identifier as well. Commit subjects count from the commit that added this
file on, or from the last tag if that is later.
Usage: check_words.py SOURCE_ROOT
"""

import pathlib
import re
import subprocess
import sys

# Licences, inputs, figures, and the lists themselves.
SKIPPED = re.compile(r"LICENSE|.*/copyright|tests/fuzz/corpus/.*|.*\.(svg|json|supp|dict)"
                     r"|tests/(check|test)_words\.py")

# What is refused, what to say instead, and a context in which it is right. Each begins with a
# letter, so that the search is fast; a space also matches the end of a line.
PROSE = (
    # Private words where the field has one.
    ("doors?", "listener", "`door=`"),
    ("bells?", "wait queue, wake-up", "bell-style"),  # an option of readline's
    ("patien(?:ce|t|tly)", "user timeout, timeout", ""),
    ("impatien(?:ce|t|tly)", "with a shorter timeout", ""),
    ("told", "reported, notified, given", ""),
    ("untold", "not reported", ""),
    ("tells?", "report, notify, return, show, distinguish", r"\btell\(\)"),  # Python's files
    ("telling", "reporting, showing", ""),
    ("give away", "hand over, donate", ""),
    ("gives away", "hands over, donates", ""),
    ("given away", "handed over, donated", ""),
    ("giving away", "handing over, donating", ""),
    ("at rest", "idle", ""),
    ("recovery blocks?", "recovery state", ""),
    ("short way", "fast path", ""),
    ("slow way", "slow path", ""),
    ("puts? aside", "save, keep", ""),
    ("each way", "in each direction", ""),
    ("both ways", "in both directions", ""),
    # Stand-ins for a value or an event.
    ("anew", "again", ""),
    ("at times", "sometimes, or the event", ""),
    ("so often", "the interval", ""),
    ("for so long", "the time", ""),
    ("idle this long and", "the time", ""),
    ("all the same(?=[.,;:)])", "nevertheless", ""),
    ("as ever", "as before", "as every"),
    ("changes? its mind", "varies", ""),
    ("by the thousand", "the number", ""),
    ("one is due", "is missing", ""),
    ("few enough", "optional, or the number", ""),
    ("seldom", "rarely", "net_log_seldom"),  # a public call
    ("besides(?=[.,;:)])", "as well, also", ""),
    # Clauses that hang on who, what, that which.
    ("for who(?:m|ever)?", "name the reader, caller, client", ""),
    ("who(?:m|so)ever", "name the subject: the caller that, the thread that", ""),
    ("whoever", "name the subject: the caller that, the thread that", ""),
    ("some(?:body|one)", "name the subject: the owner, a caller, another thread", ""),
    ("that which", "name the thing", ""),
    ("within which", "time allowed for", ""),
    ("what of (?:it|them|that)", "name the part: how much of it", ""),
    ("what came of it", "the result", ""),
    ("who may know what", "layering rules", ""),
    ("is all (?:there|that) (?:is|was)", "only, except when", ""),
    ("which is all", "at most", ""),
    ("is what \\w+ \\w+ fails with", "the ... fails with ...", ""),
    ("is no [a-z]+ of ours", "is not a ... of the stack", ""),
    ("where no \\w+ is left", "the ... are exhausted", ""),
    ("the last is \\d+", "is out of range", ""),
    ("who (?:may|is|can|asks|dials|gets|holds|listens|sends|waits|wants)",
     "name the subject: clients, callers, the thread that",
     r"(?:every(?:body|one)|those|people|readers|users|a user|client|peer|,) who"),
    ("how (?:it|they) stands?", "its state, its progress", ""),
    ("what is wanted of", "the state requested for", ""),
    ("say what", "list, name, state", "not say what"),
    ("then for \\d+", "state what lasts that long", ""),
    ("then the next \\w+ is tried", "try the next", ""),
    # Verbs that have another meaning for a native reader.
    ("bears? (?:a|beside|the|its)", "has, carries", ""),
    ("takes? for (?:unset|granted)", "treats as, assumes", ""),
    ("takes no lines", "cannot be written", ""),
    ("bytes do not hold", "bytes are too few for", ""),
    ("sums (?:it|them)", "verifies the checksum, adds up", ""),
    ("has begun and is not", "is partial", ""),
)

# The last word of an identifier or a whole part of it, the identifiers refused, and the cure.
NAMES = (
    ("way", r"(?!test_|.*(give|gave|make|under|three|half|one)s?_way).*(?<!way_out)",
     "direction, path, route"),
    ("ways", r"ways_.*|(?!source_rate).+_ways", "directions, paths"),  # not WAYS of a cache
    ("place", r"take_place|net_place.*", "index, slot"),
    ("places", r".*", "slots, indices"),
    ("ours", r"(?!net_sockets_ours).+_ours|ours_.*", "own, local, or the object: stack, coronet"),
    ("mine", r".+_mine", "own, local"),
    ("theirs", r".+_theirs", "peer, remote, or the object: kernel"),
    ("rest", r"(?!net_stack_rest|test_).+_rest", "remaining, tail"),
    ("most", r"(?!test_).+_most", "max, limit"),
    ("who", r"(?:test_)?who_.*", "name the subject: blocked_sender, caller"),
    ("none", r".+_(?:are|is)_none", "state what happens: is_not_marked"),
)

# As the whole name of a function: it needs a noun.
FUNCTIONS = frozenset("add begin done drive due make makes mine most news ours owed put rest say "
                      "says store take takes tell tells theirs told".split())
# The same in C, where even a static function is seen without its file; methods of Python's have
# their class beside them.
C_FUNCTIONS = FUNCTIONS | frozenset("ask dial end fail fill find load start".split())
FUNCTIONS_CURE = "a noun and a verb: what does it act on?"
DEFINITION = {
    # The braces of a function stand in the first column.
    "c": re.compile(r"^(?!\t)(?:__attribute__\(\(.*?\)\) ?)?[\w* \t]*\b(?!__attribute__)(\w+)"
                    r"\([^;{}]*\)\n\{", re.M),
    "py": re.compile(r"^[ \t]*def (\w+)\(", re.M),
    "sh": re.compile(r"^(\w+)\(\) \{", re.M),
}
LANGUAGE = {".c": "c", ".h": "c", ".cc": "c", ".S": "c", ".py": "py", ".sh": "sh"}
# Beginnings of a section's heading, and of a comment at a declaration.
COMMENTS = (
    (re.compile(r"---- (?:what|whose)\b"), "name what the section holds", LANGUAGE),
    (re.compile(r"/\*(?:\s*\*)? Whether\b"), "Returns whether (of a variable: True if)", {".h"}),
)
# Comments and literals, which are no code.
TEXT = {
    "c": re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S),
    "py": re.compile(r'"""(?:\\.|[^\\])*?"""|#[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
                     re.S),
    "sh": re.compile(r"#[^\n]*|'[^']*'|\"[^\"]*\""),
}

PROSE = [(re.compile(pattern.replace(" ", r"[\s*#]+") + r"(?![a-z0-9])"), cure,
          re.compile(context) if context else None) for pattern, cure, context in PROSE]
NAMES = [(re.compile(word + r"(?![a-z0-9])"), re.compile(pattern), cure)
         for word, pattern, cure in NAMES]


def line_around(text, at):
    """Returns the line that the offset is on."""
    return text[text.rfind("\n", 0, at) + 1:(text + "\n").index("\n", at)]


def find_prose(text):
    """Yields the offset, the words and the cure of each phrase refused in text of lower case."""
    for pattern, cure, context in PROSE:
        for found in pattern.finditer(text):
            at = found.start()
            if at and text[at - 1].isalnum():
                continue
            if not (context and context.search(line_around(text, at))):
                yield at, re.sub(r"[\s*#]+", " ", found[0]), cure


def find_names(text, language):
    """Yields the same for the identifiers of a source."""
    spans = None
    for word, refused, cure in NAMES:
        for found in word.finditer(text):
            begin, end = found.span()
            if begin and text[begin - 1].isalnum():
                continue
            if spans is None:
                spans = [span.span() for span in TEXT[language].finditer(text)]
            if any(first <= begin < last for first, last in spans):
                continue
            name = (re.search(r"\w*$", text[max(0, begin - 80):begin])[0] + found[0]
                    + re.match(r"\w*", text[end:end + 80])[0])
            if refused.fullmatch(name):
                yield begin, name, cure


def find_functions(text, language):
    """Yields the same for the functions that a source defines."""
    refused = C_FUNCTIONS if language == "c" else FUNCTIONS
    for found in DEFINITION[language].finditer(text):
        if found[1] in refused:
            yield found.start(1), found[1], FUNCTIONS_CURE


def find_comments(text, suffix):
    """Yields the same for the headings and comments of a source."""
    for pattern, cure, suffixes in COMMENTS:
        for found in pattern.finditer(text) if suffix in suffixes else ():
            yield found.start(), re.sub(r"[\s*]+", " ", found[0]), cure


def check_text(name, text):
    """Returns a line for each word refused in the file of this name."""
    lower = text.lower()
    suffix = pathlib.PurePath(name).suffix
    found = list(find_prose(lower)) + list(find_comments(text, suffix))
    language = LANGUAGE.get(suffix)
    if text.startswith("#!/bin/sh"):
        language = "sh"
    if language:
        found += find_names(lower, language)
        found += find_functions(text, language)
    return [f"{name}:{text.count(chr(10), 0, at) + 1}: '{words}': say: {cure}"
            for at, words, cure in sorted(found)]


def check_subject(commit, subject):
    """Returns a line for each word refused in a commit's subject."""
    return [f"commit {commit}: '{words}': say: {cure}"
            for _, words, cure in find_prose(subject.lower())]


def ask_git(root, *arguments):
    """Returns what git prints, or nothing if it fails, as outside a repository."""
    return subprocess.run(["git", "-C", root, *arguments], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL).stdout


def subjects(root):
    """Yields the commits to check, each with its subject."""
    base = ask_git(root, "log", "--diff-filter=A", "--format=%H", "--", "tests/check_words.py")
    if not base:
        return  # the file is not committed yet
    base = base.split()[-1]
    tag = ask_git(root, "describe", "--tags", "--abbrev=0").strip()
    if tag and ask_git(root, "merge-base", base, tag).strip() == base:
        base = tag
    for line in ask_git(root, "log", "--format=%h %s", f"{base}..HEAD").splitlines():
        yield line.split(" ", 1)


def main():
    """Checks every file that git tracks, and the subjects of new commits."""
    root = sys.argv[1]
    bad = []
    for name in ask_git(root, "ls-files", "-z").split("\0"):
        path = pathlib.Path(root, name)
        if name and path.is_file() and not SKIPPED.fullmatch(name):
            bad += check_text(name, path.read_text(errors="replace"))
    for commit, subject in subjects(root):
        bad += check_subject(commit, subject)
    for line in bad:
        print(line)
    if bad:
        sys.exit(f"words: {len(bad)} to replace")
    print("words: ok")


if __name__ == "__main__":
    main()
