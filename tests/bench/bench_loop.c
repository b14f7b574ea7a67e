/*
 * The cost of one echo in the stack alone: netstack/ and coro/ over a port that
 * forges requests and discards answers. No DPDK, no second process; CPU time,
 * which depends little on a busy machine. Without arguments it also measures
 * opening with many listeners. See --help.
 */
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <coronet/net.h>

#include "netstack/shard/shard.h"
#include "tests/bench/array_port.h"
#include "tests/bytes.h"
#include "tests/command_line.h"

#define PAYLOAD 64u
#define FRAME	(54u + PAYLOAD)
#define ROOM	256u /* bytes of a frame's data */

enum { FIN = 1, SYN = 2, PSH = 8, ACK = 16 };

/* The next action of a client with a single request. */
enum step { WAITS, OPENS, ASKS, CLOSES, ENDS };

struct flow {
	uint32_t snd, rcv;
	bool asked, up;
	uint8_t step; /* enum step, with -c */
};

static struct conf {
	unsigned requests, n_threads;
	enum { VIEWS, COPIES, POSIX } how;
	bool once; /* a request a connection */
	bool timestamps;
	struct command_runs conns;
} conf;
static unsigned options; /* bytes of a segment: 0, or a timestamp's */
static uint8_t header[54 + 12];
static pthread_barrier_t barrier;

/* A shard's clients. */
static _Thread_local unsigned n_conns, next_flow, n_up;
static _Thread_local struct flow *flows;
static _Thread_local uint64_t answers;
static _Thread_local bool opening;

/* Flow i comes from 10.1.x.y, 16,384 ports an address. */
static void address(uint8_t *frame, unsigned i)
{
	put32(frame + 26, 0x0a010001 + (i >> 14));
	put16(frame + 34, 1024 + (i & 16383));
}

static unsigned flow_of(const uint8_t *frame)
{
	unsigned port = (unsigned)frame[36] << 8 | frame[37];

	return ((get32(frame + 30) - 0x0a010001) << 14) + port - 1024;
}

static struct glue_frame *forge_segment(unsigned i, uint8_t flags, unsigned len)
{
	unsigned headers = 54 + options;
	struct glue_frame *frame = array_take(headers + len);

	if (!frame)
		return NULL;
	memcpy(frame->data, header, sizeof(header));
	address(frame->data, i);
	put16(frame->data + 16, headers - 14 + len);
	put32(frame->data + 38, flows[i].snd);
	put32(frame->data + 42, flows[i].rcv);
	frame->data[47] = flags;
	if (options)
		put32(frame->data + 58, (uint32_t)(array_now_ns >> 20));
	memset(frame->data + headers, 'x', len);
	return frame;
}

/* ---- a connection for each request ---- */

static struct glue_frame *next_segment(unsigned i)
{
	static const struct {
		uint8_t flags, len, counts;
	} what[] = {[OPENS] = {SYN, 0, 1},
		    [ASKS] = {PSH | ACK, PAYLOAD, PAYLOAD},
		    [CLOSES] = {FIN | ACK, 0, 1},
		    [ENDS] = {ACK, 0, 0}};
	struct flow *flow = &flows[i];
	uint8_t step = flow->step;
	struct glue_frame *frame;

	if (step == WAITS)
		return NULL;
	frame = forge_segment(i, what[step].flags, what[step].len);
	if (!frame)
		return NULL;
	flow->snd += what[step].counts;
	flow->step = step == ENDS ? OPENS : WAITS;
	answers += step == ENDS;
	return frame;
}

static void take_answer(struct flow *flow, uint32_t seq, unsigned len,
			uint8_t flags)
{
	if (flags & SYN) {
		flow->rcv = seq + 1;
		flow->step = ASKS;
	} else if (seq == flow->rcv) {
		if (len)
			flow->step = CLOSES;
		if (flags & FIN)
			flow->step = ENDS;
		flow->rcv += len + (flags & FIN);
	}
}

/* ---- glue.h ---- */

static unsigned receive_once(struct glue_frame **frames, unsigned max)
{
	unsigned n = 0;

	for (unsigned seen = 0; n < max && seen < n_conns; seen++) {
		frames[n] = next_segment(next_flow++ % n_conns);
		n += frames[n] != NULL;
	}
	return n;
}

unsigned glue_rx(struct glue_port *port, struct glue_frame **frames,
		 unsigned max)
{
	unsigned n = 0, seen = 0;

	if (conf.once)
		return receive_once(frames, max);

	while (n < max && seen++ < n_conns) {
		/* a prime: far from the last one's memory */
		unsigned i =
			(unsigned)(next_flow++ * UINT64_C(1000003) % n_conns);
		struct flow *flow = &flows[i];

		if (flow->asked || (opening && flow->up))
			continue;
		frames[n] = opening ? forge_segment(i, SYN, 0)
				    : forge_segment(i, PSH | ACK, PAYLOAD);
		if (!frames[n])
			break;
		flow->snd += opening ? 1 : PAYLOAD;
		flow->asked = true;
		n++;
	}
	return n;
}

static void answer_arp(const uint8_t *request)
{
	struct pbuf *p;
	uint8_t *arp;

	if (request[21] != 1)
		return;
	p = pbuf_alloc(PBUF_RAW, 42, PBUF_RAM);
	memcpy(p->payload, request, 42);
	arp = (uint8_t *)p->payload + 14;
	memcpy((uint8_t *)p->payload, request + 6, 6);
	arp[7] = 2;
	memcpy(arp + 8, "\2\0\0\0\0\2", 6);
	memcpy(arp + 14, request + 38, 4);
	memcpy(arp + 18, request + 22, 6);
	memcpy(arp + 24, request + 28, 4);
	net_here()->netifs[0].input(p, &net_here()->netifs[0]);
}

static void finish_handshake(unsigned i)
{
	struct glue_frame *frame = forge_segment(i, ACK, 0);
	unsigned len = 54 + options;
	struct pbuf *p = pbuf_alloc(PBUF_RAW, (uint16_t)len, PBUF_RAM);

	memcpy(p->payload, frame->data, len);
	glue_frame_free(frame);
	net_here()->netifs[0].input(p, &net_here()->netifs[0]);
}

/* SYN-ACKs are kept until no lwIP function is on the stack. */
static _Thread_local unsigned *to_finish, n_finish;
static _Thread_local uint8_t arp_waiting[64][42];
static _Thread_local unsigned n_arp;

void glue_tx(struct glue_port *port, struct glue_frame *frame)
{
	const uint8_t *data = frame->data;

	if (data[12] == 8 && data[13] == 6 && n_arp < 64) {
		memcpy(arp_waiting[n_arp++], data, 42);
	} else if (data[12] == 8 && data[13] == 0 && data[23] == 6) {
		unsigned i = flow_of(data);
		unsigned len =
			(data[16] << 8 | data[17]) - 20u - (data[46] >> 4) * 4u;

		if (conf.once) {
			take_answer(&flows[i], get32(data + 38), len, data[47]);
		} else if (data[47] & SYN) {
			flows[i].rcv = get32(data + 38) + 1;
			to_finish[n_finish++] = i;
		} else if (len && get32(data + 38) == flows[i].rcv) {
			flows[i].rcv += len;
			flows[i].asked = false;
			answers++;
		}
	}
	glue_frame_free(frame);
}

/* ---- the run ---- */

static void echo_handler(struct net_conn *conn, void *arg)
{
	struct net_view view;

	while (net_recv_view(conn, &view) > 0)
		if (net_send_view(conn, &view) < 0)
			break;
}

/* The same with copies. */
static void echo_copied(struct net_conn *conn, void *arg)
{
	char buf[PAYLOAD];
	long n;

	while ((n = net_recv(conn, buf, sizeof(buf))) > 0)
		if (net_send(conn, buf, (size_t)n) != n)
			break;
}

#ifdef WITH_SOCKETS
/* The same by POSIX calls, like an unmodified program. */
static void *echo_posix(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char buf[PAYLOAD];
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0)
		if (write(fd, buf, (size_t)n) != n)
			break;
	close(fd);
	return NULL;
}

static void *accept_posix(void *arg)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(7)};
	int fd, listener = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(listener, (struct sockaddr *)&any, sizeof(any)) < 0 ||
	    listen(listener, 1 << 20) < 0)
		exit(1);
	while ((fd = accept(listener, NULL, NULL)) >= 0)
		net_spawn(net_here(), "echo", echo_posix, (void *)(intptr_t)fd);
	close(listener);
	return NULL;
}
#endif

static void serve_echo(struct net_stack *stack)
{
	struct net_listener *listener;

#ifdef WITH_SOCKETS
	if (conf.how == POSIX) {
		unsigned conns = n_conns;

		net_spawn(stack, "accept", accept_posix, NULL);
		n_conns = 0; /* no requests before the listener exists */
		net_stack_round(stack);
		n_conns = conns;
		return;
	}
#endif
	if (net_listen(stack, &net_addr_any(7), 1 << 22, &listener) < 0)
		exit(1);
	net_listener_serve(listener,
			   conf.how == COPIES ? echo_copied : echo_handler,
			   NULL);
}

static void round_and_replies(struct net_stack *stack)
{
	net_stack_round(stack);
	while (n_arp)
		answer_arp(arp_waiting[--n_arp]);
	while (n_finish) {
		unsigned i = to_finish[--n_finish];

		flows[i].asked = false;
		n_up += !flows[i].up;
		flows[i].up = true;
		finish_handshake(i);
	}
	array_now_ns += 3000;
}

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double cpu_seconds(void)
{
	return seconds(CLOCK_THREAD_CPUTIME_ID);
}

static void open_all(struct net_stack *stack)
{
	opening = true;
	for (n_up = 0; n_up < n_conns;)
		round_and_replies(stack);
	opening = false;
}

/* Opens listeners at unused ports. */
static void listen_besides(struct net_stack *stack, unsigned n)
{
	struct net_listener *listener;

	for (unsigned i = 0; i < n; i++)
		if (net_listen(stack, &net_addr_any((uint16_t)(8 + i)), 0,
			       &listener) < 0)
			exit(1);
}

struct work {
	unsigned shard, conns, listeners;
	struct net_opts *opts;
	/* cost of each connection and each echo, in ns of CPU time */
	double opened_ns, echo_ns;
	double from_s, to_s; /* of the monotonic clock, echoes alone */
};

static void make_clients(unsigned conns)
{
	n_conns = conns;
	flows = calloc(conns, sizeof(*flows));
	to_finish = calloc(1 << 16, sizeof(*to_finish));
	if (!flows || !to_finish)
		exit(1);
	for (unsigned i = 0; i < conns; i++)
		flows[i].step = OPENS;
	array_port_make(ROOM);
}

/* Pins each shard to a CPU, as far as there are enough. */
static void pin_shard(unsigned shard)
{
	cpu_set_t set;

	if (conf.n_threads == 1)
		return;
	CPU_ZERO(&set);
	CPU_SET(shard % (unsigned)sysconf(_SC_NPROCESSORS_ONLN), &set);
	pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static void *run_shard(void *arg)
{
	struct work *work = arg;
	struct net_stack *stack;
	double begun_s;
	uint64_t from;

	pin_shard(work->shard);
	make_clients(work->conns);
	if (net_shard_open(work->opts, work->shard) < 0)
		exit(1);
	stack = net_here();
	serve_echo(stack);
	listen_besides(stack, work->listeners - 1);
	begun_s = cpu_seconds();
	if (!conf.once)
		open_all(stack);
	work->opened_ns = (cpu_seconds() - begun_s) * 1e9 / work->conns;
	for (from = answers; answers - from < conf.requests / 4;)
		round_and_replies(stack);
	pthread_barrier_wait(&barrier);
	work->from_s = seconds(CLOCK_MONOTONIC);
	begun_s = cpu_seconds();
	for (from = answers; answers - from < conf.requests;)
		round_and_replies(stack);
	work->echo_ns =
		(cpu_seconds() - begun_s) * 1e9 / (double)(answers - from);
	work->to_s = seconds(CLOCK_MONOTONIC);
	net_shard_close(stack);
	free(flows);
	array_port_free();
	free(to_finish);
	return NULL;
}

static void report(const struct work *work)
{
	double opened_ns = 0, echo_ns = 0, rate = 0;

	for (unsigned i = 0; i < conf.n_threads; i++) {
		opened_ns += work[i].opened_ns / conf.n_threads;
		echo_ns += work[i].echo_ns / conf.n_threads;
		rate += conf.requests / (work[i].to_s - work[i].from_s);
	}
	if (conf.once) {
		printf("%9u connections at a time: %6.1f ns to connect, ask "
		       "once and close; shards: %u, %.0f a second together\n",
		       work->conns, echo_ns, conf.n_threads, rate);
		return;
	}
	printf("%9u connections: %6.1f ns an echo; opened with %5u listeners "
	       "in %6.1f ns each; shards: %u, %.0f echoes a second together\n",
	       work->conns, echo_ns, work->listeners, opened_ns, conf.n_threads,
	       rate);
	fflush(stdout);
}

static void run_conns(unsigned conns, unsigned listeners)
{
	struct work work[NET_MAX_SHARDS];
	pthread_t threads[NET_MAX_SHARDS];
	struct net_opts opts;

	net_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:bench";
	net_addr_parse_prefix("10.0.0.1/8", &opts.addrs[opts.n_addrs++]);
	opts.poll = NET_POLL_BUSY;
	opts.shards = conf.n_threads;
	opts.max_conns = 1 << 21;
	pthread_barrier_init(&barrier, NULL, conf.n_threads);
	if (net_program_open(&opts) < 0)
		exit(1);
	for (unsigned i = 0; i < conf.n_threads; i++) {
		work[i] = (struct work){.shard = i,
					.conns = conns,
					.listeners = listeners,
					.opts = &opts};
		if (i)
			pthread_create(&threads[i], NULL, run_shard, &work[i]);
	}
	run_shard(&work[0]);
	for (unsigned i = 1; i < conf.n_threads; i++)
		pthread_join(threads[i], NULL);
	net_program_close();
	pthread_barrier_destroy(&barrier);
	report(work);
}

#define AT(member) OPT_AT(struct conf, member)
#define CONNS_MAX  10000000u

static const struct opt rows[] = {
	{"requests", OPT_NUMBER, AT(requests), "N", "3000000", 1, CONNS_MAX,
	 .help = "Requests per shard; few are for callgrind, which counts "
		 "instructions",
	 .letter = 'r'},
	{"threads", OPT_NUMBER, AT(n_threads), "N", "1", 1, NET_MAX_SHARDS,
	 .help = "Shards, which are threads with clients of their own",
	 .letter = 't'},
	{"once", OPT_FLAG, AT(once),
	 .help = "Give each request a connection of its own", .letter = 'c'},
	{"timestamps", OPT_FLAG, AT(timestamps),
	 .help = "Let clients offer timestamps", .letter = 's'},
#ifdef WITH_SOCKETS
	{"echo", OPT_CHOICE, AT(how), "views|copies|posix", "views",
	 .help = "Echo by views, by net_recv() and net_send(), or by read() "
		 "and write() of libcoronet-sockets",
	 .letter = 'e'},
#else
	{"echo", OPT_CHOICE, AT(how), "views|copies", "views",
	 .help = "Echo by views, or by net_recv() and net_send(); "
		 "bench-loop-sockets also has posix",
	 .letter = 'e'},
#endif
};

COMMAND_SET(loop_opts, rows, NULL);

static void add_conns(const struct argp_state *state, const char *arg)
{
	command_runs_add(&conf.conns, state, "CONNS", arg, CONNS_MAX);
}

int main(int argc, char **argv)
{
	static const struct command_line line = {
		.set = &loop_opts,
		.doc = "Measures an echo in the stack alone, over CONNS "
		       "connections for each run.",
		.args_doc = "[CONNS...]",
		.take_argument = add_conns,
	};

	command_line_read(&line, argc, argv, &conf);
	options = conf.timestamps ? 12 : 0;
	memcpy(header, "\2\0\0\0\0\1\2\0\0\0\0\2\10\0", 14);
	header[14] = 0x45;
	header[22] = 64;
	header[23] = 6;
	put32(header + 30, 0x0a000001);
	put16(header + 36, 7);
	header[46] = (uint8_t)((20 + options) / 4 << 4);
	memcpy(header + 54, "\1\1\10\12", 4);
	put16(header + 48, 65535);
	if (conf.conns.n == 0) {
		run_conns(64, 1);
		run_conns(1000, 1);
		run_conns(100000, 1);
		run_conns(100000, 100);
		run_conns(100000, 10000);
	}
	for (unsigned i = 0; i < conf.conns.n; i++)
		run_conns(conf.conns.numbers[i], 1);
	return 0;
}
