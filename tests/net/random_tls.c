/* Random lives with TLS, one after another: test-net-random-tls --help. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "tests/net/random_tls.h"

#include <coronet/net_tls.h>
#include <errno.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "tests/bytes.h"
#include "tests/net/frames.h"
#include "tests/net/random_lives.h"
#include "tests/net/tls_certs.h"

#define LONGEST	     (4 * 3600 * SECOND)
#define MOST_ROUNDS  2000000u
#define FIRST_PORT   2000u /* of the first pair's client */
#define FRAME_ROOM   9216u
#define HANDSHAKE_MS 3600000u /* losses may take their time */
#define IDLE_ROUNDS  1000u
#define SPARE_BLOCKS 8 /* of what OpenSSL makes once */

struct life life;
struct tls_seen *tls_seen;
bool verbose, over_ip6, bulk_lives, brief_lives;

static struct net_tls *server_tls, *client_tls;
static long blocks, blocks_before; /* of OpenSSL; when the life began */
static unsigned idle_rounds;
static bool warmed; /* OpenSSL has what it makes once */

/* ---- parts of other random lives, empty here ---- */

bool differ_lives(void)
{
	return false;
}

void ecn_travel(struct flow *flow, enum direction to, uint8_t *frame)
{
	(void)flow;
	(void)to;
	(void)frame;
}

/* ---- numbers of OpenSSL from the seed, and its allocations ---- */

static void *count_malloc(size_t n, const char *file, int line)
{
	(void)file;
	(void)line;
	blocks++;
	return malloc(n);
}

static void *count_realloc(void *mem, size_t n, const char *file, int line)
{
	(void)file;
	(void)line;
	blocks += !mem;
	return realloc(mem, n);
}

static void count_free(void *mem, const char *file, int line)
{
	(void)file;
	(void)line;
	blocks -= mem != NULL;
	free(mem);
}

static struct rng openssl_rng;

static int random_bytes(unsigned char *out, int n)
{
	for (int i = 0; i < n; i++)
		out[i] = (unsigned char)rng_next(&openssl_rng);
	return 1;
}

static int random_status(void)
{
	return 1;
}

static void seed_openssl(uint64_t seed)
{
	static const RAND_METHOD method = {.bytes = random_bytes,
					   .pseudorand = random_bytes,
					   .status = random_status};

	RAND_set_rand_method(&method);
	openssl_rng.state = seed ^ UINT64_C(0x0155e1);
}

/* ---- the wall clock, which OpenSSL writes into tickets ---- */

/* In place of the C library's: the same in a life that is lived again. */
#pragma GCC visibility push(default)
int gettimeofday(struct timeval *tv, void *zone)
{
	static time_t begin_s;
	struct timespec now;

	(void)zone;
	if (!begin_s) {
		clock_gettime(CLOCK_REALTIME, &now);
		begin_s = now.tv_sec;
	}
	*tv = (struct timeval){.tv_sec = begin_s +
					 (fake_now_ns - life.start) / SECOND};
	return 0;
}

time_t time(time_t *out)
{
	struct timeval now;

	gettimeofday(&now, NULL);
	if (out)
		*out = now.tv_sec;
	return now.tv_sec;
}
#pragma GCC visibility pop

/* ---- drawing ---- */

/* Nothing but the path disturbs the end. */
static void calm_end(struct draw *d)
{
	d->deadline = d->cancel_at = d->drop_at = 0;
	d->user_timeout_ms = 0;
	d->read_until = UINT32_MAX;
	d->linger = LONGEST;
	if (d->ending == END_ABORT)
		d->ending = END_RETURN;
}

/* Both ends of a pair end, whatever the other one does. */
static void bound_pair(struct draw *client, struct draw *server)
{
	server->dialed = client->watched = server->watched = false;
	client->dialed = true;
	if (client->echo) /* two echoes would be silent */
		server->echo = false;
	if (client->echo || server->echo) {
		client->read_until = server->read_until = UINT32_MAX;
		(client->echo ? server : client)->shut_wr = true;
		if (client->echo)
			client->out_bytes = server->out_bytes;
		else
			server->out_bytes = client->out_bytes;
	}
	if (client->read_until < UINT32_MAX)
		server->read_until = UINT32_MAX;
	if (!server->shut_wr)
		client->shut_wr = true;
	client->in_bytes = server->out_bytes;
	server->in_bytes = client->out_bytes;
	/* Not hours of reading byte by byte. */
	client->read_max = LWIP_MAX(client->read_max, client->in_bytes / 300);
	server->read_max = LWIP_MAX(server->read_max, server->in_bytes / 300);
}

/* Each end's application, and the path to it, are of a life of its own. */
static void draw_tls_life(uint64_t seed)
{
	static struct life_draw other;
	struct rng rng = {~seed};
	unsigned n = 2 * rng_between(&rng, 1, MAX_FLOWS / 2);

	draw_life(seed, false, &life.draw);
	life.draw.n_flows = n;
	for (unsigned i = 0; i < n; i++) {
		draw_life(rng_next(&rng) >> 1, i % 2, &other);
		life.draw.flow[i] = other.flow[0];
	}
	for (unsigned i = 0; i < n; i += 2) {
		struct draw *d = &life.draw.flow[i];

		d[0].keepalive = d[1].keepalive = true; /* a RST is lost */
		if (rng_chance(&rng, 500)) {
			calm_end(&d[0]);
			calm_end(&d[1]);
		}
		bound_pair(&d[0], &d[1]);
	}
	/* Without memory an end may wait for what the other could not send. */
	for (unsigned i = 0; life.draw.fault_from && i < n; i++)
		if (!life.draw.flow[i].deadline)
			life.draw.flow[i].deadline = 300 * SECOND;
}

/* The same number on each side half of the time. */
static enum net_tls_version draw_version(void)
{
	return (enum net_tls_version)rng_below(&life.rng, 3);
}

static void make_contexts(void)
{
	struct net_tls_opts server = {
		.pairs = {{cert_path("server.pem"), cert_path("server.key")}},
		.n_pairs = 1,
		.ca = cert_path("ca.pem"),
		.verify = (enum net_tls_verify)rng_below(&life.rng, 4),
		.max_version = draw_version(),
		.alpn = rng_chance(&life.rng, 300) ? "one,two" : NULL,
		.tickets = (enum net_tls_tickets)rng_chance(&life.rng, 200),
		.handshake_ms = HANDSHAKE_MS,
		.offload = rng_chance(&life.rng, 400),
	};
	struct net_tls_opts client = {
		.ca = cert_path("ca.pem"),
		.max_version = draw_version(),
		.alpn = server.alpn ? "two" : NULL,
		.max_sessions = rng_chance(&life.rng, 600) ? 4 : 0,
		.handshake_ms = HANDSHAKE_MS,
	};

	if (server.verify == NET_TLS_VERIFY_REQUIRE ||
	    rng_chance(&life.rng, 300)) {
		client.pairs[client.n_pairs++] = (struct net_tls_pair){
			cert_path("client.pem"), cert_path("client.key")};
	}
	if (net_tls_server(&server, &server_tls) < 0 ||
	    net_tls_client(&client, &client_tls) < 0)
		violated(NULL, "no context: %s%s", server.error, client.error);
}

/* ---- other threads ---- */

int __wrap_coro_offload_until(coro_fn fn, void *arg, void **out,
			      int64_t deadline_ns);

/*
 * A step of a handshake waits for a thread, while its connection may end, and
 * is done here: the same in each run.
 */
int __wrap_coro_offload_until(coro_fn fn, void *arg, void **out,
			      int64_t deadline_ns)
{
	int64_t wait_ns = rng_log(&life.rng, 1, 2000) * MS / 10;
	int err;

	(void)out;
	if (rng_chance(&life.rng, 50))
		return -EAGAIN; /* the queue is full */
	err = coro_sleep_until(LWIP_MIN(fake_now_ns + wait_ns, deadline_ns));
	if (err < 0)
		return err;
	if (fake_now_ns >= deadline_ns)
		return -ETIMEDOUT;
	fn(arg);
	tls_seen->offloaded++;
	return 0;
}

/* ---- the ends ---- */

const uint8_t *stream_at(const struct flow *flow, enum direction to,
			 uint32_t offset)
{
	const struct flow *from = to == TO_PEER ? flow : tls_other(flow);
	unsigned stream = from->d->echo ? from->index ^ 1 : from->index;

	return pattern + (offset + stream * 7919u) % PATTERN;
}

static void count_handshake(const struct flow *flow)
{
	struct net_tls_info info;

	if (net_tls_info(flow->app.conn, &info) < 0)
		return;
	tls_seen->resumed += info.resumed;
	tls_seen->old += strcmp(info.version, "TLSv1.2") == 0;
}

static void serve_end(struct net_conn *conn, void *arg)
{
	unsigned pair = net_peer_addr(conn).port - FIRST_PORT;
	struct flow *flow = &life.flows[2 * pair + 1];

	(void)arg;
	if (flow->app.started)
		violated(flow, "a second connection");
	flow->app.started = true;
	flow->app.conn = conn;
	app_run(flow);
}

static void dial_end(struct flow *flow)
{
	struct net_dial_opts opts = {
		.source.port = flow->peer_port,
		.timeout_ms = HANDSHAKE_MS,
		.tls = client_tls,
		.tls_name = "server.test",
	};
	struct net_addr addr;
	int err;

	net_addr_parse(PEER_ADDR, PORT, &addr);
	err = net_dial(life.stack, &addr, &opts, &flow->app.conn);
	if (err < 0) {
		flow->app.dial_err = err;
		flow->app.ended = flow->app.closed = true;
		check_error(flow, "dialling", err);
		flow->watch.causes |= BY_APP; /* what comes is reset */
		return;
	}
	count_handshake(flow);
	app_run(flow);
}

/* Those of later pairs may resume a session of an earlier one. */
static void *run_client(void *arg)
{
	struct flow *flow = arg;

	if (flow->index)
		coro_sleep_ns(rng_log(&flow->app_rng, 1, 5000) * MS);
	dial_end(flow);
	return NULL;
}

/* ---- the mirror: 10.0.0.2 is 10.0.0.1, seen by the other end ---- */

static void swap_bytes(uint8_t *a, uint8_t *b, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		uint8_t byte = a[i];

		a[i] = b[i];
		b[i] = byte;
	}
}

/* Returns the client that a frame belongs to; NULL: it is no segment. */
static struct flow *client_of(const uint8_t *frame, enum direction *to)
{
	unsigned src, dst, pair;

	if (get16(frame + 12) == 0x0806)
		frame_answer_arp(frame);
	if (get16(frame + 12) != 0x0800 || frame[14 + 9] != 6)
		return NULL;
	src = get16(frame + 34);
	dst = get16(frame + 36);
	*to = dst == PORT ? TO_STACK : TO_PEER;
	pair = (dst == PORT ? src : dst) - FIRST_PORT;
	if (pair >= life.draw.n_flows / 2)
		violated(NULL, "a segment from port %u to %u", src, dst);
	return &life.flows[2 * pair];
}

static void digest_frame(const uint8_t *frame, unsigned len)
{
	uint64_t hash = tls_seen->digest ^ (uint64_t)fake_now_ns;

	for (unsigned i = 0; i < len; i++)
		hash = (hash ^ frame[i]) * UINT64_C(0x100000001b3);
	tls_seen->digest = hash;
}

static void collect_frames(void)
{
	static uint8_t frame[FRAME_ROOM];
	unsigned len;

	while ((len = fake_sent(frame, sizeof(frame)))) {
		enum direction to;
		struct flow *flow = client_of(frame, &to);

		digest_frame(frame, len);
		life.frames++;
		if (flow)
			path_carry(flow, to, frame, len);
	}
}

/* The checksums stay right: the same words are summed. */
static void deliver_frames(void)
{
	struct carried *packet;

	while ((packet = path_due())) {
		uint8_t *frame = packet->frame;

		swap_bytes(frame, frame + 6, 6);
		swap_bytes(frame + 26, frame + 30, 4);
		fake_receive(frame, packet->len,
			     GLUE_FRAME_IP4 | GLUE_FRAME_TCP |
				     GLUE_FRAME_CSUM_OK,
			     34);
		life.frames++;
		free(packet);
	}
}

/* ---- a life ---- */

static void open_stack(void)
{
	struct net_opts opts;

	draw_opts(&life.draw, &opts);
	if (net_stack_open(&opts, &life.stack) < 0 ||
	    net_listen(life.stack, &net_addr_any(PORT), 8, &life.listener) < 0)
		violated(NULL, "no stack: %s", opts.error);
	net_listener_serve(life.listener, serve_end, NULL);
	if (net_listener_set_tls(life.listener, server_tls) < 0)
		violated(NULL, "the listener takes no context");
}

static void init_flow(struct flow *flow, unsigned index)
{
	memset(flow, 0, sizeof(*flow));
	flow->d = &life.draw.flow[index];
	flow->index = index;
	flow->app_rng.state = life.draw.seed * 64 + index;
	flow->peer_port = (uint16_t)(FIRST_PORT + index / 2);
}

static void begin_life(uint64_t seed)
{
	memset(&life, 0, sizeof(life));
	draw_tls_life(seed);
	life.draw.seed = seed;
	life.rng.state = seed ^ UINT64_C(0x715000000);
	tls_seen->digest = 0;
	seed_entropy(seed);
	seed_openssl(seed);
	blocks_before = blocks;
	make_contexts();
	open_stack();
	if (verbose && warmed)
		draw_print(&life.draw);
	for (unsigned i = 0; i < life.draw.n_flows; i++)
		init_flow(&life.flows[i], i);
	net_stack_round(life.stack);
	collect_frames();
	life.start = fake_now_ns;
	life.memory = net_mem_live_bytes();
	for (unsigned i = 0; i < life.draw.n_flows; i += 2) {
		life.flows[i].app.started = true;
		if (net_spawn(life.stack, "dial", run_client, &life.flows[i]) <
		    0)
			violated(NULL, "no coroutine to dial with");
	}
	fault_arm(life.draw.fault_from, life.draw.fault_count,
		  life.draw.fault_rate);
}

static int64_t next_event(void)
{
	int64_t next =
		earlier(path_next(), coro_sched_next_ns(life.stack->sched));

	if (coro_sched_ready(life.stack->sched) ||
	    net_here()->output.head != net_here()->output.tail)
		next = earlier(next, fake_now_ns + 5000);
	for (unsigned i = 0; i < life.draw.n_flows; i++)
		next = earlier(next, app_disturb_due(&life.flows[i]));
	next = earlier(next, fake_now_ns + SECOND);
	return next > fake_now_ns ? next : fake_now_ns + 1000;
}

static void run_round(void)
{
	uint64_t all = life.frames + life.calls, before = life.frames;

	fake_now_ns = next_event();
	for (unsigned i = 0; i < life.draw.n_flows; i++) {
		app_disturb(&life.flows[i]);
		life.flows[i].tx.written =
			tls_other(&life.flows[i])->app.sent_max;
	}
	deliver_frames();
	before = (life.frames - before) / GLUE_BURST; /* a round takes one */
	for (uint64_t i = 0; i <= before; i++) {
		net_stack_round(life.stack);
		fault_step();
		collect_frames();
		life.rounds++;
	}
	/* A call that waits is not woken without a reason in each round. */
	if (life.frames + life.calls != all ||
	    !coro_sched_ready(life.stack->sched))
		idle_rounds = 0;
	else if (++idle_rounds > IDLE_ROUNDS)
		violated(NULL,
			 "a coroutine runs in each of %u rounds, for "
			 "nothing",
			 idle_rounds);
}

static bool is_over(void)
{
	if (net_here()->n_conns || net_here()->half_open || !path_empty())
		return false;
	for (unsigned i = 0; i < life.draw.n_flows; i++)
		if (!app_over(&life.flows[i]))
			return false;
	return !coro_sched_ready(life.stack->sched);
}

static void end_life(void)
{
	fault_disarm();
	for (unsigned i = 0; i < 3; i++) { /* timers are over */
		fake_now_ns += 30 * SECOND;
		net_stack_round(life.stack);
		collect_frames();
	}
	net_stack_round(life.stack); /* a neighbour's answer to the last */
	for (unsigned i = 0; i < life.draw.n_flows; i += 2)
		tls_check_pair(&life.flows[i]);
	tls_check_end();
	net_listener_close(life.listener);
	net_stack_close(life.stack);
	net_tls_free(server_tls);
	net_tls_free(client_tls);
	if (warmed && blocks > blocks_before + SPARE_BLOCKS)
		violated(NULL, "OpenSSL keeps %ld blocks",
			 blocks - blocks_before);
	path_reset();
	tls_seen->frames += life.frames;
}

static void live_one(uint64_t seed, void *arg)
{
	(void)arg;
	begin_life(seed);
	while (!is_over()) {
		run_round();
		if (fake_now_ns - life.start > LONGEST)
			violated(NULL, "does not end");
		if (life.rounds > MOST_ROUNDS)
			violated(NULL, "%llu rounds and no end",
				 (unsigned long long)life.rounds);
	}
	end_life();
}

/* ---- the command ---- */

static const struct opt rows[] = {LIVES_ROWS("100")};

COMMAND_SET(tls_opts, rows, NULL);

int main(int argc, char **argv)
{
	static const struct command_line line = {
		.set = &tls_opts,
		.doc = "Random lives of TLS connections.",
	};
	struct lives_opts opts = {.seed = LIVES_ALL};
	uint64_t done;

	command_line_read(&line, argc, argv, &opts);
	verbose = opts.verbose;
	setvbuf(stdout, NULL, _IOLBF, 0);
	CRYPTO_set_mem_functions(count_malloc, count_realloc, count_free);
	tls_seen = lives_share(sizeof(*tls_seen));
	make_pattern();
	seed_openssl(0); /* the same certificates every time */
	certs_make();
	live_one(0, NULL);
	warmed = true;
	if (opts.seed != LIVES_ALL) {
		live_one(opts.seed, NULL);
		printf("seed %llu: well\n", (unsigned long long)opts.seed);
		return 0;
	}
	done = lives_run_many(&opts, live_one, true, &tls_seen->digest,
			      argv[0]);
	printf("random TLS: %llu seeds, %llu frames, %llu pairs, of which %llu "
	       "whole, %llu by TLS 1.2, %llu resumed; %llu steps elsewhere; "
	       "%s\n",
	       (unsigned long long)done, (unsigned long long)tls_seen->frames,
	       (unsigned long long)tls_seen->pairs,
	       (unsigned long long)tls_seen->whole,
	       (unsigned long long)tls_seen->old,
	       (unsigned long long)tls_seen->resumed,
	       (unsigned long long)tls_seen->offloaded,
	       done < opts.count ? "one failed" : "none failed");
	return done < opts.count;
}
