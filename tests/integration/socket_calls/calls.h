/*
 * Calls on sockets and their results, a line each, without varying values.
 * test_socket_calls.py runs the program on the kernel and by coronet-run, with
 * the same peer, and compares the lines.
 */
#pragma once

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/*
 * Prints a line: the label, the result and, if it is negative, the name of
 * errno.
 */
void show(const char *label, long result);
void show_text(const char *label, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void show_poll(const char *label, int result, short events);

/*
 * A connection to the peer, which does what the script says, a word at a time:
 *
 *	say:TEXT	sends it
 *	count:N		sends N bytes
 *	read:N		reads N bytes
 *	hold		reads nothing until the connection is reset
 *	end		reads until the end of the stream
 *	echo		sends what it reads, until the end of the stream
 *	eof		shuts down its direction
 *	close, reset	closes the connection, with FIN or RST
 *	dial:PORT	goes on with a connection to this host's port
 *	follow		waits until this side has closed the connection that
 *			brought the script
 *
 * It closes at the end of the script only when this side has closed. Ends the
 * program if there is no connection. The caller closes the descriptor.
 */
int talk(const char *script);
int talk6(const char *script);
struct sockaddr_in peer_addr(unsigned port);
struct sockaddr_in6 peer_addr6(unsigned port);
struct sockaddr_in own_addr(unsigned port);
extern unsigned closed_port; /* nobody listens there, at the peer */
extern unsigned peer_port;   /* there it listens, and echoes datagrams */

/* A socket that listens on a port that the stack or the kernel chooses. */
int listener(unsigned *port);
/* Makes the peer dial the port and follow the script; the caller closes it. */
int ask_to_dial(unsigned port, const char *script);
/*
 * Returns the accepted end of a connection, whose other end follows the script.
 */
int accepted(const char *script);

/* An unmapped address, hidden from the compiler. */
extern void *volatile nowhere;

/* Waits with poll(); returns the reported events. */
short wait_for(int fd, short events);
int tcp(void);
int tcp6(void);
int so_error(int fd);
void set_int(int fd, int level, int option, int value);
int get_int(int fd, int level, int option); /* or -1 */

void calls_on_new_sockets(void);
void calls_that_connect(void);
void calls_that_listen(void);
void calls_on_streams(void);
void calls_at_the_end(void);
void calls_with_faults(void);
void calls_of_poll(void);
void calls_of_epoll(void);
void calls_on_options(void);
void calls_on_descriptors(void);
void calls_of_stdio(void);
void calls_with_signals(void);
void calls_in_threads(void);
void calls_on_small_stacks(void);
void calls_after_main(void); /* ends main()'s thread */
void calls_on_datagrams(void);
void calls_on_dgram_options(void);
void calls_with_dgram_faults(void);
