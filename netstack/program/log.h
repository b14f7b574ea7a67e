/*
 * Private to netstack/: the life of the log. What programs call is in
 * coronet/net.h (net_log() and its kin).
 */
#pragma once

#include <stdint.h>

#define NET_LOG_SLOTS 256 /* lines that wait to be written */
#define NET_LOG_BYTES 512 /* of a line, its newline included */

/*
 * Starts the thread that writes, once a process, and makes sure that a closed
 * pipe kills nobody: where SIGPIPE has its default action, it is given a
 * handler that does nothing, so that writing returns -EPIPE. (A handler and not
 * SIG_IGN, which programs that this one executes would inherit.) Returns 0 or
 * -errno of pthread_create().
 */
int net_log_open(void);

/* Waits as net_log_flush() does, and gives SIGPIPE back. */
void net_log_close(void);

/*
 * Waits until everything logged so far is written, 200 ms at most. Blocks the
 * thread: for the end of a program.
 */
void net_log_flush(void);

/* Lines that were dropped since the process began. */
uint64_t net_log_dropped(void);

/* Lines go to fd instead of stderr: for tests. */
void net_log_set_fd(int fd);
