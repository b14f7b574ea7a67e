/*
 * The public socket of a memif server.
 *
 * DPDK's memif server ends the process when a client hangs up before its
 * greeting was sent, and never notices that its socket file was removed. So
 * DPDK listens on a socket of its own, whose name is removed at once, and the
 * relay listens at the path that the user gave; no file appears there before it
 * listens. It greets a client, waits for its INIT message, and only then
 * connects it to DPDK and passes on messages and descriptors in both
 * directions. If the file at the path is gone, or is the socket of a process
 * that has ended, the relay creates the socket again.
 *
 * DPDK unmaps the rings of a client that leaves, with the frames that were not
 * read yet, such as its last FIN or RST. So the relay delays its DISCONNECT
 * until they have been read, for about a second at most, or until another
 * client comes.
 *
 * One thread at a time may use a relay. Every call is bounded: a relay has at
 * most GLUE_RELAY_CLIENTS connections, and closes one that has not sent its
 * INIT within five seconds.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define GLUE_RELAY_CLIENTS  8
#define GLUE_RELAY_MESSAGE  128 /* bytes of every memif control message */
#define GLUE_RELAY_PATH_MAX 108 /* sun_path */

/* Time that a server may need to start on a busy machine. */
#define GLUE_SERVER_MS	     10000
#define GLUE_SERVER_RETRY_MS 50

enum glue_relay_state {
	GLUE_RELAY_FREE,
	GLUE_RELAY_GREETED,  /* our greeting was sent, its INIT is awaited */
	GLUE_RELAY_JOINING,  /* DPDK's greeting is awaited, and dropped */
	GLUE_RELAY_JOINED,   /* messages pass in both directions */
	GLUE_RELAY_LEAVING,  /* as JOINING, but the client is gone */
	GLUE_RELAY_DRAINING, /* left after JOINED; its frames are being read */
};

struct glue_relay_client {
	enum glue_relay_state state;
	int outer;	  /* socket of the client, or -1 */
	int inner;	  /* socket to DPDK, or -1 */
	int64_t since_ms; /* of its greeting, CLOCK_MONOTONIC */
	uint8_t init[GLUE_RELAY_MESSAGE];
	bool accepted;	   /* DPDK has answered to a message of its */
	unsigned rings[2]; /* announced by it, per direction */
	unsigned looks;	   /* number of checks whether its frames were read */
};

struct glue_relay {
	char path[GLUE_RELAY_PATH_MAX];	    /* where clients connect */
	char new_path[GLUE_RELAY_PATH_MAX]; /* until the socket listens */
	int listener;
	int inner_file;	   /* O_PATH of DPDK's socket, which has no name */
	int probe;	   /* connection that fetches DPDK's greeting, or -1 */
	int64_t accept_ms; /* no client is accepted before: files ran out */
	bool greeting_known;
	mode_t mode; /* of our file at the path */
	dev_t dev;
	ino_t ino;
	uint8_t greeting[GLUE_RELAY_MESSAGE];
	struct glue_relay_client clients[GLUE_RELAY_CLIENTS];
	/* Set by the owner after glue_relay_open(), or left at 0: */
	unsigned n_queues; /* announced in the greeting */
	/*
	 * on_connect() is called before DPDK learns that a client connects,
	 * which makes it map the client's rings; on_connected() after that,
	 * with the number of ring pairs. Set both or none.
	 */
	void (*on_connect)(void *arg);
	void (*on_connected)(void *arg, unsigned n_rings);
	/*
	 * on_leave() is called when a client has left. has_read(), called
	 * repeatedly after that, returns whether all frames that the client had
	 * sent have been read. Set both or none.
	 */
	void (*on_leave)(void *arg);
	bool (*has_read)(void *arg);
	void *arg;
};

/*
 * Returns 0 if a process listens at the path, or has bound it and is about to
 * listen; -ECONNREFUSED or -ENOENT if none does; or why it cannot be reached,
 * such as -EACCES.
 */
int glue_socket_probe(const char *path);
/* Returns whether no process listens at the path. */
bool glue_socket_is_dead(const char *path);
/*
 * The result of glue_socket_probe() once a process listens or GLUE_SERVER_MS
 * have passed.
 */
int glue_socket_await(const char *path);

/*
 * Writes a name for DPDK's socket in the folder of path to out, which has
 * GLUE_RELAY_PATH_MAX bytes. Returns 0 or -ENAMETOOLONG.
 */
int glue_relay_inner_path(const char *path, char *out);

/*
 * Takes over from DPDK, which listens at inner_path: removes that name, and
 * listens at path, whose file gets this mode; the socket is created at
 * inner_path and then linked to path. Both strings are copied. Returns 0, or
 * -errno of the call that failed, after which nothing is open, but inner_path
 * is removed.
 */
int glue_relay_open(struct glue_relay *relay, const char *path,
		    const char *inner_path, mode_t mode);

/*
 * Returns how many queues the relay at a path announces in its greeting; 0 if
 * nobody answers within timeout_ms, or if the greeting has no number, as with
 * other servers.
 */
unsigned glue_relay_ask(const char *path, int timeout_ms);

/*
 * Waits at most timeout_ms for events, and handles them; returns at once when
 * wake_fd (or -1) is readable. Recreates the socket if its file is gone.
 */
void glue_relay_step(struct glue_relay *relay, int wake_fd, int timeout_ms);

/*
 * Closes everything, and removes the file at the path if it is still this
 * relay's.
 */
void glue_relay_close(struct glue_relay *relay);
