/* For unmodified programs, into which coronet-run preloads this library. */
#pragma once

#include "netstack/sockets/sockets_priv.h"

#include <signal.h>

/* ---- run_signals.c ---- */

/*
 * Save the program's signal actions before the stack opens, and restore them
 * afterwards.
 */
void net_run_signals_save(void);
void net_run_signals_begin(void);

/* ---- run_main.c ---- */

/* Opens the stack, and leaves it (net_stack_leave()), or ends the process. */
void net_run_open(void);

/* ---- run_late.c ---- */

/* --in-child: leaves net_run_open() to a child of this process. Returns 0 or
 * -ENOMEM. */
int net_run_open_late(void);
/* Called when the stack is closed: another child may open it. */
void net_run_left(void);

/* ---- run_child.c ---- */

/* Called before main() runs. Returns 0 or -ENOMEM. */
int net_run_children_begin(void);

/* ---- run_exec.c ---- */

/* Called before main() runs: reports which program this process executes. */
void net_run_exec_begin(void);
