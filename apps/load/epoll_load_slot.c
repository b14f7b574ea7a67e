/*
 * A connection of epoll-load: connecting, asking, reading answers, failing.
 */
#include "apps/load/epoll_load_priv.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "apps/common/sys.h"
#include "apps/load/payload.h"

#define BULK_ROUNDS  4	 /* sends or recvs of one event, for fairness */
#define SOURCES	     128 /* loopback addresses to connect from */
#define INTEREST     (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)
#define PEER_IS_DONE (EPOLLRDHUP | EPOLLHUP | EPOLLERR)

static void slot_close(struct slot *slot)
{
	socket_tls_end(slot->tls);
	slot->tls = NULL;
	/* Closing takes the socket out of the epoll set. */
	close(slot->fd);
	if (slot->state == SLOT_CONNECTING)
		slot->worker->connecting--;
	else
		load_stats_closed(&slot->worker->stats);
	slot->fd = -1;
	slot->state = SLOT_CLOSED;
}

/* A failed slot comes back after a while, except in idle mode. */
void slot_fail(struct slot *slot, enum load_error kind, int64_t now_ns)
{
	load_stats_error(&slot->worker->stats, kind);
	if (slot->fd >= 0)
		slot_close(slot);
	slot->reopen_ns = load.opts.mode == LOAD_IDLE ? INT64_MAX
						      : now_ns + LOAD_RETRY_NS;
}

/*
 * The bytes to send next: any, those of this offset if they are verified, or
 * the rest of a request of HTTP.
 */
static const char *slot_payload(const struct slot *slot, size_t len)
{
	if (load.opts.http_path)
		return slot->worker->to_send + slot->sent;
	if (load.opts.verify)
		payload_fill(slot->worker->to_send, len, slot->seed,
			     slot->sent_at);
	return slot->worker->to_send;
}

static size_t limit_len(size_t len, size_t limit)
{
	return len < limit ? len : limit;
}

/* Sends what the socket takes of `len` bytes: a count or -errno. */
static ssize_t slot_send(struct slot *slot, size_t len)
{
	ssize_t n;

	len = limit_len(len, LOAD_BUF_SIZE);
	n = socket_tls_send(slot->tls, slot->fd, slot_payload(slot, len), len);
	if (n < 0)
		return n;
	slot->sent_at += (uint64_t)n;
	return n;
}

/* Receives and checks what is there: a count, 0 at the end, or -errno. */
static ssize_t slot_receive(struct slot *slot)
{
	char *received = slot->worker->received;
	ssize_t n =
		socket_tls_recv(slot->tls, slot->fd, received, LOAD_BUF_SIZE);

	if (n <= 0)
		return n;
	if (load.opts.verify && payload_check(received, (size_t)n, slot->seed,
					      slot->arrived_at) != (size_t)n)
		return -EBADMSG;
	slot->arrived_at += (uint64_t)n;
	return n;
}

static enum load_error error_of(ssize_t result)
{
	if (result == 0)
		return LOAD_CLOSED;
	return result == -EBADMSG ? LOAD_VERIFY : load_error_of((int)result);
}

/* Sends the rest of the request. False when the slot failed. */
static bool slot_push(struct slot *slot, int64_t now_ns)
{
	ssize_t n;

	while (slot->sent < load.opts.size) {
		n = slot_send(slot, load.opts.size - slot->sent);
		if (n == -EAGAIN)
			break;
		if (n < 0) {
			slot_fail(slot, error_of(n), now_ns);
			return false;
		}
		slot->sent += (uint32_t)n;
	}
	return true;
}

static void slot_ask(struct slot *slot, int64_t begun_ns, int64_t now_ns)
{
	slot->state = SLOT_ASKED;
	slot->sent = 0;
	slot->received = 0;
	slot->answer = (struct http_answer){0};
	slot->begun_ns = begun_ns;
	slot->since_ns = now_ns;
	slot_push(slot, now_ns);
}

static void slot_answered(struct slot *slot)
{
	int64_t now_ns = sys_now_ns();

	slot->state = SLOT_READY;
	if (load.opts.mode != LOAD_IDLE)
		load_stats_request(&slot->worker->stats,
				   now_ns - slot->begun_ns);
	if (load.opts.mode == LOAD_CPS)
		slot_close(slot);
	slot_is_free(slot, now_ns);
}

/*
 * Takes n received bytes as part of an answer. Returns 1 if it is whole, 0, or
 * -EBADMSG: it is wrong, or more than was asked for.
 */
static int take_answer(struct slot *slot, size_t n)
{
	struct worker *worker = slot->worker;

	if (slot->state != SLOT_ASKED)
		return -EBADMSG;
	if (load.opts.http_path) {
		load_stats_bytes(&worker->stats, n);
		return http_answer_take(&slot->answer, worker->received, n);
	}
	if (n > load.opts.size - slot->received)
		return -EBADMSG;
	slot->received += (uint32_t)n;
	return slot->received == load.opts.size;
}

/* Reads an answer. Stops when it is whole, or when no more is there. */
static void slot_pull(struct slot *slot, uint32_t events, int64_t now_ns)
{
	ssize_t n;
	int rc;

	do {
		n = slot_receive(slot);
		if (n == -EAGAIN)
			return;
		rc = n > 0 ? take_answer(slot, (size_t)n) : (int)n;
		if (n == 0 || rc < 0) {
			slot_fail(slot, error_of(rc), now_ns);
			return;
		}
		if (rc > 0) {
			slot_answered(slot);
			/* That may have closed the socket, or replaced it. */
			if (load.opts.mode == LOAD_CPS || slot->fd < 0)
				return;
		}
		/* A short read has emptied the socket, unless a FIN follows. */
	} while (n == LOAD_BUF_SIZE || slot->tls || (events & PEER_IS_DONE));
}

static void bulk_again(struct slot *slot)
{
	struct worker *worker = slot->worker;

	if (slot->again)
		return;
	slot->again = true;
	worker->again[worker->again_count++] = slot;
}

void slot_stream(struct slot *slot, int64_t now_ns)
{
	bool can_send = true, can_receive = true;
	ssize_t n;
	int round;

	for (round = 0; round < BULK_ROUNDS; round++) {
		if (can_receive) {
			n = slot_receive(slot);
			can_receive = n > 0;
			if (n <= 0 && n != -EAGAIN)
				goto fail;
			if (n > 0) {
				load_stats_bytes(&slot->worker->stats,
						 (uint64_t)n);
				slot->since_ns = now_ns;
			}
		}
		if (can_send) {
			n = slot_send(slot, load.opts.size);
			can_send = n > 0;
			if (n < 0 && n != -EAGAIN)
				goto fail;
		}
		if (!can_receive && !can_send)
			return;
	}
	bulk_again(slot);
	return;
fail:
	slot_fail(slot, error_of(n), now_ns);
}

/* Called when the handshakes are done. */
static void slot_opened(struct slot *slot, int64_t now_ns)
{
	struct worker *worker = slot->worker;

	worker->connecting--;
	slot->state = SLOT_READY;
	slot->arrived_at = slot->sent_at;
	load_stats_opened(&worker->stats, now_ns - slot->since_ns);
	if (is_open_loop() && !slot->was_open && load.opts.mode != LOAD_CPS)
		load_pace_start(&slot->pace, &worker->stats, slot_index(slot),
				now_ns);
	if (load.opts.mode == LOAD_CPS)
		slot_ask(slot, slot->begun_ns, now_ns);
	else if (load.opts.mode == LOAD_IDLE && load.opts.verify)
		slot_ask(slot, now_ns, now_ns);
	else
		slot_is_free(slot, now_ns);
	slot->was_open = true;
}

/* TCP is connected: goes on with TLS, if there is to be any. */
static void slot_connected(struct slot *slot, int64_t now_ns)
{
	int err;

	if (load.tls && !slot->tls)
		slot->tls = socket_tls_new(load.tls, slot->fd,
					   load.opts.tls_name, false);
	err = load.tls && !slot->tls ? -ENOMEM : 0;
	if (slot->tls)
		err = socket_tls_handshake(slot->tls);
	if (err == -EAGAIN)
		return;
	if (err)
		slot_fail(slot, load_error_of(err), now_ns);
	else
		slot_opened(slot, now_ns);
}

/*
 * One address has 28,000 ports, and a closed connection keeps its port for a
 * while: with many connects the kernel soon spends its time looking for a free
 * one. The loopback network has addresses enough to take turns.
 */
static void choose_source(struct worker *worker, int fd)
{
	const struct sockaddr_in *to =
		(const struct sockaddr_in *)&load.opts.target.addr;
	struct sockaddr_in from = {.sin_family = AF_INET};
	int on = 1;

	if (to->sin_family != AF_INET ||
	    ntohl(to->sin_addr.s_addr) >> 24 != IN_LOOPBACKNET)
		return;
	worker->source = (worker->source + 1) % SOURCES;
	from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + worker->source);
	setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
	/* If this fails, the kernel chooses the address. */
	bind(fd, (const struct sockaddr *)&from, sizeof(from));
}

/* A socket on its way to the target: its number or -errno. */
static int start_connect(struct worker *worker)
{
	int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
	const struct opt_endpoint *to = &load.opts.target;
	const struct sockaddr *addr = (const struct sockaddr *)&to->addr;
	int fd = socket(addr->sa_family, type, 0);
	int on = 1, err;

	if (fd < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (load.opts.mode == LOAD_CPS)
		choose_source(worker, fd);
	if (connect(fd, addr, to->addr_len) && errno != EINPROGRESS) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

void slot_open(struct slot *slot, int64_t begun_ns, int64_t now_ns)
{
	struct epoll_event event = {.events = INTEREST, .data.ptr = slot};
	struct worker *worker = slot->worker;

	slot->begun_ns = begun_ns;
	slot->since_ns = now_ns;
	slot->fd = start_connect(worker);
	if (slot->fd < 0) {
		slot_fail(slot, error_of(slot->fd), now_ns);
		return;
	}
	slot->state = SLOT_CONNECTING;
	worker->connecting++;
	if (epoll_ctl(worker->epoll, EPOLL_CTL_ADD, slot->fd, &event))
		slot_fail(slot, load_error_of(-errno), now_ns);
}

/* Connecting is part of a request in cps mode only. */
void slot_go_on(struct slot *slot, int64_t now_ns)
{
	int64_t begun_ns = now_ns;

	if (load.opts.mode == LOAD_BULK) {
		slot->state = SLOT_ASKED;
		slot->since_ns = now_ns;
		slot_stream(slot, now_ns);
		return;
	}
	if (load.opts.mode == LOAD_IDLE)
		return;
	if (is_open_loop()) {
		begun_ns = load_pace_due(&slot->pace);
		if (begun_ns > now_ns)
			return;
		load_pace_sent(&slot->pace);
		load_stats_sent(&slot->worker->stats, begun_ns, slot->free_ns,
				now_ns);
	}
	if (load.opts.mode == LOAD_CPS)
		slot_open(slot, begun_ns, now_ns);
	else
		slot_ask(slot, begun_ns, now_ns);
}

static int socket_error(int fd)
{
	socklen_t len = sizeof(int);
	int err = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len))
		err = errno;
	return -err;
}

void slot_event(struct slot *slot, uint32_t events)
{
	int64_t now_ns = sys_now_ns();

	switch (slot->state) {
	case SLOT_CLOSED:
		return;
	case SLOT_CONNECTING:
		if (events & EPOLLERR)
			slot_fail(slot, load_error_of(socket_error(slot->fd)),
				  now_ns);
		else if (slot->tls || (events & EPOLLOUT))
			slot_connected(slot, now_ns);
		/* Only this edge reports a peer that left at once. */
		if ((slot->state == SLOT_READY || slot->state == SLOT_ASKED) &&
		    load.opts.mode != LOAD_BULK &&
		    (slot->tls || (events & PEER_IS_DONE)))
			slot_pull(slot, events, now_ns);
		return;
	case SLOT_READY:
	case SLOT_ASKED:
		if (load.opts.mode == LOAD_BULK) {
			slot_stream(slot, now_ns);
			return;
		}
		if (slot->sent < load.opts.size && slot->state == SLOT_ASKED &&
		    !slot_push(slot, now_ns))
			return;
		if (events & (EPOLLIN | PEER_IS_DONE))
			slot_pull(slot, events, now_ns);
		return;
	}
}
