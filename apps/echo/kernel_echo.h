/*
 * The common part of the echo servers on the kernel's sockets: options,
 * listeners, threads, signals. They differ in how a thread serves connections.
 *
 * Each thread has a worker with a listener of its own on the same port. The
 * main thread opens and closes the workers, and waits for signals. From the
 * first signal on a worker drains: it accepts no new connection, echoes what
 * has arrived, then closes each connection's sending side and waits for the
 * peer's FIN, at most KERNEL_ECHO_DRAIN_MS.
 */
#pragma once

typedef struct ssl_ctx_st SSL_CTX; /* of OpenSSL */

#define KERNEL_ECHO_ACCEPT_BATCH 64
#define KERNEL_ECHO_DRAIN_MS	 5000
#define KERNEL_ECHO_NO_FILES_MS	 100 /* until accept is tried again */

struct kernel_echo {
	const char *name; /* "epoll-echo" */
	const char *doc;  /* for --help */
	/*
	 * Checks whether this machine can run the server: returns 0, or -errno
	 * after printing one line. NULL: every machine can. Main thread.
	 */
	int (*check)(void);
	/*
	 * Makes a worker in *out. Returns 0 or -errno. The listener is
	 * non-blocking; the worker owns it if this succeeds. drain_event is
	 * borrowed: it becomes readable when the worker must drain, and stays
	 * readable. Main thread.
	 */
	int (*open)(int listener, int drain_event, void **out);
	/* Serves until the worker has drained. On the worker's own thread. */
	void (*serve)(void *worker);
	/* Frees the worker, whose serve() does not run. Main thread. */
	void (*close)(void *worker);
	/*
	 * The server for --udp, whose open() gets a bound socket instead of a
	 * listener. NULL: there is no such option, and no TLS.
	 */
	const struct kernel_echo *udp;
};

/* datagram_echo.c */
extern const struct kernel_echo datagram_echo;

/* True if accept() failed for lack of files or memory: a pause may help. */
#define KERNEL_ECHO_NO_FILES(err)                                              \
	((err) == EMFILE || (err) == ENFILE || (err) == ENOBUFS ||             \
	 (err) == ENOMEM)

/* For --tls-cert, which servers with --udp have; NULL: without TLS. */
extern SSL_CTX *kernel_echo_tls;

/* The whole program. Returns the exit status for main(). */
int kernel_echo_main(const struct kernel_echo *server, int argc, char **argv);
