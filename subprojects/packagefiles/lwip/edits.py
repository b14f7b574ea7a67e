"""The edits made to lwIP 2.2.1 when its source is configured.

lwIP's source is never changed and never committed: edit.py writes an edited
copy of each file named here into the build folder, which is compiled instead.
An edit names identifiers and is ours; it quotes no line of lwIP's. Prefer to
go round lwIP from outside (hooks, renamed symbols, netstack/'s own functions)
and edit where there is no outside.
"""
from typing import NamedTuple, Optional


class Edit(NamedTuple):
    """One substitution, as re.subn() with re.MULTILINE understands it."""

    file: str  # below lwIP's root
    within: Optional[str]  # the function it is confined to; None: the file
    find: str  # a regular expression
    replace: str
    times: int  # how often it must match there, exactly
    why: str


EDITS = [
    Edit(
        file="src/core/tcp_out.c",
        within="tcp_split_unsent_seg",
        find=r"\bTCPH_SET_FLAG\b",
        replace="TCPH_FLAGS_SET",
        times=1,
        why="The flags that the first half keeps are ORed into those it has, "
            "so FIN and PSH stay on it: FIN leaves in the middle of the "
            "stream and the peer sees a clean end there.",
    ),
]
