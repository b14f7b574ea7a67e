/*
 * A program that was not written for coronet, preloaded by coronet-run.
 */
#pragma once

#include "netstack/sockets/sockets_priv.h"

#include <signal.h>

/* ---- run_signals.c ---- */

/* Before the stack opens, and behind that: what the program is to find. */
void net_run_signals_save(void);
void net_run_signals_begin(void);

/* ---- run_child.c ---- */

/* Before main() runs: 0, -ENOMEM. */
int net_run_children_begin(void);
