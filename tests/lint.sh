#!/bin/sh
# Checks the tree without building it: ./dev lint
set -eu
cd "$(dirname "$0")/.."

. ./tests/shell.sh

# Rejects files that are not sources: "git add -A" adds them easily.
check_tree() {
	strays=$(git ls-files | cut -d/ -f1 | sort -u | grep -vxE \
		'\..*|dpdk_glue|netstack|coro|asm|apps|tests|docs|subprojects|meson(\.build|_options\.txt)|[A-Z]+(\.md)?|dev') &&
		die "these do not belong at the top of the tree: $strays"
	strays=$(git ls-files | grep -E '\.(deb|o|a|so|gz|xz|zip|pcap|pcapng|pyc)$') &&
		die "these are not sources: $strays"
	return 0
}

# Pointers in conditions, types, hints (CONTRIBUTING.md); lines of comments do not count.
check_dialect() {
	nulls=$(git grep -nE '== NULL|(if|while|for|likely|assert) ?\(.*!= NULL' -- \
		'apps/*.[ch]' 'netstack/*.[ch]' 'dpdk_glue/*.[ch]' 'coro/*.[ch]' |
		grep -vE ':[0-9]+:[[:space:]]*/?\*') &&
		die "in a condition, write p or !p: $nulls"
	hints=$(git grep -nE '__builtin_expect|__attribute__\(\(cold' -- 'netstack/*.[ch]' 'coro/*.[ch]' \
		'dpdk_glue/*.h' 'apps/*.[ch]' ':!netstack/include' |
		grep -vE '#define (likely|unlikely|cold)') &&
		die "write likely(), unlikely() or cold: $hints"
	order=$(git grep -nE '\bstatic (inline )?(cold\b|__attribute__\(\(noinline)' -- '*.[ch]') &&
		die "write cold before static: $order"
	types=$(git grep -nwE '[us](8|16|32)_t' -- '*.[ch]') &&
		die "write uint16_t where lwIP says u16_t: $types"
	return 0
}

check_lengths() {
	long=$(git ls-files -z '*.[ch]' '*.py' '*.sh' | xargs -0 wc -l |
		awk '$1 > 700 && $2 != "total" { print $2 ": " $1 }')
	[ -z "$long" ] || die "more than 700 lines: $long"
}

# Markdown has 100 columns, except in tables, links and code (CONTRIBUTING.md).
check_columns() {
	long=$(git ls-files -z '*.md' | xargs -0 awk '
		FNR == 1 { code = 0 }
		/^ *```/ { code = !code }
		!code && length > 100 && !/^\|/ && !/\]\(/ { print FILENAME ":" FNR }')
	[ -z "$long" ] || die "more than 100 columns: $long"
}

# ctx_macros.h is assembly throughout.
git ls-files -z '*.[ch]' ':!asm/ctx_macros.h' | xargs -0r clang-format --dry-run -Werror
git grep -lE '^#!/bin/(ba)?sh|^#!/usr/bin/env bash' | xargs -r shellcheck -x
git ls-files -z '*.py' | xargs -0r pyflakes3
tests/check_layers.sh .
python3 -B tests/check_words.py .
check_dialect
check_columns
check_lengths
check_tree
report "lint: ok"
