/*
 * A program that was not written for coronet, preloaded by coronet-run.
 */
#pragma once

#include "netstack/sockets/sockets_priv.h"

#include <signal.h>

/* ---- run_main.c ---- */

/* Whether an address lies on main()'s stack. */
bool net_run_on_stack(const void *at);

/* ---- run_signals.c ---- */

/* Before the stack opens, and behind that: what the program is to find. */
void net_run_signals_save(void);
void net_run_signals_begin(void);
/* What ended the program by its default action, or 0. */
int net_run_signal(void);
/* The kernel's sigaction(), for one that ends the program. */
void net_run_signal_default(int signo);
