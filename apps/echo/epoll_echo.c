/*
 * epoll-echo: a TCP echo server on the kernel's stack, coronet-echo's twin.
 *
 * Written to win: each thread has a listener of its own (SO_REUSEPORT), one
 * edge-triggered epoll set, and one buffer for all its connections. A request
 * is one recv and one send. Only what a peer does not take is kept, in a buffer
 * allocated then; such a connection is not read from until that has gone, so
 * that a peer that never reads costs BUF_SIZE bytes and nothing more.
 *
 * The main thread waits for signals and for the others. Draining: no new
 * connection; what has arrived is still echoed, then each connection's sending
 * side is closed and the peer's end awaited, for DRAIN_MS at most.
 */
#include <argp.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "apps/common/epoll_shutdown.h"
#include "apps/common/epoll_threads.h"
#include "apps/common/opts.h"
#include "apps/common/sys.h"

#define BATCH	     256
#define BUF_SIZE     (64u << 10)
#define ROUNDS	     8 /* bufferfuls of one event, for fairness */
#define ACCEPT_BATCH 64
#define BACKLOG	     65535 /* the kernel lowers it to somaxconn */
#define DRAIN_MS     5000
#define NO_FILES_MS  100 /* until accept is tried again */
#define INTEREST     (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)
#define PEER_IS_DONE (EPOLLRDHUP | EPOLLHUP | EPOLLERR)

struct conn {
	int fd;
	bool shut;     /* draining: so have we */
	bool again;    /* in the worker's list of the same name */
	uint32_t from; /* what is kept: kept[from] to kept[to - 1] */
	uint32_t to;
	char *kept; /* owned; NULL when everything was sent */
	struct conn *next_again;
	struct conn **link; /* what points here in the worker's list */
	struct conn *next;
};

struct worker {
	pthread_t thread;
	int index;
	int listener;
	int epoll;
	int64_t retry_ns; /* out of files: the listener is off until then */
	bool draining;
	struct conn *conns;
	struct conn *again; /* stopped for fairness alone */
	char buf[BUF_SIZE];
};

static struct {
	struct opts_endpoint listen;
	const char *addr_text;
	uint16_t port;
	struct epoll_threads threads;
} config = {.addr_text = "0.0.0.0", .port = 7777};

static int drain_event = -1; /* readable from the first signal on */
static int done_event = -1;  /* counts the workers that have ended */

/* What epoll events point at, besides connections. */
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
	ssize_t n = send(conn->fd, data, len, MSG_NOSIGNAL);

	if (n == (ssize_t)len)
		return 0;
	if (n < 0 && errno != EAGAIN)
		return -errno;
	if (n < 0)
		n = 0;
	return conn_keep(conn, data + n, len - (uint32_t)n);
}

/* Sends what was kept, as far as the socket takes it: 0 or -errno. */
static int conn_flush(struct conn *conn)
{
	ssize_t n;

	while (conn->from < conn->to) {
		n = send(conn->fd, conn->kept + conn->from,
			 conn->to - conn->from, MSG_NOSIGNAL);
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		conn->from += (uint32_t)n;
	}
	free(conn->kept);
	conn->kept = NULL;
	return 0;
}

/*
 * Echoes what is there. Returns 1 when more may be, which is then to be asked
 * for again; 0 when the next event will tell; -errno when the connection broke,
 * or has come to its end: nothing is owed then, as nothing is kept while
 * reading.
 */
static int conn_echo(struct worker *worker, struct conn *conn, uint32_t events)
{
	ssize_t n;
	int round, err;

	for (round = 0; round < ROUNDS; round++) {
		n = recv(conn->fd, worker->buf, BUF_SIZE, 0);
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		if (n == 0)
			return -ESHUTDOWN;
		/* After our own end nothing can be sent: it is let go. */
		if (!conn->shut) {
			err = conn_send(conn, worker->buf, (uint32_t)n);
			if (err || conn->kept)
				return err;
		}
		/* A short read is the edge, unless the end hides behind it. */
		if (n < BUF_SIZE && !(events & PEER_IS_DONE))
			return 0;
	}
	return 1;
}

/* Takes a connection as far as it goes now; frees it when it is over. */
static void conn_go_on(struct worker *worker, struct conn *conn,
		       uint32_t events)
{
	int result = 0;

	if (conn->kept)
		result = conn_flush(conn);
	/* What came while something was kept is in these events as well. */
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
	if (epoll_ctl(worker->epoll, EPOLL_CTL_ADD, fd, &event))
		conn_free(worker, conn);
}

/* Turns the listener's events on or off. */
static void set_accepting(struct worker *worker, bool on)
{
	struct epoll_event event = {.events = on ? EPOLLIN : 0,
				    .data.ptr = &listener_mark};

	worker->retry_ns = on ? 0 : sys_now_ns() + NO_FILES_MS * 1000000ll;
	epoll_ctl(worker->epoll, EPOLL_CTL_MOD, worker->listener, &event);
}

/*
 * Accepts a bounded number of connections; the listener is level-triggered, so
 * that what is left is told of again. Returns false when none is left.
 */
static bool accept_batch(struct worker *worker)
{
	int i, fd;

	for (i = 0; i < ACCEPT_BATCH; i++) {
		fd = accept4(worker->listener, NULL, NULL,
			     SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			conn_new(worker, fd);
			continue;
		}
		/* Without files it would be told of for ever: a pause. */
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
		    errno == ENOMEM)
			set_accepting(worker, false);
		if (errno != ECONNABORTED && errno != EINTR)
			return false;
	}
	return true;
}

/* No more connections; those that wait for nothing are shut at once. */
static void start_draining(struct worker *worker)
{
	struct conn *conn, *next;

	worker->draining = true;
	epoll_ctl(worker->epoll, EPOLL_CTL_DEL, drain_event, NULL);
	/* What the kernel has already accepted for us is served as well. */
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
	return worker->retry_ns ? NO_FILES_MS : -1;
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

static void serve(struct worker *worker)
{
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
			drain_end_ns = sys_now_ns() + DRAIN_MS * 1000000ll;
	}
	while (worker->conns)
		conn_free(worker, worker->conns);
}

static void *worker_main(void *arg)
{
	struct worker *worker = arg;
	uint64_t one = 1;

	epoll_threads_pin(&config.threads, (uint32_t)worker->index);
	serve(worker);
	if (write(done_event, &one, sizeof(one)) != sizeof(one))
		abort();
	return NULL;
}

static int set_flag(int fd, int level, int flag)
{
	int on = 1;

	return setsockopt(fd, level, flag, &on, sizeof(on)) ? -errno : 0;
}

/*
 * A listening socket, the first or one more on the same port: its number or
 * -errno. With SO_REUSEPORT a second server would share the port unnoticed, so
 * the first listener is bound without it, and takes it once the port is ours.
 */
static int open_listener(bool first)
{
	const struct opts_endpoint *at = &config.listen;
	const struct sockaddr *addr = (const struct sockaddr *)&at->addr;
	int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
	int fd = socket(addr->sa_family, type, 0);
	int err;

	if (fd < 0)
		return -errno;
	err = set_flag(fd, SOL_SOCKET, first ? SO_REUSEADDR : SO_REUSEPORT);
	if (err == 0 && bind(fd, addr, at->addr_len))
		err = -errno;
	if (err == 0 && first)
		err = set_flag(fd, SOL_SOCKET, SO_REUSEPORT);
	if (err == 0) /* every connection inherits it */
		err = set_flag(fd, IPPROTO_TCP, TCP_NODELAY);
	if (err == 0 && listen(fd, BACKLOG))
		err = -errno;
	if (err == 0)
		return fd;
	close(fd);
	return err;
}

/* Port 0 has become a number: the other listeners want the same. */
static void learn_port(int listener)
{
	struct sockaddr_storage *addr = &config.listen.addr;
	struct sockaddr_in *in = (struct sockaddr_in *)addr;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)addr;
	socklen_t len = sizeof(*addr);

	getsockname(listener, (struct sockaddr *)addr, &len);
	config.listen.port = ntohs(addr->ss_family == AF_INET6 ? in6->sin6_port
							       : in->sin_port);
}

/* 0 or -errno; what was opened is left to worker_fini(). */
static int worker_init(struct worker *worker, int index)
{
	struct epoll_event event = {.events = EPOLLIN};

	worker->index = index;
	worker->epoll = -1;
	worker->listener = open_listener(index == 0);
	if (worker->listener < 0)
		return worker->listener;
	if (index == 0)
		learn_port(worker->listener);
	worker->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (worker->epoll < 0)
		return -errno;
	event.data.ptr = &listener_mark;
	if (epoll_ctl(worker->epoll, EPOLL_CTL_ADD, worker->listener, &event))
		return -errno;
	event.data.ptr = &drain_mark;
	if (epoll_ctl(worker->epoll, EPOLL_CTL_ADD, drain_event, &event))
		return -errno;
	return 0;
}

static void worker_fini(struct worker *worker)
{
	if (worker->listener >= 0)
		close(worker->listener);
	if (worker->epoll >= 0)
		close(worker->epoll);
}

static void announce(void)
{
	bool v6 = config.listen.addr.ss_family == AF_INET6;

	printf("listening on %s%s%s:%u\n", v6 ? "[" : "", config.listen.host,
	       v6 ? "]" : "", config.listen.port);
	fflush(stdout);
}

/* Starts the workers and waits for them: 0 or -errno. */
static int run(struct worker *workers, int signals)
{
	uint32_t i, started;
	uint64_t one = 1;
	int err = 0;

	for (started = 0; started < config.threads.n && err == 0; started++) {
		err = -pthread_create(&workers[started].thread, NULL,
				      worker_main, &workers[started]);
		if (err)
			break;
	}
	if (err == 0)
		announce();
	else if (write(drain_event, &one, sizeof(one)) < 0)
		_exit(1);
	shutdown_wait(signals, drain_event, done_event, started);
	for (i = 0; i < started; i++)
		pthread_join(workers[i].thread, NULL);
	return err;
}

static int serve_all(void)
{
	struct worker *workers = calloc(config.threads.n, sizeof(*workers));
	uint32_t i, ready = 0;
	int signals, err = 0;

	signals = shutdown_signals();
	drain_event = eventfd(0, EFD_CLOEXEC);
	done_event = eventfd(0, EFD_CLOEXEC);
	if (!workers || signals < 0 || drain_event < 0 || done_event < 0) {
		err = -errno;
		goto close_events;
	}
	while (ready < config.threads.n && err == 0) {
		err = worker_init(&workers[ready], (int)ready);
		ready++;
	}
	if (err == 0)
		err = run(workers, signals);
	for (i = 0; i < ready; i++)
		worker_fini(&workers[i]);
close_events:
	close(done_event);
	close(drain_event);
	close(signals);
	free(workers);
	return err;
}

enum { OPT_ADDR = 0x100, OPT_PORT };

static const struct argp_option options[] = {
	{"addr", OPT_ADDR, "ADDRESS", 0,
	 "Listen on this address (default 0.0.0.0; :: for IPv6 as well)", 0},
	{"port", OPT_PORT, "PORT", 0,
	 "Listen on this port (default 7777; 0 for any free one)", 0},
	{0},
};

/* What only shows when all options are known. */
static void check(const struct argp_state *state)
{
	if (opts_parse_address(config.addr_text, config.port, &config.listen))
		opts_refuse(state, "--addr", config.addr_text,
			    "an IPv4 or IPv6 address of this machine",
			    "--addr 0.0.0.0 or --addr ::");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case ARGP_KEY_INIT:
		opts_begin(state);
		state->child_inputs[0] = &config.threads;
		return 0;
	case OPT_ADDR:
		config.addr_text = arg;
		return 0;
	case OPT_PORT:
		config.port = (uint16_t)opts_number(state, "--port", arg, 0,
						    UINT16_MAX, "--port 7777");
		return 0;
	case ARGP_KEY_ARG:
		opts_refuse_argument(state, arg);
	case ARGP_KEY_END:
		check(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp_child children[] = {
		{&epoll_threads_argp, 0, NULL, 0},
		{0},
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.children = children,
		.doc = "Echoes what it receives, through the kernel's sockets "
		       "and epoll.",
	};
	int err;

	opts_set_version("epoll-echo");
	if (argp_parse(&argp, argc, argv, 0, NULL, NULL))
		return OPTS_EXIT_USAGE;
	sys_raise_files();
	err = serve_all();
	if (err == 0)
		return 0;
	fprintf(stderr, "epoll-echo: cannot listen on %s port %u: %s\n",
		config.addr_text, config.port, strerror(-err));
	return 1;
}
