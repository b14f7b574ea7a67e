/*
 * uring-echo: a TCP echo server on io_uring, the second twin of coronet-echo.
 *
 * Each thread has a listener (SO_REUSEPORT), a ring that defers completions
 * until the thread asks for them, and a pool of buffers. One multishot accept
 * serves the listener and one multishot receive each connection. Data is sent
 * from the buffers that it was received into. One io_uring_enter(2) submits all
 * requests that a batch of completions led to, and waits for the next batch.
 *
 * A connection has one send in flight, which keeps its bytes in order. A send
 * from the pool never waits for the peer (MSG_DONTWAIT), so slow peers cannot
 * keep the pool from the others: what the socket does not take is copied, and
 * the receive is cancelled until the copy has gone. It is also cancelled while
 * more than QUEUE buffers wait. So a peer that never reads costs the QUEUE and
 * what its receive brings before it ends: 32 buffers since Linux 6.10, before
 * that the pool at worst. A receive that finds the pool empty is armed again at
 * once, as the sends that hold the buffers end while they are submitted.
 *
 * There is no zero-copy send: on loopback and on a TAP the kernel copies such
 * data anyway, and posts a second completion.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "apps/echo/kernel_echo.h"

/* Tests build with a small ring and pool, and with the flags for Linux 6.0. */
#ifndef URING_BUFS
#define URING_SQ_ENTRIES 1024
#define URING_CQ_ENTRIES 8192
#define URING_BUFS	 1024 /* a power of two */
#define URING_BUF_SIZE	 16384
#endif
#ifndef URING_IOVS
#define URING_IOVS 32 /* buffers of one send */
#endif
#ifndef URING_TASKRUN
#define URING_TASKRUN IORING_SETUP_DEFER_TASKRUN
#endif

/* The low bits of user_data; the others point to the connection. */
enum op { OP_NONE, OP_ACCEPT, OP_DRAIN, OP_RECEIVE, OP_SEND };
#define OP_BITS UINT64_C(7)

#define QUEUE 64 /* buffers of a connection; more stop its receive */

struct conn {
	int fd;
	bool receiving; /* a receive is armed */
	bool sending;
	bool ended; /* nothing more will be received */
	bool shut;  /* nothing more can be sent: data is discarded */
	uint16_t first, last;
	uint32_t n_bufs, n_in_flight; /* in the pool; of these, being sent */
	char *kept;		      /* owned copy; n_bufs is 0 then */
	uint32_t kept_from, kept_to, kept_size;
	LIST_ENTRY(conn) link;
};

/* In pages of its own, populated: their first use causes no page faults. */
struct worker {
	struct io_uring_buf ring[URING_BUFS]; /* a struct io_uring_buf_ring */
	char pool[URING_BUFS][URING_BUF_SIZE];
	uint32_t len[URING_BUFS];  /* of a buffer's data */
	uint16_t next[URING_BUFS]; /* buffer of the same connection */
	struct {
		struct msghdr msg;
		struct iovec iovs[URING_IOVS];
	} gathers[URING_BUFS]; /* by a send's first buffer */
	struct io_uring uring;
	LIST_HEAD(, conn) conns;
	int listener; /* owned; -1 when no accept is left */
	int drain_event;
	bool draining, drained;
};

static int make_uring(struct io_uring *uring)
{
	/* Linux 6.0, the first with multishot receive, cannot defer. */
	const unsigned int setups[] = {URING_TASKRUN,
				       IORING_SETUP_COOP_TASKRUN};
	int err = -EINVAL;

	for (int i = 0; i < 2 && err == -EINVAL; i++) {
		struct io_uring_params params = {
			.flags = IORING_SETUP_SINGLE_ISSUER | setups[i] |
				 IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CQSIZE,
			.cq_entries = URING_CQ_ENTRIES,
		};
		err = io_uring_queue_init_params(URING_SQ_ENTRIES, uring,
						 &params);
	}
	return err;
}

static void check_fatal(const char *what, int err)
{
	if (err >= 0 || err == -EINTR || err == -EAGAIN || err == -EBUSY)
		return;
	fprintf(stderr, "uring-echo: %s: %s\n", what, strerror(-err));
	_exit(1);
}

static void submit_sqes(struct worker *worker, unsigned int n_wait)
{
	check_fatal("io_uring_enter",
		    io_uring_submit_and_wait(&worker->uring, n_wait));
}

/* An entry for one of io_uring_prep_*(), which leave user_data alone. */
static struct io_uring_sqe *new_entry(struct worker *worker, struct conn *conn,
				      enum op op)
{
	struct io_uring_sqe *sqe;

	/* A submission makes room, unless the kernel is out of memory. */
	while (!(sqe = io_uring_get_sqe(&worker->uring)))
		submit_sqes(worker, 0);
	io_uring_sqe_set_data64(sqe, (uintptr_t)conn | op);
	return sqe;
}

static void start_timer(struct worker *worker, enum op op,
			const struct __kernel_timespec *after)
{
	io_uring_prep_timeout(new_entry(worker, NULL, op), (void *)after, 0, 0);
}

static void buf_return(struct worker *worker, uint16_t id)
{
	struct io_uring_buf_ring *ring = (void *)worker->ring;

	io_uring_buf_ring_add(ring, worker->pool[id], URING_BUF_SIZE, id,
			      URING_BUFS - 1, 0);
	io_uring_buf_ring_advance(ring, 1);
}

static void conn_receive(struct worker *worker, struct conn *conn)
{
	struct io_uring_sqe *sqe = new_entry(worker, conn, OP_RECEIVE);

	io_uring_prep_recv_multishot(sqe, conn->fd, NULL, 0, 0);
	sqe->flags = IOSQE_BUFFER_SELECT;
	conn->receiving = true;
}

/* Owns fd from here on. */
static void conn_new(struct worker *worker, int fd)
{
	struct conn *conn = calloc(1, sizeof(*conn));

	if (!conn) {
		close(fd);
		return;
	}
	conn->fd = fd;
	LIST_INSERT_HEAD(&worker->conns, conn, link);
	conn_receive(worker, conn);
}

static void conn_free(struct conn *conn)
{
	LIST_REMOVE(conn, link);
	close(conn->fd);
	free(conn->kept);
	free(conn);
}

/* Makes all requests end. The copy, if any, is not being sent. */
static void conn_break(struct conn *conn)
{
	conn->shut = conn->ended = true;
	shutdown(conn->fd, SHUT_RDWR);
	free(conn->kept);
	conn->kept = NULL;
}

static void conn_keep(struct conn *conn, const char *data, uint32_t len)
{
	char *kept = conn->kept;

	if (conn->kept_to + len > conn->kept_size) {
		/* All buffers that wait follow, and some are to come. */
		conn->kept_size = 2 * (conn->kept_to + len +
				       conn->n_bufs * URING_BUF_SIZE);
		kept = realloc(conn->kept, conn->kept_size);
		if (!kept) {
			conn_break(conn);
			return;
		}
	}
	memcpy(kept + conn->kept_to, data, len);
	conn->kept = kept;
	conn->kept_to += len;
}

/* Returns n buffers, of which `sent` bytes have gone; the rest is kept. */
static void conn_return(struct worker *worker, struct conn *conn, uint32_t n,
			uint32_t sent)
{
	uint32_t len, part;
	uint16_t id;

	for (; n > 0; n--, sent -= part) {
		conn->n_bufs--;
		id = conn->first;
		conn->first = worker->next[id];
		len = worker->len[id];
		part = sent < len ? sent : len;
		if (part < len && !conn->shut)
			conn_keep(conn, worker->pool[id] + part, len - part);
		buf_return(worker, id);
	}
}

static void prep_gather(struct worker *worker, struct conn *conn,
			struct io_uring_sqe *sqe)
{
	struct msghdr *msg = &worker->gathers[conn->first].msg;
	struct iovec *iovs = worker->gathers[conn->first].iovs;
	uint16_t id = conn->first;
	uint32_t n;

	for (n = 0; n < URING_IOVS && n < conn->n_bufs; n++) {
		iovs[n] = (struct iovec){worker->pool[id], worker->len[id]};
		id = worker->next[id];
	}
	*msg = (struct msghdr){.msg_iov = iovs, .msg_iovlen = n};
	conn->n_in_flight = n;
	io_uring_prep_sendmsg(sqe, conn->fd, msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void conn_send(struct worker *worker, struct conn *conn)
{
	struct io_uring_sqe *sqe = new_entry(worker, conn, OP_SEND);

	conn->sending = true;
	conn->n_in_flight = conn->n_bufs;
	if (conn->n_bufs > 1)
		prep_gather(worker, conn, sqe);
	else if (conn->n_bufs == 1)
		io_uring_prep_send(sqe, conn->fd, worker->pool[conn->first],
				   worker->len[conn->first],
				   MSG_NOSIGNAL | MSG_DONTWAIT);
	else
		io_uring_prep_send(sqe, conn->fd, conn->kept + conn->kept_from,
				   conn->kept_to - conn->kept_from,
				   MSG_NOSIGNAL | MSG_WAITALL);
}

/* Decides what a connection does next; frees it when it is over. */
static void conn_go_on(struct worker *worker, struct conn *conn)
{
	/* After each completion, as a receive that is running may be missed. */
	if (conn->receiving && (conn->kept || conn->n_bufs > QUEUE))
		io_uring_prep_cancel64(new_entry(worker, NULL, OP_NONE),
				       (uintptr_t)conn | OP_RECEIVE, 0);
	if (conn->sending)
		return;
	/* Data must not overtake a copy, and is lost after our end. */
	if (conn->kept || conn->shut)
		conn_return(worker, conn, conn->n_bufs, 0);
	if (conn->n_bufs || (conn->kept && !conn->receiving))
		conn_send(worker, conn);
	else if (conn->ended && !conn->receiving)
		conn_free(conn);
	else if (!conn->receiving)
		conn_receive(worker, conn);
}

static void on_receive(struct worker *worker, struct conn *conn,
		       const struct io_uring_cqe *cqe)
{
	uint16_t id = (uint16_t)(cqe->flags >> IORING_CQE_BUFFER_SHIFT);

	conn->receiving = cqe->flags & IORING_CQE_F_MORE;
	if (cqe->flags & IORING_CQE_F_BUFFER) {
		worker->len[id] = cqe->res > 0 ? (uint32_t)cqe->res : 0;
		if (conn->n_bufs++ == 0)
			conn->first = id;
		else
			worker->next[conn->last] = id;
		conn->last = id;
	}
	if (cqe->res <= 0 && cqe->res != -ECANCELED && cqe->res != -ENOBUFS)
		conn->ended = true;
	conn_go_on(worker, conn);
}

static void on_send(struct worker *worker, struct conn *conn, int res)
{
	uint32_t sent = res > 0 ? (uint32_t)res : 0;

	conn->sending = false;
	if (res < 0 && res != -EAGAIN && res != -EINTR)
		conn_break(conn);
	if (conn->kept && (conn->kept_from += sent) == conn->kept_to) {
		free(conn->kept);
		conn->kept = NULL;
		conn->kept_from = conn->kept_to = conn->kept_size = 0;
	}
	conn_return(worker, conn, conn->n_in_flight, sent);
	conn_go_on(worker, conn);
}

static void start_accepting(struct worker *worker)
{
	io_uring_prep_multishot_accept(new_entry(worker, NULL, OP_ACCEPT),
				       worker->listener, NULL, NULL,
				       SOCK_CLOEXEC);
}

static void on_accept(struct worker *worker, const struct io_uring_cqe *cqe)
{
	static const struct __kernel_timespec pause = {
		.tv_nsec = KERNEL_ECHO_NO_FILES_MS * 1000000};

	if (cqe->res >= 0)
		conn_new(worker, cqe->res);
	if (cqe->flags & IORING_CQE_F_MORE)
		return;
	if (worker->draining) {
		close(worker->listener);
		worker->listener = -1;
	} else if (cqe->res >= 0 || cqe->res == -ETIME) {
		start_accepting(worker);
	} else { /* without files, for one, it would fail again at once */
		start_timer(worker, OP_ACCEPT, &pause);
	}
}

/* Comes twice: for the event, and when the time to drain is over. */
static void on_drain(struct worker *worker)
{
	static const struct __kernel_timespec limit = {
		.tv_sec = KERNEL_ECHO_DRAIN_MS / 1000};
	int fd;

	worker->drained = worker->draining;
	if (worker->drained)
		return;
	worker->draining = true;
	start_timer(worker, OP_DRAIN, &limit);
	/* Those the kernel has accepted are served: a backlog at most. */
	fcntl(worker->listener, F_SETFL, O_NONBLOCK);
	while ((fd = accept4(worker->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		conn_new(worker, fd);
	shutdown(worker->listener, SHUT_RDWR); /* ends the accept */
}

static void handle_cqe(struct worker *worker, const struct io_uring_cqe *cqe)
{
	struct conn *conn = (void *)(uintptr_t)(cqe->user_data & ~OP_BITS);

	switch ((enum op)(cqe->user_data & OP_BITS)) {
	case OP_NONE:
		break;
	case OP_ACCEPT:
		on_accept(worker, cqe);
		break;
	case OP_DRAIN:
		on_drain(worker);
		break;
	case OP_RECEIVE:
		on_receive(worker, conn, cqe);
		break;
	case OP_SEND:
		on_send(worker, conn, cqe->res);
		break;
	}
}

/* Draining: sends our end where everything that has arrived was echoed. */
static void shut_idle(struct worker *worker)
{
	struct conn *conn;
	int unread;

	LIST_FOREACH(conn, &worker->conns, link)
	{
		if (conn->shut || conn->sending || conn->kept ||
		    ioctl(conn->fd, SIOCINQ, &unread) || unread > 0)
			continue;
		/* The bytes may have been read and wait in a completion. */
		if (io_uring_cq_ready(&worker->uring) > 0 ||
		    io_uring_cq_has_overflow(&worker->uring))
			return;
		conn->shut = true;
		shutdown(conn->fd, SHUT_WR);
	}
}

static void begin_worker(struct worker *worker)
{
	struct io_uring_buf_reg reg = {
		.ring_addr = (uintptr_t)worker->ring,
		.ring_entries = URING_BUFS,
	};

	check_fatal("io_uring_setup", make_uring(&worker->uring));
	check_fatal("io_uring_register",
		    io_uring_register_buf_ring(&worker->uring, &reg, 0));
	/* Saves each io_uring_enter(2) a look into the file table. */
	check_fatal("io_uring_register",
		    io_uring_register_ring_fd(&worker->uring));
	for (uint32_t id = 0; id < URING_BUFS; id++)
		buf_return(worker, (uint16_t)id);
	start_accepting(worker);
	io_uring_prep_poll_add(new_entry(worker, NULL, OP_DRAIN),
			       worker->drain_event, POLLIN);
}

static void run_worker(void *arg)
{
	struct worker *worker = arg;
	struct io_uring_cqe *cqe;
	unsigned int head, n;

	begin_worker(worker);
	while (!worker->drained &&
	       (worker->listener >= 0 || !LIST_EMPTY(&worker->conns))) {
		submit_sqes(worker, 1);
		n = 0;
		io_uring_for_each_cqe(&worker->uring, head, cqe)
		{
			handle_cqe(worker, cqe);
			n++;
		}
		io_uring_cq_advance(&worker->uring, n);
		if (worker->draining)
			shut_idle(worker);
	}
	io_uring_queue_exit(&worker->uring);
}

static void worker_close(void *arg)
{
	struct worker *worker = arg;

	while (!LIST_EMPTY(&worker->conns))
		conn_free(LIST_FIRST(&worker->conns));
	if (worker->listener >= 0)
		close(worker->listener);
	munmap(worker, sizeof(*worker));
}

static int worker_open(int listener, int drain_event, void **out)
{
	struct worker *worker =
		mmap(NULL, sizeof(*worker), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (worker == MAP_FAILED)
		return -ENOMEM;
	worker->drain_event = drain_event;
	worker->listener = listener;
	/* The ring waits; a non-blocking listener might make it fail. */
	fcntl(listener, F_SETFL, 0);
	*out = worker;
	return 0;
}

static const char *way_out(int err)
{
	if (err == -EINVAL)
		return "uring-echo needs Linux 6.0 or later";
	if (err == -ENOMEM)
		return "raise the limit of locked memory (ulimit -l)";
	return "run sysctl kernel.io_uring_disabled=0 as root, and allow "
	       "io_uring_setup, io_uring_enter and io_uring_register in the "
	       "seccomp profile of the container or service";
}

static int check_uring(void)
{
	struct io_uring uring;
	int err = make_uring(&uring);

	if (err == 0)
		io_uring_queue_exit(&uring);
	else
		fprintf(stderr,
			"uring-echo: the kernel refuses io_uring: %s; %s\n",
			strerror(-err), way_out(err));
	return err;
}

int main(int argc, char **argv)
{
	static const struct kernel_echo server = {
		.name = "uring-echo",
		.doc = "TCP echo server on the kernel's sockets and io_uring.",
		.check = check_uring,
		.open = worker_open,
		.serve = run_worker,
		.close = worker_close,
	};

	return kernel_echo_main(&server, argc, argv);
}
