/* An unchanged program, into which coronet-run has preloaded this library. */
#pragma once

#include "netstack/sockets/sockets_priv.h"

#include <signal.h>

/* ---- run_signals.c ---- */

/*
 * Save the signal actions before the stack opens, and restore them afterwards,
 * so that the program finds its own.
 */
void net_run_signals_save(void);
void net_run_signals_begin(void);

/* ---- run_main.c ---- */

/* Opens the stack, and leaves it. Ends the process if that fails. */
void net_run_open(void);

/* ---- run_late.c ---- */

/* --in-child: leaves net_run_open() to a child of this process. Returns 0 or
 * -ENOMEM. */
int net_run_open_late(void);
/* The stack is closed: another child may open it. */
void net_run_left(void);

/* ---- run_child.c ---- */

/* Called before main() runs. Returns 0 or -ENOMEM. */
int net_run_children_begin(void);

/* ---- run_exec.c ---- */

/* Called before main() runs: reports what this process executes. */
void net_run_exec_begin(void);
