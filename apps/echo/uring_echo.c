/*
 * uring-echo: a TCP echo server on io_uring, the second twin of coronet-echo.
 *
 * Written to win: each thread has a listener (SO_REUSEPORT) and a ring of its
 * own that defers completions until the thread asks for them. One multishot
 * accept serves the listener and one multishot receive each connection, out of
 * a pool of buffers that they share. What was received is sent from where it
 * lies, and the buffer returns to the pool when the send has completed. One
 * io_uring_enter(2) submits all that a batch of completions led to, and waits
 * for the next.
 *
 * A connection has one send in flight, which keeps its bytes in order; it takes
 * all buffers that wait. A send from the pool does not wait for the peer
 * (MSG_DONTWAIT), so that slow peers cannot keep the pool from the others: what
 * a socket does not take is copied, and the connection is not received from
 * until that has gone. Nor is one received from that has many buffers waiting,
 * which would leave none to the others. So a peer that never reads costs the
 * QUEUE and what its receive brought before it was stopped (some 32 buffers on
 * recent kernels, the pool at worst), and nothing more.
 *
 * There is no zero-copy send. The kernel copies such data after all where it
 * stays on the machine, on loopback and a TAP alike, and pins pages and posts a
 * second completion besides.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "apps/common/sys.h"
#include "apps/echo/kernel_echo.h"
#include "apps/echo/uring_queue.h"
#include "apps/echo/uring_ring.h"

#define BATCH	256 /* completions between two submissions */
#define IOVECS	32  /* buffers of one send */
#define QUEUE	64  /* of a connection; more stop its receive */
#define GATHERS 256 /* sends of several buffers in one submission */

/* What a completion's user_data says, beside the connection it points to. */
enum op { OP_NONE, OP_ACCEPT, OP_DRAIN, OP_RECEIVE, OP_STOP, OP_SEND };
#define OP_BITS UINT64_C(7) /* an allocation's lowest bits are free */

struct conn {
	int fd;
	bool receiving;	    /* a multishot receive is armed */
	bool stop;	    /* it has been told to end */
	bool stopping;	    /* that request has not completed */
	bool sending;	    /* a send has not completed */
	bool ended;	    /* the peer's end has come */
	bool broken;	    /* to be freed as soon as no request is left */
	bool cut;	    /* broken: the socket has been shut down */
	bool shut;	    /* draining: our end has been sent */
	uint32_t in_flight; /* of the queue's buffers, in the current send */
	struct uring_queue queue;
	struct conns *list; /* that it waits in, or NULL */
	TAILQ_ENTRY(conn) all, waiting;
};

TAILQ_HEAD(conns, conn);

struct gather {
	struct msghdr msg;
	struct iovec iov[IOVECS];
};

struct worker {
	struct uring_ring ring;
	int listener; /* owned; -1 when draining has closed it */
	int drain_event;
	bool accepting; /* a multishot accept is armed */
	bool draining;
	int64_t retry_ns;     /* out of files: accept is armed again then */
	int64_t drain_end_ns; /* when draining */
	struct conns conns;
	struct conns starved; /* to be armed when there are buffers */
	struct conns settled; /* draining: perhaps everything is echoed */
	uint32_t n_gathers;   /* in what has not been submitted */
	struct gather gathers[GATHERS];
};

static void conn_go_on(struct worker *worker, struct conn *conn);

__attribute__((noreturn)) static void die(const char *what, int err)
{
	fprintf(stderr, "uring-echo: %s: %s\n", what, strerror(-err));
	_exit(1);
}

/* What was submitted has been read: its sends' descriptions are free again. */
static void after_submit(struct worker *worker, int err)
{
	if (err < 0 && err != -EINTR && err != -ETIME && err != -EAGAIN &&
	    err != -EBUSY)
		die("io_uring_enter", err);
	if (io_uring_sq_ready(&worker->ring.uring) == 0)
		worker->n_gathers = 0;
}

/* An entry to fill in; NULL if the kernel takes none now, for want of memory.
 */
static struct io_uring_sqe *new_entry(struct worker *worker)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&worker->ring.uring);

	if (sqe)
		return sqe;
	after_submit(worker, io_uring_submit(&worker->ring.uring));
	return io_uring_get_sqe(&worker->ring.uring);
}

/* After io_uring_prep_*(), which clears it. */
static void set_op(struct io_uring_sqe *sqe, void *conn, enum op op)
{
	io_uring_sqe_set_data64(sqe, (uintptr_t)conn | op);
}

/* Puts a connection into one of the lists, or with NULL into none. */
static void conn_wait(struct conn *conn, struct conns *list)
{
	if (conn->list == list)
		return;
	if (conn->list)
		TAILQ_REMOVE(conn->list, conn, waiting);
	conn->list = list;
	if (list)
		TAILQ_INSERT_TAIL(list, conn, waiting);
}

/* No request of the connection is left. */
static void conn_free(struct worker *worker, struct conn *conn)
{
	struct io_uring_sqe *sqe = new_entry(worker);

	uring_queue_clear(&conn->queue, &worker->ring);
	conn_wait(conn, NULL);
	TAILQ_REMOVE(&worker->conns, conn, all);
	if (sqe) {
		io_uring_prep_close(sqe, conn->fd);
		io_uring_sqe_set_flags(sqe, IOSQE_CQE_SKIP_SUCCESS);
		set_op(sqe, NULL, OP_NONE);
	} else {
		close(conn->fd);
	}
	free(conn);
}

/* Ends a broken connection as soon as its requests have. */
static void conn_drop(struct worker *worker, struct conn *conn)
{
	if (!conn->sending)
		uring_queue_clear(&conn->queue, &worker->ring);
	if (!conn->receiving && !conn->sending && !conn->stopping) {
		conn_free(worker, conn);
		return;
	}
	conn_wait(conn, NULL);
	if (!conn->cut)
		shutdown(conn->fd, SHUT_RDWR);
	conn->cut = true;
}

static void conn_receive(struct worker *worker, struct conn *conn)
{
	struct io_uring_sqe *sqe = new_entry(worker);

	if (!sqe) {
		conn_wait(conn, &worker->starved);
		return;
	}
	io_uring_prep_recv_multishot(sqe, conn->fd, NULL, 0, 0);
	io_uring_sqe_set_flags(sqe, IOSQE_BUFFER_SELECT);
	sqe->buf_group = 0;
	set_op(sqe, conn, OP_RECEIVE);
	conn->receiving = true;
	conn->stop = false;
}

/* Until what waits to be sent has gone nothing more is received. */
static void conn_stop(struct worker *worker, struct conn *conn)
{
	struct io_uring_sqe *sqe = new_entry(worker);

	if (!sqe) {
		conn->broken = true;
		return;
	}
	io_uring_prep_cancel64(sqe, (uintptr_t)conn | OP_RECEIVE, 0);
	set_op(sqe, conn, OP_STOP);
	conn->stop = true;
	conn->stopping = true;
}

/* Fills in a send of several buffers of the pool. */
static void prepare_gather(struct worker *worker, struct conn *conn,
			   struct io_uring_sqe *sqe)
{
	struct gather *gather = &worker->gathers[worker->n_gathers++];
	uint16_t id = conn->queue.first;
	uint32_t n;

	for (n = 0; n < IOVECS && n < conn->queue.n_bufs; n++) {
		gather->iov[n].iov_base = uring_buf(&worker->ring, id);
		gather->iov[n].iov_len = worker->ring.buf_len[id];
		id = worker->ring.next_buf[id];
	}
	gather->msg = (struct msghdr){.msg_iov = gather->iov, .msg_iovlen = n};
	conn->in_flight = n;
	io_uring_prep_sendmsg(sqe, conn->fd, &gather->msg,
			      MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Sends what is kept, or else what lies in the pool. */
static void conn_send(struct worker *worker, struct conn *conn)
{
	struct io_uring_sqe *sqe = new_entry(worker);
	struct uring_piece *piece = conn->queue.kept;

	if (!sqe) {
		conn->broken = true;
		conn_drop(worker, conn);
		return;
	}
	if (piece) {
		conn->in_flight = 0;
		io_uring_prep_send(sqe, conn->fd, piece->data + piece->from,
				   piece->to - piece->from,
				   MSG_NOSIGNAL | MSG_WAITALL);
	} else if (conn->queue.n_bufs > 1 && worker->n_gathers < GATHERS) {
		prepare_gather(worker, conn, sqe);
	} else {
		conn->in_flight = 1;
		io_uring_prep_send(sqe, conn->fd,
				   uring_buf(&worker->ring, conn->queue.first),
				   worker->ring.buf_len[conn->queue.first],
				   MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	set_op(sqe, conn, OP_SEND);
	conn->sending = true;
}

/* Decides what a connection does next; frees it when it is over. */
static void conn_go_on(struct worker *worker, struct conn *conn)
{
	if (!conn->broken && conn->receiving && !conn->stop &&
	    (conn->queue.kept || conn->queue.n_bufs > QUEUE))
		conn_stop(worker, conn);
	if (conn->broken) {
		conn_drop(worker, conn);
		return;
	}
	if (conn->sending)
		return;
	if (!uring_queue_empty(&conn->queue)) {
		conn_send(worker, conn);
		return;
	}
	if (conn->ended) {
		if (!conn->stopping)
			conn_free(worker, conn);
		return;
	}
	if (!conn->receiving && conn->list != &worker->starved)
		conn_receive(worker, conn);
	if (worker->draining && !conn->shut && conn->list != &worker->starved)
		conn_wait(conn, &worker->settled);
}

/* Takes a buffer that the kernel has filled with len bytes. */
static void conn_take(struct worker *worker, struct conn *conn, uint16_t id,
		      int len)
{
	worker->ring.lent++;
	/* After our own end nothing can be sent: it is let go. */
	if (len <= 0 || conn->shut || conn->broken)
		uring_buf_return(&worker->ring, id);
	else if (uring_queue_push(&conn->queue, &worker->ring, id,
				  (uint32_t)len))
		conn->broken = true;
}

static void on_receive(struct worker *worker, struct conn *conn,
		       const struct io_uring_cqe *cqe)
{
	if (!(cqe->flags & IORING_CQE_F_MORE))
		conn->receiving = false;
	if (cqe->flags & IORING_CQE_F_BUFFER)
		conn_take(worker, conn, cqe->flags >> IORING_CQE_BUFFER_SHIFT,
			  cqe->res);
	if (cqe->res == 0)
		conn->ended = true;
	else if (cqe->res == -ENOBUFS)
		conn_wait(conn, &worker->starved);
	else if (cqe->res < 0 && cqe->res != -ECANCELED && cqe->res != -EINTR)
		conn->broken = true;
	conn_go_on(worker, conn);
}

static void on_send(struct worker *worker, struct conn *conn, int res)
{
	conn->sending = false;
	if (res == -EAGAIN || res == -EINTR)
		res = 0;
	if (res < 0)
		conn->broken = true;
	else if (!conn->in_flight)
		uring_queue_kept_sent(&conn->queue, (uint32_t)res);
	else if (uring_queue_sent(&conn->queue, &worker->ring, conn->in_flight,
				  (uint32_t)res))
		conn->broken = true;
	conn_go_on(worker, conn);
}

static void on_stop(struct worker *worker, struct conn *conn, int res)
{
	conn->stopping = false;
	/* The kernel did not find it: if it has not ended, once more. */
	if (res < 0)
		conn->stop = false;
	conn_go_on(worker, conn);
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
	uring_queue_init(&conn->queue);
	TAILQ_INSERT_TAIL(&worker->conns, conn, all);
	conn_go_on(worker, conn);
}

static void accept_later(struct worker *worker)
{
	worker->retry_ns =
		sys_now_ns() + KERNEL_ECHO_NO_FILES_MS * INT64_C(1000000);
}

static void start_accepting(struct worker *worker)
{
	struct io_uring_sqe *sqe = new_entry(worker);

	worker->retry_ns = 0;
	if (!sqe) {
		accept_later(worker);
		return;
	}
	io_uring_prep_multishot_accept(sqe, worker->listener, NULL, NULL,
				       SOCK_CLOEXEC);
	set_op(sqe, NULL, OP_ACCEPT);
	worker->accepting = true;
}

/* Draining: what the kernel has already accepted for us is served as well. */
static void close_listener(struct worker *worker)
{
	int fd;

	fcntl(worker->listener, F_SETFL, O_NONBLOCK);
	/* Bounded by the backlog, and by the files. */
	while ((fd = accept4(worker->listener, NULL, NULL, SOCK_CLOEXEC)) >=
		       0 ||
	       errno == ECONNABORTED || errno == EINTR)
		if (fd >= 0)
			conn_new(worker, fd);
	close(worker->listener);
	worker->listener = -1;
}

static void on_accept(struct worker *worker, const struct io_uring_cqe *cqe)
{
	if (cqe->res >= 0)
		conn_new(worker, cqe->res);
	if (cqe->flags & IORING_CQE_F_MORE)
		return;
	worker->accepting = false;
	if (worker->draining)
		close_listener(worker);
	else if (cqe->res >= 0 || cqe->res == -ECONNABORTED ||
		 cqe->res == -EINTR)
		start_accepting(worker);
	else /* without files, for one, it would fail for ever: a pause */
		accept_later(worker);
}

/* The drain event stays readable, so this happens once. */
static void start_draining(struct worker *worker)
{
	struct io_uring_sqe *sqe;
	struct conn *conn;

	worker->draining = true;
	worker->drain_end_ns =
		sys_now_ns() + KERNEL_ECHO_DRAIN_MS * INT64_C(1000000);
	TAILQ_FOREACH(conn, &worker->conns, all)
	if (!conn->list)
		conn_wait(conn, &worker->settled);
	if (!worker->accepting) {
		close_listener(worker);
		return;
	}
	sqe = new_entry(worker);
	if (!sqe)
		die("io_uring_submit", -ENOMEM);
	io_uring_prep_cancel64(sqe, OP_ACCEPT, 0);
	set_op(sqe, NULL, OP_NONE);
}

static void complete(struct worker *worker, const struct io_uring_cqe *cqe)
{
	struct conn *conn = (void *)(uintptr_t)(cqe->user_data & ~OP_BITS);

	switch ((enum op)(cqe->user_data & OP_BITS)) {
	case OP_NONE:
		break;
	case OP_ACCEPT:
		on_accept(worker, cqe);
		break;
	case OP_DRAIN:
		start_draining(worker);
		break;
	case OP_RECEIVE:
		on_receive(worker, conn, cqe);
		break;
	case OP_STOP:
		on_stop(worker, conn, cqe->res);
		break;
	case OP_SEND:
		on_send(worker, conn, cqe->res);
		break;
	}
}

/* Whether completions wait, which may bring what a look at a socket misses. */
static bool completions_wait(struct worker *worker)
{
	return io_uring_cq_ready(&worker->ring.uring) > 0 ||
	       io_uring_cq_has_overflow(&worker->ring.uring);
}

/* Draining: sends our end where everything that has arrived was echoed. */
static void settle(struct worker *worker)
{
	struct conn *conn;
	int unread;

	if (worker->listener >= 0)
		return;
	while ((conn = TAILQ_FIRST(&worker->settled))) {
		if (conn->sending || !uring_queue_empty(&conn->queue) ||
		    conn->broken || ioctl(conn->fd, SIOCINQ, &unread) ||
		    unread > 0) {
			/* It comes back when that has been dealt with. */
			conn_wait(conn, NULL);
			continue;
		}
		if (completions_wait(worker))
			return;
		conn_wait(conn, NULL);
		conn->shut = true;
		shutdown(conn->fd, SHUT_WR);
	}
}

/* Arms receives that found no buffer, no more than there are buffers now. */
static void feed_starved(struct worker *worker)
{
	uint32_t n = URING_BUFS - worker->ring.lent;
	struct conn *conn;

	for (; n > 0 && (conn = TAILQ_FIRST(&worker->starved)); n--) {
		conn_wait(conn, NULL);
		conn_go_on(worker, conn);
	}
}

/*
 * Submits, and waits for a completion or for a time to come. It does not wait
 * while there are both buffers and receives without one: those armed last may
 * have nothing to receive, and so bring no completion, after which the next
 * would be armed.
 */
static void submit_and_wait(struct worker *worker)
{
	struct io_uring *uring = &worker->ring.uring;
	struct __kernel_timespec ts;
	struct io_uring_cqe *cqe;
	int64_t until_ns =
		worker->draining ? worker->drain_end_ns : worker->retry_ns;
	int64_t left_ns;

	if (!TAILQ_EMPTY(&worker->starved) && worker->ring.lent < URING_BUFS) {
		after_submit(worker, io_uring_submit(uring));
		return;
	}
	if (until_ns == 0) {
		after_submit(worker, io_uring_submit_and_wait(uring, 1));
		return;
	}
	left_ns = until_ns - sys_now_ns();
	if (left_ns < 0)
		left_ns = 0;
	ts = (struct __kernel_timespec){.tv_sec = left_ns / 1000000000,
					.tv_nsec = left_ns % 1000000000};
	after_submit(worker, io_uring_submit_and_wait_timeout(uring, &cqe, 1,
							      &ts, NULL));
}

static void take_completions(struct worker *worker)
{
	struct io_uring_cqe *cqes[BATCH];
	unsigned int n, i;

	n = io_uring_peek_batch_cqe(&worker->ring.uring, cqes, BATCH);
	for (i = 0; i < n; i++)
		complete(worker, cqes[i]);
	io_uring_cq_advance(&worker->ring.uring, n);
	uring_bufs_flush(&worker->ring);
	feed_starved(worker);
	if (worker->draining)
		settle(worker);
}

static void begin(struct worker *worker)
{
	struct io_uring_sqe *sqe;
	int err = uring_ring_begin(&worker->ring);

	if (err)
		die("cannot make a ring", err);
	start_accepting(worker);
	sqe = new_entry(worker);
	if (!sqe)
		die("io_uring_submit", -ENOMEM);
	io_uring_prep_poll_add(sqe, worker->drain_event, POLLIN);
	set_op(sqe, NULL, OP_DRAIN);
}

static void serve(void *arg)
{
	struct worker *worker = arg;
	int64_t now_ns;

	begin(worker);
	while (!worker->draining || worker->listener >= 0 ||
	       !TAILQ_EMPTY(&worker->conns)) {
		submit_and_wait(worker);
		take_completions(worker);
		if (!worker->draining && !worker->retry_ns)
			continue;
		now_ns = sys_now_ns();
		if (worker->draining && now_ns >= worker->drain_end_ns)
			break;
		if (worker->retry_ns && !worker->draining &&
		    now_ns >= worker->retry_ns)
			start_accepting(worker);
	}
	uring_ring_end(&worker->ring);
}

static void worker_close(void *arg)
{
	struct worker *worker = arg;
	struct conn *conn;

	while ((conn = TAILQ_FIRST(&worker->conns))) {
		TAILQ_REMOVE(&worker->conns, conn, all);
		uring_queue_clear(&conn->queue, &worker->ring);
		close(conn->fd);
		free(conn);
	}
	if (worker->listener >= 0)
		close(worker->listener);
	uring_pool_close(&worker->ring);
	free(worker);
}

static int worker_open(int listener, int drain_event, void **out)
{
	struct worker *worker = calloc(1, sizeof(*worker));
	int err;

	if (!worker)
		return -ENOMEM;
	err = uring_pool_open(&worker->ring);
	if (err) {
		free(worker);
		return err;
	}
	TAILQ_INIT(&worker->conns);
	TAILQ_INIT(&worker->starved);
	TAILQ_INIT(&worker->settled);
	worker->drain_event = drain_event;
	worker->listener = listener;
	/* The ring waits; a non-blocking listener might have it fail instead.
	 */
	fcntl(listener, F_SETFL, 0);
	*out = worker;
	return 0;
}

static int check(void)
{
	return uring_check("uring-echo");
}

int main(int argc, char **argv)
{
	static const struct kernel_echo server = {
		.name = "uring-echo",
		.doc = "Echoes what it receives, through the kernel's sockets "
		       "and io_uring.",
		.check = check,
		.open = worker_open,
		.serve = serve,
		.close = worker_close,
	};

	return kernel_echo_main(&server, argc, argv);
}
