/*
 * What the echo servers on the kernel's sockets share: options, listeners,
 * threads, signals. The servers differ in how a thread serves its connections.
 *
 * Each thread has a worker with a listener of its own on the same port. The
 * main thread opens and closes the workers, and waits for signals. From the
 * first signal on a worker drains: it accepts no new connection, echoes what
 * has arrived, then closes each connection's sending side and waits for the
 * peer's FIN, at most KERNEL_ECHO_DRAIN_MS.
 */
#pragma once

#define KERNEL_ECHO_ACCEPT_BATCH 64
#define KERNEL_ECHO_DRAIN_MS	 5000
#define KERNEL_ECHO_NO_FILES_MS	 100 /* until accept is tried again */

struct kernel_echo {
	const char *name; /* "epoll-echo" */
	const char *doc;  /* for --help */
	/*
	 * Whether this machine can run it; otherwise prints one line and
	 * returns -errno. NULL if every machine can. Main thread.
	 */
	int (*check)(void);
	/*
	 * Makes a worker in *out: 0 or -errno. The listener is non-blocking;
	 * the worker owns it if this succeeds. drain_event is borrowed: it
	 * becomes readable when the worker is to drain, and stays so. Main
	 * thread.
	 */
	int (*open)(int listener, int drain_event, void **out);
	/* Serves until drained. The worker's own thread. */
	void (*serve)(void *worker);
	/* Frees the worker, which does not serve. Main thread. */
	void (*close)(void *worker);
	/*
	 * Serves datagrams instead, with --udp: its open() gets a bound socket.
	 * NULL: there is no such option.
	 */
	const struct kernel_echo *udp;
};

/* datagram_echo.c */
extern const struct kernel_echo datagram_echo;

/* Whether accept failed for want of files or memory, so that a pause helps. */
#define KERNEL_ECHO_NO_FILES(err)                                              \
	((err) == EMFILE || (err) == ENFILE || (err) == ENOBUFS ||             \
	 (err) == ENOMEM)

/* The whole program: main()'s exit status. */
int kernel_echo_main(const struct kernel_echo *server, int argc, char **argv);
