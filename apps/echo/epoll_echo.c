/*
 * epoll-echo: a TCP echo server on the kernel's stack, coronet-echo's twin;
 * datagram_echo.c serves --udp.
 *
 * It is written to be as fast as the kernel permits: each thread has a listener
 * of its own (SO_REUSEPORT), one edge-triggered epoll set, and one buffer for
 * all its connections. A request is one recv and one send. Only bytes that a
 * peer does not take are kept, in a buffer allocated for them; the connection
 * is not read from until they have gone, so that a peer that never reads costs
 * only BUF_SIZE bytes.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "apps/common/socket_tls.h"
#include "apps/common/sys.h"
#include "apps/echo/kernel_echo.h"

#define BATCH	     256
#define BUF_SIZE     (64u << 10)
#define ROUNDS	     8 /* bufferfuls of one event, for fairness */
#define INTEREST     (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)
#define PEER_IS_DONE (EPOLLRDHUP | EPOLLHUP | EPOLLERR)

struct conn {
	int fd;
	SSL *tls;      /* owned; NULL: without TLS */
	bool greeting; /* TLS's handshake is not over */
	bool shut;     /* draining: we have shut it, too */
	bool again;    /* in the worker's list of the same name */
	uint32_t from; /* what is kept: kept[from] to kept[to - 1] */
	uint32_t to;
	char *kept; /* owned; NULL when everything was sent */
	struct conn *next_again;
	struct conn **link; /* what points here in the worker's list */
	struct conn *next;
};

struct worker {
	int listener; /* owned; -1 when draining */
	int drain_event;
	int epoll;
	int64_t retry_ns; /* out of files: the listener is off until then */
	bool draining;
	struct conn *conns;
	struct conn *again; /* stopped for fairness alone */
	char buf[BUF_SIZE];
};

/* Epoll events point at these, besides connections. */
static char listener_mark, drain_mark;

static void conn_free(struct worker *worker, struct conn *conn)
{
	struct conn **link;

	if (conn->again) {
		for (link = &worker->again; *link != conn;
		     link = &(*link)->next_again)
			; /* bounded by the connections */
		*link = conn->next_again;
	}
	*conn->link = conn->next;
	if (conn->next)
		conn->next->link = conn->link;
	socket_tls_end(conn->tls);
	close(conn->fd);
	free(conn->kept);
	free(conn);
}

static void conn_again(struct worker *worker, struct conn *conn)
{
	if (conn->again)
		return;
	conn->again = true;
	conn->next_again = worker->again;
	worker->again = conn;
}

/* Keeps what the socket did not take: 0 or -ENOMEM. */
static int conn_keep(struct conn *conn, const char *data, uint32_t len)
{
	conn->kept = malloc(len);
	if (!conn->kept)
		return -ENOMEM;
	memcpy(conn->kept, data, len);
	conn->from = 0;
	conn->to = len;
	return 0;
}

/* Sends `len` bytes, or keeps the rest: 0 or -errno. */
static int conn_send(struct conn *conn, const char *data, uint32_t len)
{
	ssize_t n = socket_tls_send(conn->tls, conn->fd, data, len);

	if (n == (ssize_t)len)
		return 0;
	if (n < 0 && n != -EAGAIN)
		return (int)n;
	if (n < 0)
		n = 0;
	return conn_keep(conn, data + n, len - (uint32_t)n);
}

/* Sends what was kept, as far as the socket takes it: 0 or -errno. */
static int conn_flush(struct conn *conn)
{
	ssize_t n;

	while (conn->from < conn->to) {
		n = socket_tls_send(conn->tls, conn->fd,
				    conn->kept + conn->from,
				    conn->to - conn->from);
		if (n < 0)
			return n == -EAGAIN ? 0 : (int)n;
		conn->from += (uint32_t)n;
	}
	free(conn->kept);
	conn->kept = NULL;
	return 0;
}

/*
 * Echoes what is there. Returns 1 if more may be there, and this has to be
 * called again; 0 if the next event reports it; -errno if the connection broke
 * or has ended: nothing has to be sent then, since nothing is kept while
 * reading.
 */
static int conn_echo(struct worker *worker, struct conn *conn, uint32_t events)
{
	ssize_t n;
	int round, err;

	for (round = 0; round < ROUNDS; round++) {
		n = socket_tls_recv(conn->tls, conn->fd, worker->buf, BUF_SIZE);
		if (n < 0)
			return n == -EAGAIN ? 0 : (int)n;
		if (n == 0)
			return -ESHUTDOWN;
		/* After our own FIN nothing can be sent: drop the bytes. */
		if (!conn->shut) {
			err = conn_send(conn, worker->buf, (uint32_t)n);
			if (err || conn->kept)
				return err;
		}
		/* A short read has emptied the socket, unless a FIN follows. */
		if (n < BUF_SIZE && !conn->tls && !(events & PEER_IS_DONE))
			return 0;
	}
	return 1;
}

/* Takes a connection as far as it goes now; frees it when it is over. */
static void conn_go_on(struct worker *worker, struct conn *conn,
		       uint32_t events)
{
	int result = 0;

	if (conn->greeting) {
		result = socket_tls_handshake(conn->tls);
		if (result == -EAGAIN && !worker->draining)
			return;
		conn->greeting = false;
		events |= EPOLLIN; /* what has followed the handshake */
	}
	if (conn->kept)
		result = conn_flush(conn);
	/* Events that came while bytes were kept are among these as well. */
	if (result == 0 && !conn->kept && (events & (EPOLLIN | PEER_IS_DONE)))
		result = conn_echo(worker, conn, events);
	if (result < 0) {
		conn_free(worker, conn);
		return;
	}
	if (result > 0) {
		conn_again(worker, conn);
		return;
	}
	if (worker->draining && !conn->kept && !conn->shut) {
		conn->shut = true;
		socket_tls_shut(conn->tls);
		shutdown(conn->fd, SHUT_WR);
	}
}

static void go_on_again(struct worker *worker)
{
	struct conn *list = worker->again, *conn;

	worker->again = NULL;
	while ((conn = list)) {
		list = conn->next_again;
		conn->again = false;
		conn_go_on(worker, conn, EPOLLIN | EPOLLRDHUP);
	}
}

/* Owns fd from here on. */
static void conn_new(struct worker *worker, int fd)
{
	struct epoll_event event = {.events = INTEREST};
	struct conn *conn = calloc(1, sizeof(*conn));

	if (!conn) {
		close(fd);
		return;
	}
	conn->fd = fd;
	conn->next = worker->conns;
	conn->link = &worker->conns;
	if (conn->next)
		conn->next->link = &conn->next;
	worker->conns = conn;
	event.data.ptr = conn;
	if (kernel_echo_tls) {
		conn->tls = socket_tls_new(kernel_echo_tls, fd, NULL, true);
		conn->greeting = true;
	}
	if ((kernel_echo_tls && !conn->tls) ||
	    epoll_ctl(worker->epoll, EPOLL_CTL_ADD, fd, &event))
		conn_free(worker, conn);
}

/* Turns the listener's events on or off. */
static void set_accepting(struct worker *worker, bool on)
{
	struct epoll_event event = {.events = on ? EPOLLIN : 0,
				    .data.ptr = &listener_mark};

	worker->retry_ns =
		on ? 0 : sys_now_ns() + KERNEL_ECHO_NO_FILES_MS * 1000000ll;
	epoll_ctl(worker->epoll, EPOLL_CTL_MOD, worker->listener, &event);
}

/*
 * Accepts a bounded number of connections; the listener is level-triggered, so
 * that epoll reports those that are left. Returns false when none is left.
 */
static bool accept_batch(struct worker *worker)
{
	int i, fd;

	for (i = 0; i < KERNEL_ECHO_ACCEPT_BATCH; i++) {
		fd = accept4(worker->listener, NULL, NULL,
			     SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			conn_new(worker, fd);
			continue;
		}
		/* Without free files epoll would report it for ever: pause. */
		if (KERNEL_ECHO_NO_FILES(errno))
			set_accepting(worker, false);
		if (errno != ECONNABORTED && errno != EINTR)
			return false;
	}
	return true;
}

/* Accept no more connections; those that wait for nothing are shut at once. */
static void start_draining(struct worker *worker)
{
	struct conn *conn, *next;

	worker->draining = true;
	epoll_ctl(worker->epoll, EPOLL_CTL_DEL, worker->drain_event, NULL);
	/* Connections that the kernel has accepted are served as well. */
	while (accept_batch(worker))
		; /* bounded by the backlog, and by the files */
	close(worker->listener);
	worker->listener = -1;
	for (conn = worker->conns; conn; conn = next) {
		next = conn->next;
		conn_go_on(worker, conn, EPOLLIN | EPOLLRDHUP);
	}
}

/* Milliseconds epoll may wait. */
static int time_to_wait(const struct worker *worker, int64_t drain_end_ns)
{
	int64_t left_ms;

	if (worker->again)
		return 0;
	if (worker->draining) {
		left_ms = (drain_end_ns - sys_now_ns()) / 1000000;
		return left_ms > 0 ? (int)left_ms : 0;
	}
	return worker->retry_ns ? KERNEL_ECHO_NO_FILES_MS : -1;
}

static void take_events(struct worker *worker, int wait_ms)
{
	struct epoll_event events[BATCH];
	bool drain = false;
	int count, i;
	void *what;

	count = epoll_wait(worker->epoll, events, BATCH, wait_ms);
	for (i = 0; i < count; i++) {
		what = events[i].data.ptr;
		if (what == &listener_mark)
			accept_batch(worker);
		else if (what == &drain_mark)
			drain = true;
		else
			conn_go_on(worker, what, events[i].events);
	}
	/* Last: it may free connections that later events point at. */
	if (drain)
		start_draining(worker);
}

static void run_worker(void *arg)
{
	struct worker *worker = arg;
	int64_t drain_end_ns = INT64_MAX;
	int wait_ms;

	while (!worker->draining || worker->conns) {
		wait_ms = time_to_wait(worker, drain_end_ns);
		if (worker->draining && sys_now_ns() >= drain_end_ns)
			break;
		take_events(worker, wait_ms);
		go_on_again(worker);
		if (worker->retry_ns && !worker->draining &&
		    sys_now_ns() >= worker->retry_ns)
			set_accepting(worker, true);
		if (worker->draining && drain_end_ns == INT64_MAX)
			drain_end_ns =
				sys_now_ns() + KERNEL_ECHO_DRAIN_MS * 1000000ll;
	}
	while (worker->conns)
		conn_free(worker, worker->conns);
}

static void worker_close(void *arg)
{
	struct worker *worker = arg;

	if (worker->listener >= 0)
		close(worker->listener);
	if (worker->epoll >= 0)
		close(worker->epoll);
	free(worker);
}

static int watch_fd(const struct worker *worker, int fd, void *mark)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = mark};

	return epoll_ctl(worker->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int worker_open(int listener, int drain_event, void **out)
{
	struct worker *worker = calloc(1, sizeof(*worker));
	int err = 0;

	if (!worker)
		return -ENOMEM;
	worker->listener = -1;
	worker->drain_event = drain_event;
	worker->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (worker->epoll < 0)
		err = -errno;
	if (err == 0)
		err = watch_fd(worker, listener, &listener_mark);
	if (err == 0)
		err = watch_fd(worker, drain_event, &drain_mark);
	if (err) {
		worker_close(worker);
		return err;
	}
	worker->listener = listener;
	*out = worker;
	return 0;
}

int main(int argc, char **argv)
{
	static const struct kernel_echo server = {
		.name = "epoll-echo",
		.doc = "TCP or UDP echo server on the kernel's sockets and "
		       "epoll.",
		.open = worker_open,
		.serve = run_worker,
		.close = worker_close,
		.udp = &datagram_echo,
	};

	return kernel_echo_main(&server, argc, argv);
}
