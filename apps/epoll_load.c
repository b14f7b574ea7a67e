/*
 * epoll-load: the load generator on the kernel's TCP, coronet-load's twin.
 *
 * One thread, non-blocking sockets, one edge-triggered epoll set. A request is
 * one send and one recv; the events of up to BATCH connections come from one
 * epoll_wait. Latency is taken at each answer, not once a batch: a batch of 256
 * takes long enough to matter.
 *
 * A slot is one of the --conns connections. Its place in the array is its
 * number; in cps mode it has one socket after the other.
 */
#include <argp.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "apps/common/load_opts.h"
#include "apps/common/load_stats.h"
#include "apps/common/payload.h"
#include "apps/common/report.h"
#include "apps/common/sys.h"

#define BATCH	       256
#define BUF_SIZE       (256u << 10)
#define BULK_ROUNDS    4 /* sends or recvs of one event, for fairness */
#define OPENS_A_TURN   64
#define MAX_CONNECTING 512 /* well below the usual backlog */
#define SCAN_NS	       (OPTS_NS_PER_S / 10)
#define SPARE_FILES    16
#define INTEREST       (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)
#define PEER_IS_DONE   (EPOLLRDHUP | EPOLLHUP | EPOLLERR)

enum slot_state {
	SLOT_CLOSED,	 /* no socket */
	SLOT_CONNECTING, /* waits for the handshake */
	SLOT_READY,	 /* open, nothing asked */
	SLOT_ASKED,	 /* waits for an answer; in bulk mode, streams */
};

struct slot {
	int fd;
	enum slot_state state;
	bool again;	   /* in gen.again */
	bool was_open;	   /* at least once */
	uint32_t sent;	   /* of this request */
	uint32_t received; /* of its answer */
	int64_t begun_ns;  /* where its latency counts from */
	int64_t since_ns;  /* what it waits for began then: the timeout */
	int64_t reopen_ns; /* not before, after a failure */
	uint64_t sent_at;  /* place in the stream, for --verify */
	uint64_t arrived_at;
	uint64_t seed;
	struct load_pace pace;
};

struct gen {
	struct load_opts opts;
	int cpu; /* -1: anywhere */
	int epoll;
	struct slot *slots;
	struct slot **again; /* bulk slots that stopped for fairness alone */
	uint32_t again_count;
	uint32_t started; /* slots that were opened for the first time */
	uint32_t connecting;
	uint64_t turn; /* the next request of the open loop's even stream */
	int64_t scan_ns;
	struct load_stats stats;
	char to_send[BUF_SIZE];
	char received[BUF_SIZE];
};

static struct gen gen = {.cpu = -1};
static volatile sig_atomic_t stop;

static void slot_go_on(struct slot *slot, int64_t now_ns);

static void slot_close(struct slot *slot)
{
	/* Closing takes the socket out of the epoll set. */
	close(slot->fd);
	if (slot->state == SLOT_CONNECTING)
		gen.connecting--;
	else
		load_stats_closed(&gen.stats);
	slot->fd = -1;
	slot->state = SLOT_CLOSED;
}

/* A failed slot comes back after a while, but for an idle one: it is missed. */
static void slot_fail(struct slot *slot, enum load_error kind, int64_t now_ns)
{
	load_stats_error(&gen.stats, kind);
	if (slot->fd >= 0)
		slot_close(slot);
	slot->reopen_ns =
		gen.opts.mode == LOAD_IDLE ? INT64_MAX : now_ns + SCAN_NS;
}

static bool is_open_loop(void)
{
	return gen.opts.rate > 0;
}

/* The bytes to send next: any, or those that stand at this place. */
static const char *slot_payload(const struct slot *slot, size_t len)
{
	if (gen.opts.verify)
		payload_fill(gen.to_send, len, slot->seed, slot->sent_at);
	return gen.to_send;
}

static size_t at_most(size_t len, size_t limit)
{
	return len < limit ? len : limit;
}

/* Sends what the socket takes of `len` bytes: a count or -errno. */
static ssize_t slot_send(struct slot *slot, size_t len)
{
	ssize_t n;

	len = at_most(len, BUF_SIZE);
	n = send(slot->fd, slot_payload(slot, len), len, MSG_NOSIGNAL);
	if (n < 0)
		return -errno;
	slot->sent_at += (uint64_t)n;
	return n;
}

/* Receives and checks what is there: a count, 0 at the end, or -errno. */
static ssize_t slot_receive(struct slot *slot)
{
	ssize_t n = recv(slot->fd, gen.received, BUF_SIZE, 0);

	if (n < 0)
		return -errno;
	if (gen.opts.verify &&
	    payload_check(gen.received, (size_t)n, slot->seed,
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

	while (slot->sent < gen.opts.size) {
		n = slot_send(slot, gen.opts.size - slot->sent);
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
	slot->begun_ns = begun_ns;
	slot->since_ns = now_ns;
	slot_push(slot, now_ns);
}

static void slot_answered(struct slot *slot)
{
	int64_t now_ns = sys_now_ns();

	slot->state = SLOT_READY;
	if (gen.opts.mode != LOAD_IDLE)
		load_stats_request(&gen.stats, now_ns - slot->begun_ns);
	if (gen.opts.mode == LOAD_CPS)
		slot_close(slot);
	slot_go_on(slot, now_ns);
}

/* Reads an answer. Stops when it is whole, or when no more is there. */
static void slot_pull(struct slot *slot, uint32_t events, int64_t now_ns)
{
	ssize_t n;

	do {
		n = slot_receive(slot);
		if (n == -EAGAIN)
			return;
		/* More than was asked for is no echo either. */
		if (n > 0 && (slot->state != SLOT_ASKED ||
			      (size_t)n > gen.opts.size - slot->received))
			n = -EBADMSG;
		if (n <= 0) {
			slot_fail(slot, error_of(n), now_ns);
			return;
		}
		slot->received += (uint32_t)n;
		if (slot->received == gen.opts.size) {
			slot_answered(slot);
			/* That may have been the last of this socket. */
			if (gen.opts.mode == LOAD_CPS || slot->fd < 0)
				return;
		}
		/* A short read is the edge, unless the end hides behind it. */
	} while (n == BUF_SIZE || (events & PEER_IS_DONE));
}

static void bulk_again(struct slot *slot)
{
	if (slot->again)
		return;
	slot->again = true;
	gen.again[gen.again_count++] = slot;
}

/* Streams both ways, a bounded number of rounds. */
static void slot_stream(struct slot *slot, int64_t now_ns)
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
				load_stats_bytes(&gen.stats, (uint64_t)n);
				slot->since_ns = now_ns;
			}
		}
		if (can_send) {
			n = slot_send(slot, gen.opts.size);
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

/* The handshake is done. */
static void slot_opened(struct slot *slot, int64_t now_ns)
{
	gen.connecting--;
	slot->state = SLOT_READY;
	slot->arrived_at = slot->sent_at;
	load_stats_opened(&gen.stats, now_ns - slot->since_ns);
	if (is_open_loop() && !slot->was_open && gen.opts.mode != LOAD_CPS)
		load_pace_start(&slot->pace, &gen.stats,
				(uint32_t)(slot - gen.slots), now_ns);
	if (gen.opts.mode == LOAD_CPS)
		slot_ask(slot, slot->begun_ns, now_ns);
	else if (gen.opts.mode == LOAD_IDLE && gen.opts.verify)
		slot_ask(slot, now_ns, now_ns);
	else
		slot_go_on(slot, now_ns);
	slot->was_open = true;
}

/* A socket on its way to the target: its number or -errno. */
static int start_connect(void)
{
	int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
	const struct opts_endpoint *to = &gen.opts.target;
	const struct sockaddr *addr = (const struct sockaddr *)&to->addr;
	int fd = socket(addr->sa_family, type, 0);
	int on = 1, err;

	if (fd < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, addr, to->addr_len) && errno != EINPROGRESS) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

static void slot_open(struct slot *slot, int64_t begun_ns, int64_t now_ns)
{
	struct epoll_event event = {.events = INTEREST, .data.ptr = slot};

	slot->begun_ns = begun_ns;
	slot->since_ns = now_ns;
	slot->fd = start_connect();
	if (slot->fd < 0) {
		slot_fail(slot, error_of(slot->fd), now_ns);
		return;
	}
	slot->state = SLOT_CONNECTING;
	gen.connecting++;
	if (epoll_ctl(gen.epoll, EPOLL_CTL_ADD, slot->fd, &event))
		slot_fail(slot, load_error_of(-errno), now_ns);
}

/*
 * What a slot does when it waits for nothing: in the closed loop its next
 * request, in the open loop the one that is due. Connecting is part of a
 * request in cps mode only.
 */
static void slot_go_on(struct slot *slot, int64_t now_ns)
{
	int64_t begun_ns = now_ns;

	if (gen.opts.mode == LOAD_BULK) {
		slot->state = SLOT_ASKED;
		slot->since_ns = now_ns;
		slot_stream(slot, now_ns);
		return;
	}
	if (gen.opts.mode == LOAD_IDLE)
		return;
	if (is_open_loop()) {
		begun_ns = load_pace_due(&slot->pace);
		if (begun_ns > now_ns)
			return;
		load_pace_sent(&slot->pace);
	}
	if (gen.opts.mode == LOAD_CPS)
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

static void slot_event(struct slot *slot, uint32_t events)
{
	int64_t now_ns = sys_now_ns();

	switch (slot->state) {
	case SLOT_CLOSED:
		return;
	case SLOT_CONNECTING:
		if (events & EPOLLERR)
			slot_fail(slot, load_error_of(socket_error(slot->fd)),
				  now_ns);
		else if (events & EPOLLOUT)
			slot_opened(slot, now_ns);
		return;
	case SLOT_READY:
	case SLOT_ASKED:
		if (gen.opts.mode == LOAD_BULK) {
			slot_stream(slot, now_ns);
			return;
		}
		if (slot->sent < gen.opts.size && slot->state == SLOT_ASKED &&
		    !slot_push(slot, now_ns))
			return;
		if (events & (EPOLLIN | PEER_IS_DONE))
			slot_pull(slot, events, now_ns);
		return;
	}
}

/* The first opening of each slot, as the ramp and the handshakes allow. */
static void open_slots(int64_t now_ns)
{
	uint32_t may = load_stats_may_open(&gen.stats, now_ns);
	uint32_t i;

	for (i = 0; i < OPENS_A_TURN && gen.started < may &&
		    gen.connecting < MAX_CONNECTING;
	     i++) {
		struct slot *slot = &gen.slots[gen.started++];

		if (gen.opts.mode == LOAD_CPS) {
			if (is_open_loop())
				load_pace_start(&slot->pace, &gen.stats,
						gen.started - 1, now_ns);
			slot_go_on(slot, now_ns);
		} else {
			slot_open(slot, now_ns, now_ns);
		}
	}
}

/*
 * When request number `turn` of the open loop's even stream is due; 2 ns later
 * than load_pace_due() says, lest rounding have us look there too early.
 */
static int64_t turn_due(uint64_t turn)
{
	return gen.stats.start_ns + 2 +
	       (int64_t)((double)turn * 1e9 / (double)gen.opts.rate);
}

static bool is_waiting(const struct slot *slot)
{
	if (gen.opts.mode == LOAD_CPS)
		return slot->state == SLOT_CLOSED;
	return slot->state == SLOT_READY;
}

/*
 * The open loop: visits the slots whose requests have become due. A slot that
 * is busy then looks at its timetable itself when it is done.
 */
static void take_turns(int64_t now_ns)
{
	double passed_s = (double)(now_ns - gen.stats.start_ns) / 1e9;
	struct slot *slot;
	uint32_t i;

	if (!is_open_loop())
		return;
	for (i = 0; turn_due(gen.turn) <= now_ns; i++, gen.turn++) {
		/* Once round is enough, however late it is. */
		if (i == gen.opts.conns) {
			gen.turn = (uint64_t)(passed_s * (double)gen.opts.rate);
			break;
		}
		slot = &gen.slots[gen.turn % gen.opts.conns];
		if (slot < gen.slots + gen.started && is_waiting(slot))
			slot_go_on(slot, now_ns);
	}
}

/* Ten times a second: what waits too long, and what may come back. */
static void scan(int64_t now_ns)
{
	int64_t timeout_ns = gen.opts.timeout_ns;
	struct slot *slot;
	uint32_t i;

	if (now_ns < gen.scan_ns)
		return;
	gen.scan_ns = now_ns + SCAN_NS;
	for (i = 0; i < gen.started; i++) {
		slot = &gen.slots[i];
		if (slot->state == SLOT_CLOSED) {
			if (now_ns < slot->reopen_ns)
				continue;
			if (gen.opts.mode == LOAD_CPS)
				slot_go_on(slot, now_ns);
			else
				slot_open(slot, now_ns, now_ns);
		} else if (slot->state != SLOT_READY &&
			   now_ns - slot->since_ns > timeout_ns) {
			slot_fail(slot, LOAD_TIMEOUT, now_ns);
		}
	}
}

/* Bulk slots that only gave way to others. */
static void stream_again(int64_t now_ns)
{
	uint32_t i, count = gen.again_count;
	struct slot *slot;

	/* What stops again goes to the place it is taken from, or before. */
	gen.again_count = 0;
	for (i = 0; i < count; i++) {
		slot = gen.again[i];
		slot->again = false;
		if (slot->state == SLOT_ASKED)
			slot_stream(slot, now_ns);
	}
}

static int64_t earlier(int64_t a_ns, int64_t b_ns)
{
	return a_ns < b_ns ? a_ns : b_ns;
}

/* How long there is nothing to do but what comes from outside. */
static struct timespec time_to_wait(int64_t now_ns)
{
	int64_t until_ns = earlier(gen.stats.wake_ns, gen.scan_ns);
	uint32_t may = load_stats_may_open(&gen.stats, now_ns);
	int64_t wait_ns;

	if (is_open_loop())
		until_ns = earlier(until_ns, turn_due(gen.turn));
	wait_ns = until_ns - now_ns;
	if (gen.started < gen.opts.conns)
		wait_ns = earlier(wait_ns, OPTS_NS_PER_S / 1000);
	if (wait_ns < 0 || gen.again_count > 0 ||
	    (gen.started < may && gen.connecting < MAX_CONNECTING))
		wait_ns = 0;
	return (struct timespec){.tv_sec = wait_ns / OPTS_NS_PER_S,
				 .tv_nsec = wait_ns % OPTS_NS_PER_S};
}

static void take_events(int64_t now_ns, const sigset_t *while_waiting)
{
	struct timespec wait = time_to_wait(now_ns);
	struct epoll_event events[BATCH];
	int count, i;

	count = epoll_pwait2(gen.epoll, events, BATCH, &wait, while_waiting);
	for (i = 0; i < count; i++)
		slot_event(events[i].data.ptr, events[i].events);
}

static int64_t cpu_ns(void *arg)
{
	struct timespec used;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return used.tv_sec * OPTS_NS_PER_S + used.tv_nsec;
}

static void on_signal(int number)
{
	/* The second one does not wait for the report. */
	if (stop)
		_exit(1);
	stop = 1;
}

/* Signals are let in only while waiting, so that none is missed. */
static void catch_signals(sigset_t *while_waiting)
{
	struct sigaction action = {.sa_handler = on_signal};
	sigset_t blocked;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGINT);
	sigaddset(&blocked, SIGTERM);
	sigprocmask(SIG_BLOCK, &blocked, while_waiting);
	sigdelset(while_waiting, SIGINT);
	sigdelset(while_waiting, SIGTERM);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static void run(void)
{
	sigset_t while_waiting;
	int64_t now_ns;

	catch_signals(&while_waiting);
	load_stats_start(&gen.stats, &gen.opts, "epoll-load", sys_now_ns());
	load_stats_set_busy(&gen.stats, cpu_ns, NULL);
	for (;;) {
		now_ns = sys_now_ns();
		if (stop)
			load_stats_interrupt(&gen.stats, now_ns);
		if (!load_stats_tick(&gen.stats, now_ns))
			break;
		open_slots(now_ns);
		take_turns(now_ns);
		scan(now_ns);
		stream_again(now_ns);
		take_events(now_ns, &while_waiting);
	}
	sigprocmask(SIG_SETMASK, &while_waiting, NULL);
}

static int set_up(void)
{
	uint32_t i;

	gen.slots = calloc(gen.opts.conns, sizeof(*gen.slots));
	gen.again = calloc(gen.opts.conns, sizeof(struct slot *));
	gen.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (!gen.slots || !gen.again || gen.epoll < 0)
		return -errno;
	for (i = 0; i < gen.opts.conns; i++) {
		gen.slots[i].fd = -1;
		gen.slots[i].seed = payload_seed(i);
	}
	payload_fill(gen.to_send, BUF_SIZE, 0, 0);
	/* The open loop wants its waits to end on time. */
	prctl(PR_SET_TIMERSLACK, 1);
	return 0;
}

static void tear_down(void)
{
	uint32_t i;

	for (i = 0; gen.slots && i < gen.opts.conns; i++)
		if (gen.slots[i].fd >= 0)
			close(gen.slots[i].fd);
	if (gen.epoll >= 0)
		close(gen.epoll);
	free(gen.again);
	free(gen.slots);
}

/* Too many connections for the limit of open files is a wrong value. */
static void check_files(const struct argp_state *state)
{
	uint64_t files = sys_raise_files();
	char conns[24], expected[96];

	if (gen.opts.conns + SPARE_FILES <= files)
		return;
	snprintf(conns, sizeof(conns), "%u", gen.opts.conns);
	snprintf(expected, sizeof(expected),
		 "at most %ju: this process may open %ju files (ulimit -Hn)",
		 (uintmax_t)(files > SPARE_FILES ? files - SPARE_FILES : 0),
		 (uintmax_t)files);
	opts_refuse(state, "--conns", conns, expected, "--conns 64");
}

enum { OPT_CPU = 0x200 };

static const struct argp_option options[] = {
	{"cpu", OPT_CPU, "N", 0, "Run on this CPU (default: any)", 20},
	{"lcore", 0, 0, OPTION_ALIAS, 0, 20},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case ARGP_KEY_INIT:
		opts_begin(state);
		state->child_inputs[0] = &gen.opts;
		return 0;
	case OPT_CPU:
		gen.cpu = (int)opts_number(state, "--cpu", arg, 0, 1023,
					   "--cpu 1");
		if (sys_pin_cpu((unsigned int)gen.cpu))
			opts_refuse(state, "--cpu", arg,
				    "a CPU this process may run on", "--cpu 0");
		return 0;
	case ARGP_KEY_SUCCESS:
		check_files(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp_child children[] = {
		{&load_opts_argp, 0, NULL, 0},
		{0},
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.children = children,
		.doc = "Loads a TCP echo server through the kernel's sockets "
		       "and epoll, and reports rates and latencies.",
	};
	int err, status = 1;

	opts_set_version("epoll-load");
	if (argp_parse(&argp, argc, argv, 0, NULL, NULL))
		return OPTS_EXIT_USAGE;
	err = set_up();
	if (err == 0) {
		run();
		status = load_report(&gen.stats);
	} else {
		fprintf(stderr, "epoll-load: cannot start: %s\n",
			strerror(-err));
	}
	tear_down();
	return status;
}
