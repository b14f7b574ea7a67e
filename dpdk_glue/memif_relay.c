/*
 * The relay between memif clients and DPDK's memif server.
 */
#include "dpdk_glue/memif_relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define INIT_MS	 5000 /* how long a client may take to send its INIT */
#define PAUSE_MS 250  /* until a client is accepted after files ran out */
#define LOOK_MS	 1    /* between two looks whether frames have been read */
#define LOOKS	 1000 /* at most; not a time: the process may be stopped */
#define FDS_MAX	 4    /* descriptors taken from one message; DPDK sends one */

/* The first two bytes of a message are its type. */
enum {
	TYPE_ACK = 1,
	TYPE_HELLO = 2,
	TYPE_INIT = 3,
	TYPE_ADD_RING = 5,
	TYPE_CONNECT = 6,
	TYPE_CONNECTED = 7,
	TYPE_DISCONNECT = 8
};

/* The offset of a greeting's server name, and of a ring's flags, whose first
 * bit says S2C. */
#define NAME_AT	 2
#define NAME_LEN 32
#define QUEUES	 "coronet queues="

_Static_assert(sizeof(((struct sockaddr_un *)0)->sun_path) ==
		       GLUE_RELAY_PATH_MAX,
	       "a path fits into a socket's address");

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* ---- messages ---- */

struct message {
	uint8_t bytes[GLUE_RELAY_MESSAGE];
	int fds[FDS_MAX];
	unsigned n_fds;
};

static void close_fds(struct message *msg)
{
	for (unsigned i = 0; i < msg->n_fds; i++)
		close(msg->fds[i]);
	msg->n_fds = 0;
}

/* The message owns the descriptors from now on. */
static void take_fds(struct message *msg, struct msghdr *head)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(head); c;
	     c = CMSG_NXTHDR(head, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		if (n > FDS_MAX - msg->n_fds)
			n = FDS_MAX - msg->n_fds;
		memcpy(msg->fds + msg->n_fds, CMSG_DATA(c), n * sizeof(int));
		msg->n_fds += (unsigned)n;
	}
}

/* Returns 0, -EAGAIN, or another -errno if the connection is broken. */
static int receive_message(int fd, struct message *msg)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = msg->bytes,
			    .iov_len = sizeof(msg->bytes)};
	struct msghdr head = {.msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(fd, &head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	msg->n_fds = 0;
	if (n < 0)
		return -errno;
	take_fds(msg, &head);
	if (n == sizeof(msg->bytes) &&
	    !(head.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return 0;
	close_fds(msg);
	return n == 0 ? -EPIPE : -EPROTO;
}

/* Both sockets hold many more messages than a handshake has. */
static int pass_on(int fd, struct message *msg)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = msg->bytes,
			    .iov_len = sizeof(msg->bytes)};
	struct msghdr head = {.msg_iov = &iov, .msg_iovlen = 1};
	size_t fd_bytes = msg->n_fds * sizeof(int);
	struct cmsghdr *c;
	int err = 0;

	if (msg->n_fds) {
		memset(&control, 0, sizeof(control));
		head.msg_control = &control;
		head.msg_controllen = CMSG_SPACE(fd_bytes);
		c = CMSG_FIRSTHDR(&head);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(fd_bytes);
		memcpy(CMSG_DATA(c), msg->fds, fd_bytes);
	}
	if (sendmsg(fd, &head, MSG_DONTWAIT | MSG_NOSIGNAL) !=
	    sizeof(msg->bytes))
		err = -EPIPE;
	close_fds(msg);
	return err;
}

static int send_bytes(int fd, const uint8_t *bytes)
{
	struct message msg = {.n_fds = 0};

	memcpy(msg.bytes, bytes, sizeof(msg.bytes));
	return pass_on(fd, &msg);
}

/* ---- sockets ---- */

static int make_socket(void)
{
	return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
		      0);
}

/* Connects by the inode: nobody else can reach a socket without a name. */
static int connect_inner(const struct glue_relay *relay)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = make_socket();

	snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d",
		 relay->inner_file);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		close_fd(&fd);
	return fd;
}

/* A client that finds the path connects at once: the socket listens by then. */
static int publish_socket(struct glue_relay *relay, int fd)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct stat st;
	int err = 0;

	unlink(relay->new_path);
	strcpy(addr.sun_path, relay->new_path);
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		return -errno;
	if (chmod(relay->new_path, relay->mode) < 0 ||
	    listen(fd, GLUE_RELAY_CLIENTS) < 0 ||
	    stat(relay->new_path, &st) < 0 ||
	    link(relay->new_path, relay->path) < 0)
		err = errno == EEXIST ? -EADDRINUSE : -errno;
	unlink(relay->new_path);
	if (err < 0)
		return err;
	relay->dev = st.st_dev;
	relay->ino = st.st_ino;
	return 0;
}

static int bind_path(struct glue_relay *relay)
{
	int fd = make_socket();
	int err;

	if (fd < 0)
		return -errno;
	err = publish_socket(relay, fd);
	if (err < 0) {
		close(fd);
		return err;
	}
	close_fd(&relay->listener);
	relay->listener = fd;
	return 0;
}

/*
 * A living server refuses a datagram socket for its type, and does not notice;
 * a dead one refuses every socket.
 */
int glue_socket_probe(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int err = fd < 0 ? errno : 0;

	if (fd < 0)
		return -err;
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		err = errno;
	close(fd);
	return err == EPROTOTYPE ? 0 : -err;
}

static bool is_missing(int err)
{
	return err == -ECONNREFUSED || err == -ENOENT;
}

bool glue_socket_is_dead(const char *path)
{
	return is_missing(glue_socket_probe(path));
}

int glue_socket_await(const char *path)
{
	static const struct timespec nap = {.tv_nsec = GLUE_SERVER_RETRY_MS *
						       1000000};
	int64_t until_ms = now_ms() + GLUE_SERVER_MS;
	int err = glue_socket_probe(path);

	while (is_missing(err) && now_ms() < until_ms) {
		nanosleep(&nap, NULL);
		err = glue_socket_probe(path);
	}
	return err;
}

static bool path_is_own(const struct glue_relay *relay)
{
	struct stat st;

	return stat(relay->path, &st) == 0 && st.st_dev == relay->dev &&
	       st.st_ino == relay->ino;
}

/* Replaces our path, or a dead socket at it; anything else there stays. */
static void restore_path(struct glue_relay *relay)
{
	struct stat st;

	if (path_is_own(relay))
		return;
	if (lstat(relay->path, &st) == 0) {
		if (!S_ISSOCK(st.st_mode) || !glue_socket_is_dead(relay->path))
			return;
		unlink(relay->path);
	}
	bind_path(relay);
}

int glue_relay_inner_path(const char *path, char *out)
{
	static unsigned count; /* DPDK keeps a table of names */
	const char *slash = strrchr(path, '/');
	int n = snprintf(out, GLUE_RELAY_PATH_MAX, "%.*s/.m%d.%u",
			 slash ? (int)(slash - path) : 1, slash ? path : ".",
			 (int)getpid(), count++);

	return n < GLUE_RELAY_PATH_MAX ? 0 : -ENAMETOOLONG;
}

int glue_relay_open(struct glue_relay *relay, const char *path,
		    const char *inner_path, mode_t mode)
{
	int err;

	memset(relay, 0, sizeof(*relay));
	relay->listener = relay->probe = -1;
	for (unsigned i = 0; i < GLUE_RELAY_CLIENTS; i++)
		relay->clients[i].outer = relay->clients[i].inner = -1;
	relay->mode = mode;
	snprintf(relay->path, sizeof(relay->path), "%s", path);
	snprintf(relay->new_path, sizeof(relay->new_path), "%s", inner_path);
	relay->inner_file = open(inner_path, O_PATH | O_CLOEXEC);
	err = relay->inner_file < 0 ? -errno : 0;
	unlink(inner_path);
	if (err < 0)
		return err;
	relay->probe = connect_inner(relay);
	if (relay->probe < 0) {
		err = -errno;
		goto close_file;
	}
	err = bind_path(relay);
	if (err < 0)
		goto close_probe;
	return 0;

close_probe:
	close_fd(&relay->probe);
close_file:
	close_fd(&relay->inner_file);
	return err;
}

/* ---- clients ---- */

static void drop_client(struct glue_relay_client *client)
{
	close_fd(&client->outer);
	close_fd(&client->inner);
	client->state = GLUE_RELAY_FREE;
}

/* Returns a free entry, if need be that of the longest silent client. */
static struct glue_relay_client *find_place(struct glue_relay *relay)
{
	struct glue_relay_client *oldest = NULL;

	for (unsigned i = 0; i < GLUE_RELAY_CLIENTS; i++) {
		struct glue_relay_client *client = &relay->clients[i];

		if (client->state == GLUE_RELAY_FREE)
			return client;
		if (client->state == GLUE_RELAY_GREETED &&
		    (!oldest || client->since_ms < oldest->since_ms))
			oldest = client;
	}
	if (oldest)
		drop_client(oldest);
	return oldest;
}

static void accept_client(struct glue_relay *relay)
{
	struct glue_relay_client *client;
	int fd = accept4(relay->listener, NULL, NULL,
			 SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0) {
		if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)
			relay->accept_ms = now_ms() + PAUSE_MS;
		return;
	}
	client = find_place(relay);
	if (!client || send_bytes(fd, relay->greeting) < 0) {
		close(fd);
		return;
	}
	client->state = GLUE_RELAY_GREETED;
	client->accepted = false;
	client->rings[0] = client->rings[1] = 0;
	client->outer = fd;
	client->since_ms = now_ms();
}

/* Drop draining clients, so that DPDK, which serves one at a time, notices. */
static void end_draining(struct glue_relay *relay)
{
	for (unsigned i = 0; i < GLUE_RELAY_CLIENTS; i++)
		if (relay->clients[i].state == GLUE_RELAY_DRAINING)
			drop_client(&relay->clients[i]);
}

static void take_init(struct glue_relay *relay,
		      struct glue_relay_client *client)
{
	struct message msg;
	int err = receive_message(client->outer, &msg);

	if (err == -EAGAIN)
		return;
	if (err == 0)
		close_fds(&msg); /* an INIT has none */
	if (err < 0 || msg.bytes[0] != TYPE_INIT || msg.bytes[1] != 0) {
		drop_client(client);
		return;
	}
	end_draining(relay);
	client->inner = connect_inner(relay);
	if (client->inner < 0) {
		drop_client(client);
		return;
	}
	memcpy(client->init, msg.bytes, sizeof(client->init));
	client->state = GLUE_RELAY_JOINING;
}

/* DPDK does not survive a client that hangs up before its greeting. */
static void take_inner_greeting(struct glue_relay_client *client)
{
	struct message msg;
	int err = receive_message(client->inner, &msg);

	if (err == -EAGAIN)
		return;
	if (err == 0)
		close_fds(&msg);
	if (err < 0 || client->state == GLUE_RELAY_LEAVING ||
	    send_bytes(client->inner, client->init) < 0)
		drop_client(client);
	else
		client->state = GLUE_RELAY_JOINED;
}

unsigned glue_relay_ask(const char *path, int timeout_ms)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct pollfd greeted = {.events = POLLIN};
	struct message msg = {.n_fds = 0};
	unsigned n = 0;

	greeted.fd = make_socket();
	if (greeted.fd < 0)
		return 0;
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	if (connect(greeted.fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
	    poll(&greeted, 1, timeout_ms) <= 0 ||
	    receive_message(greeted.fd, &msg) < 0)
		goto close_socket;
	close_fds(&msg);
	msg.bytes[NAME_AT + NAME_LEN - 1] = '\0';
	if (msg.bytes[0] != TYPE_HELLO ||
	    sscanf((char *)msg.bytes + NAME_AT, QUEUES "%3u", &n) != 1)
		n = 0;

close_socket:
	close(greeted.fd);
	return n;
}

/*
 * Counts the rings that the client announces to DPDK. The queues rest once it
 * connects, so it may not do that while DPDK has another client.
 */
static int watch_outer(const struct glue_relay *relay,
		       struct glue_relay_client *client, const uint8_t *bytes)
{
	if (bytes[1] != 0)
		return 0;
	if (bytes[0] == TYPE_ADD_RING)
		client->rings[bytes[2] & 1]++;
	if (bytes[0] == TYPE_CONNECT && !client->accepted)
		return -EPROTO;
	if (bytes[0] == TYPE_CONNECT && relay->on_connect)
		relay->on_connect(relay->arg);
	return 0;
}

static void watch_inner(const struct glue_relay *relay,
			struct glue_relay_client *client, const uint8_t *bytes)
{
	unsigned n = client->rings[0] < client->rings[1] ? client->rings[0]
							 : client->rings[1];

	if (bytes[1] != 0)
		return;
	if (bytes[0] == TYPE_ACK)
		client->accepted = true;
	if (bytes[0] == TYPE_CONNECTED && relay->on_connected)
		relay->on_connected(relay->arg, n);
}

static void begin_drain(const struct glue_relay *relay,
			struct glue_relay_client *client)
{
	if (!relay->on_leave) {
		drop_client(client);
		return;
	}
	close_fd(&client->outer);
	client->looks = 0;
	client->state = GLUE_RELAY_DRAINING;
	relay->on_leave(relay->arg);
}

/* Returns whether any client is still draining. */
static bool drain_clients(struct glue_relay *relay)
{
	bool drains = false;

	for (unsigned i = 0; i < GLUE_RELAY_CLIENTS; i++) {
		struct glue_relay_client *client = &relay->clients[i];

		if (client->state != GLUE_RELAY_DRAINING)
			continue;
		if (++client->looks > LOOKS || relay->has_read(relay->arg))
			drop_client(client);
		else
			drains = true;
	}
	return drains;
}

static void relay_outer(const struct glue_relay *relay,
			struct glue_relay_client *client)
{
	struct message msg;
	int err = receive_message(client->outer, &msg);

	if (err == 0 && msg.bytes[0] == TYPE_DISCONNECT && msg.bytes[1] == 0) {
		close_fds(&msg);
		err = -EPIPE; /* DPDK takes a closed socket for the same */
	}
	if (err == 0) {
		err = watch_outer(relay, client, msg.bytes);
		if (err == 0)
			err = pass_on(client->inner, &msg);
		else
			close_fds(&msg);
	}
	if (err < 0 && err != -EAGAIN)
		begin_drain(relay, client);
}

static void relay_inner(const struct glue_relay *relay,
			struct glue_relay_client *client)
{
	struct message msg;
	int err = receive_message(client->inner, &msg);

	if (err == 0) {
		watch_inner(relay, client, msg.bytes);
		err = pass_on(client->outer, &msg);
	}
	if (err < 0 && err != -EAGAIN)
		drop_client(client);
}

static void serve_outer(struct glue_relay *relay,
			struct glue_relay_client *client, short events)
{
	switch (client->state) {
	case GLUE_RELAY_FREE:
	case GLUE_RELAY_LEAVING:
	case GLUE_RELAY_DRAINING:
		break;
	case GLUE_RELAY_GREETED:
		take_init(relay, client);
		break;
	case GLUE_RELAY_JOINING: /* read later; but it may have hung up */
		if (events & (POLLHUP | POLLERR)) {
			close_fd(&client->outer);
			client->state = GLUE_RELAY_LEAVING;
		}
		break;
	case GLUE_RELAY_JOINED:
		relay_outer(relay, client);
		break;
	}
}

static void serve_inner(const struct glue_relay *relay,
			struct glue_relay_client *client)
{
	switch (client->state) {
	case GLUE_RELAY_FREE:
	case GLUE_RELAY_GREETED:
		break;
	case GLUE_RELAY_JOINING:
	case GLUE_RELAY_LEAVING:
		take_inner_greeting(client);
		break;
	case GLUE_RELAY_JOINED:
	case GLUE_RELAY_DRAINING: /* nothing passes, but DPDK may hang up */
		relay_inner(relay, client);
		break;
	}
}

static void take_probe(struct glue_relay *relay)
{
	struct message msg;
	int err = receive_message(relay->probe, &msg);

	if (err == -EAGAIN)
		return;
	if (err == 0) {
		close_fds(&msg);
		memcpy(relay->greeting, msg.bytes, sizeof(relay->greeting));
		if (relay->n_queues)
			snprintf((char *)relay->greeting + NAME_AT, NAME_LEN,
				 QUEUES "%u", relay->n_queues);
		relay->greeting_known = true;
	}
	close_fd(&relay->probe);
}

static void drop_silent(struct glue_relay *relay)
{
	int64_t now = now_ms();

	for (unsigned i = 0; i < GLUE_RELAY_CLIENTS; i++)
		if (relay->clients[i].state == GLUE_RELAY_GREETED &&
		    now - relay->clients[i].since_ms > INIT_MS)
			drop_client(&relay->clients[i]);
}

/* poll() skips what is negative. */
static void fill_polls(const struct glue_relay *relay, int wake_fd,
		       struct pollfd *polls)
{
	bool accepts = relay->greeting_known && now_ms() >= relay->accept_ms;

	polls[0] = (struct pollfd){.fd = wake_fd, .events = POLLIN};
	polls[1] = (struct pollfd){.fd = relay->probe, .events = POLLIN};
	polls[2] = (struct pollfd){.fd = accepts ? relay->listener : -1,
				   .events = POLLIN};
	for (unsigned i = 0; i < GLUE_RELAY_CLIENTS; i++) {
		const struct glue_relay_client *client = &relay->clients[i];
		bool reads = client->state != GLUE_RELAY_JOINING;

		polls[3 + 2 * i] = (struct pollfd){
			.fd = client->outer, .events = reads ? POLLIN : 0};
		polls[4 + 2 * i] =
			(struct pollfd){.fd = client->inner, .events = POLLIN};
	}
}

void glue_relay_step(struct glue_relay *relay, int wake_fd, int timeout_ms)
{
	struct pollfd polls[3 + 2 * GLUE_RELAY_CLIENTS];

	if (drain_clients(relay) && timeout_ms > LOOK_MS)
		timeout_ms = LOOK_MS;
	fill_polls(relay, wake_fd, polls);
	if (poll(polls, 3 + 2 * GLUE_RELAY_CLIENTS, timeout_ms) > 0) {
		if (polls[1].revents)
			take_probe(relay);
		for (unsigned i = 0; i < GLUE_RELAY_CLIENTS; i++) {
			struct glue_relay_client *client = &relay->clients[i];

			if (polls[3 + 2 * i].revents)
				serve_outer(relay, client,
					    polls[3 + 2 * i].revents);
			if (polls[4 + 2 * i].revents)
				serve_inner(relay, client);
		}
		if (polls[2].revents)
			accept_client(relay);
	}
	drop_silent(relay);
	restore_path(relay);
}

void glue_relay_close(struct glue_relay *relay)
{
	if (path_is_own(relay))
		unlink(relay->path);
	for (unsigned i = 0; i < GLUE_RELAY_CLIENTS; i++)
		drop_client(&relay->clients[i]);
	close_fd(&relay->probe);
	close_fd(&relay->listener);
	close_fd(&relay->inner_file);
}
