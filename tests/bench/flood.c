/*
 * flood: an echo client that forges segments and needs no TCP stack. The
 * options, the loop and the report; flood.h has the rest. See --help.
 */
#include "tests/bench/flood.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/command_line.h"

#define OPENS_AT_ONCE 256u
#define OPEN_S	      120 /* given up after */
#define LINK_S	      20
#define MS	      INT64_C(1000000)
#define BULK_REQUEST  16384 /* bytes; what coronet-load calls one */

static struct flood flood = {.lcore = -1};
static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
	stopped = 1;
}

static void die_because(const char *what, const char *why)
{
	fprintf(stderr, "flood: %s: %s\n", what, why);
	exit(1);
}

/* ---- the loop ---- */

/*
 * Sends the due requests of the open loop; behind a request in flight they
 * wait.
 */
static void ask_due(struct flood *fl)
{
	while (fl->first_ns + (int64_t)((double)fl->next_due * fl->step_ns) <=
	       fl->now_ns) {
		int64_t due = fl->first_ns +
			      (int64_t)((double)fl->next_due * fl->step_ns);
		uint32_t index = (uint32_t)(fl->next_due++ % fl->conns);

		if (fl->flows[index].state == FLOW_READY)
			flood_ask(fl, index, due);
		else
			fl->flows[index].backlog++;
	}
}

/* One turn: receives a burst, handles it, sends due requests. */
static void run_turn(struct flood *fl)
{
	struct glue_frame *frames[GLUE_BURST];
	unsigned n = glue_rx_raw(fl->port, frames, GLUE_BURST);

	fl->now_ns = glue_now_ns();
	fl->now_ms = (uint32_t)(fl->now_ns / MS);
	for (unsigned i = 0; i < n; i++)
		__builtin_prefetch(frames[i]->data);
	if (fl->conns > 4096 && fl->mode == FLOOD_ECHO)
		for (unsigned i = 0; i < n; i++) {
			const uint8_t *ip = frames[i]->data + 14;
			uint32_t index = (uint32_t)(ip[18] << 8 | ip[19]) -
					 (fl->client_ip & 0xffff);

			index = index << FLOOD_PORTS_BITS |
				(((unsigned)ip[22] << 8 | ip[23]) -
				 FLOOD_PORT_FIRST);
			if (index < fl->conns)
				__builtin_prefetch(&fl->flows[index]);
		}
	for (unsigned i = 0; i < n; i++) {
		flood_input(fl, frames[i]);
		glue_frame_free(frames[i]);
	}
	if (fl->step_ns != 0 && !fl->closing)
		ask_due(fl);
	if (fl->mode == FLOOD_BULK && fl->open == fl->conns) {
		flood_bulk_turn(fl);
	} else {
		flood_send_late(fl);
		flood_resend(fl);
	}
	if (fl->with_syns && fl->measuring)
		flood_syns(fl);
	glue_tx_flush(fl->port);
	if (n)
		fl->busy_ns += glue_now_ns() - fl->now_ns;
}

/* A turn against a forwarder: counts returned frames and sends them again. */
static void bounce_turn(struct flood *fl)
{
	struct glue_frame *frames[GLUE_BURST];
	unsigned n = glue_rx_raw(fl->port, frames, GLUE_BURST);
	int64_t now_ns = glue_now_ns();

	for (unsigned i = 0; i < n; i++)
		glue_tx(fl->port, frames[i]);
	glue_tx_flush(fl->port);
	if (n)
		fl->busy_ns += now_ns - fl->now_ns;
	if (fl->measuring)
		fl->answers += n;
	fl->now_ns = now_ns;
	if (n)
		fl->last_ns = now_ns;
	if (now_ns - fl->last_ns > 10 * MS) { /* all lost */
		fl->last_ns = now_ns;
		flood_bounce(fl, FLOOD_WINDOW / 2);
	}
}

static void turn_until(struct flood *fl, int64_t end_ns)
{
	while (!stopped && fl->now_ns < end_ns) {
		if (fl->mode == FLOOD_BOUNCE)
			bounce_turn(fl);
		else if (fl->mode == FLOOD_UDP)
			flood_udp_turn(fl);
		else
			run_turn(fl);
	}
}

static void wait_link(struct flood *fl)
{
	int64_t end_ns = glue_now_ns() + LINK_S * 1000 * MS;

	while (!glue_port_link_up(fl->port)) {
		fl->now_ns = glue_now_ns();
		if (stopped || fl->now_ns > end_ns)
			die_because("the link", "it is not up");
	}
}

static void find_server(struct flood *fl)
{
	for (unsigned i = 0; i < LINK_S * 50 && !fl->mac_known; i++) {
		if (glue_port_link_up(fl->port))
			flood_arp(fl);
		turn_until(fl, glue_now_ns() + 20 * MS);
		if (stopped)
			exit(1);
	}
	if (!fl->mac_known)
		die_because("the server", "it does not answer ARP");
}

static void open_all(struct flood *fl)
{
	int64_t begun_ns = glue_now_ns();

	while (!stopped && fl->open < fl->conns) {
		while (fl->opening < OPENS_AT_ONCE && fl->next_open < fl->conns)
			flood_connect(fl, fl->next_open++);
		run_turn(fl);
		if (fl->now_ns - begun_ns > OPEN_S * 1000 * MS)
			die_because("opening", "it takes too long");
		if (fl->resets)
			die_because("opening",
				    "the server refuses connections");
	}
	fl->open_ns = fl->now_ns - begun_ns;
}

static void start_load(struct flood *fl)
{
	uint32_t first = fl->conns > FLOOD_WINDOW && fl->mode != FLOOD_BULK
				 ? FLOOD_TURNS
				 : fl->conns;

	fl->first_ns = fl->now_ns;
	if (fl->rate > 0)
		fl->step_ns = 1e9 / (double)fl->rate;
	for (uint32_t i = 0; i < first; i++) {
		if (fl->mode == FLOOD_BULK) {
			flood_bulk_start(fl, i);
		} else if (fl->mode == FLOOD_CPS) {
			fl->flows[i].due_ns = fl->now_ns;
			flood_connect(fl, i);
		} else if (fl->rate == 0 && fl->conns > FLOOD_WINDOW) {
			flood_ask_next(fl);
		} else if (fl->rate == 0) {
			flood_ask(fl, i, fl->now_ns);
		}
		if (i % 32 == 31)
			run_turn(fl);
	}
}

static void measure(struct flood *fl)
{
	int64_t begun_ns;

	turn_until(fl, fl->now_ns + (int64_t)(fl->warmup_s * 1e9));
	fl->busy_ns = 0;
	fl->measuring = true;
	begun_ns = fl->now_ns;
	turn_until(fl, begun_ns + (int64_t)(fl->seconds * 1e9));
	fl->measured_ns = fl->now_ns - begun_ns;
	fl->measuring = false;
	fl->closing = true;
	if (fl->mode == FLOOD_BULK)
		fl->answers = fl->bytes / BULK_REQUEST;
}

/* Resets all connections, so that the server can serve the next run. */
static void reset_all(struct flood *fl)
{
	turn_until(fl, fl->now_ns + 20 * MS);
	for (uint32_t i = 0; i < fl->conns && !stopped; i++) {
		flood_reset(fl, i);
		if (i % 32 == 31)
			run_turn(fl);
	}
	turn_until(fl, fl->now_ns + 20 * MS);
}

/* ---- the report ---- */

static double percentile_us(const struct flood *fl, double percent)
{
	return (double)hist_percentile(&fl->latency, percent) / 1e3;
}

static int report(const struct flood *fl)
{
	double s = (double)fl->measured_ns / 1e9;
	FILE *out = fl->json ? fl->json : stdout;

	fprintf(out,
		"{\"tool\": \"flood\", \"conns\": %" PRIu32
		", \"size\": %" PRIu32 ", \"rate\": %" PRIu64
		", \"seconds\": %.3f,\n"
		" \"requests\": %" PRIu64 ", \"requests_per_s\": %.1f,\n"
		" \"bytes\": %" PRIu64 ", \"bytes_per_s\": %.0f,\n"
		" \"latency_us\": {\"p50\": %.3f, \"p90\": %.3f, \"p99\": "
		"%.3f, "
		"\"p999\": %.3f, \"p9999\": %.3f, \"max\": %.3f},\n"
		" \"opened_per_s\": %.0f, \"generator_busy\": %.3f,\n"
		" \"syns_per_s\": %.0f, \"resent\": %" PRIu64
		", \"wrong\": %" PRIu64 ", \"resets\": %" PRIu64
		", \"unexpected\": %" PRIu64 "}\n",
		fl->conns, fl->size, fl->rate, s, fl->answers,
		s > 0 ? (double)fl->answers / s : 0, fl->bytes,
		s > 0 ? (double)fl->bytes / s : 0, percentile_us(fl, 50),
		percentile_us(fl, 90), percentile_us(fl, 99),
		percentile_us(fl, 99.9), percentile_us(fl, 99.99),
		(double)fl->latency.max / 1e3,
		fl->open_ns ? (double)fl->conns * 1e9 / (double)fl->open_ns : 0,
		s > 0 ? (double)fl->busy_ns / 1e9 / s : 0,
		s > 0 ? (double)fl->syns / s : 0, fl->resent, fl->wrong,
		fl->resets, fl->unexpected);
	if (fl->json && fclose(out) != 0)
		die_because("--json", strerror(errno));
	return stopped || fl->wrong || fl->resets || fl->answers == 0;
}

/* ---- options ---- */

static int read_link(const struct opt *opt, const char *text, void *base,
		     struct opt_error *error)
{
	struct flood *fl = base;
	char err[256];

	if (glue_link_parse(text, &fl->link, err, sizeof(err)) < 0)
		return opt_fail(error, "--link '%s': %s", text, err);
	return 0;
}

static int store_ip4(const struct opt_endpoint *end, uint32_t *ip)
{
	const struct sockaddr_in *in = (const void *)&end->addr;

	if (in->sin_family != AF_INET)
		return -EINVAL;
	*ip = ntohl(in->sin_addr.s_addr);
	return 0;
}

static int read_addr(const struct opt *opt, const char *text, void *base,
		     struct opt_error *error)
{
	struct flood *fl = base;
	struct opt_endpoint end;

	if (opt_parse_address(text, 0, &end) < 0)
		return -EINVAL;
	return store_ip4(&end, &fl->client_ip);
}

static int read_target(const struct opt *opt, const char *text, void *base,
		       struct opt_error *error)
{
	struct flood *fl = base;
	struct opt_endpoint end;

	if (opt_parse_endpoint(text, &end) < 0)
		return -EINVAL;
	fl->server_port = end.port;
	return store_ip4(&end, &fl->server_ip);
}

static int check_options(void *base, struct opt_error *error)
{
	const struct flood *fl = base;

	if (!fl->link.name[0])
		return opt_refuse(error, "--link", NULL, "a link",
				  "--link memif:/tmp/m.sock,role=client");
	if (fl->mode == FLOOD_BOUNCE)
		return 0;
	if (!fl->client_ip)
		return opt_refuse(error, "--addr", NULL, "an IPv4 address",
				  "--addr 10.9.1.1");
	if (!fl->server_ip)
		return opt_refuse(error, "--target", NULL,
				  "an IPv4 address and a port",
				  "--target 10.9.0.1:7777");
	if (fl->mode == FLOOD_CPS && fl->conns > FLOOD_WINDOW)
		return opt_fail(error,
				"--conns: expected at most %u with "
				"--mode cps",
				FLOOD_WINDOW);
	return 0;
}

#define AT(member) OPT_AT(struct flood, member)
#define PEERS_MAX  10000000

static const struct opt rows[] = {
	{"link", OPT_CUSTOM, .arg = "LINK", .read = read_link,
	 .help = "Link to the server, as for coronet-echo"},
	{"addr", OPT_CUSTOM, .arg = "ADDR", .read = read_addr,
	 .expected = "an IPv4 address", .example = "10.9.1.1",
	 .help = "First of the client's IPv4 addresses"},
	{"target", OPT_CUSTOM, .arg = "ADDR:PORT", .read = read_target,
	 .expected = "an IPv4 address and a port from 1 to 65535",
	 .example = "10.9.0.1:7777", .help = "The server"},
	{"mode", OPT_CHOICE, AT(mode), "echo|cps|bulk|udp|bounce", "echo",
	 .help = "echo: requests on persistent connections; cps: a connection "
		 "for each request; bulk: streams that the server sends back; "
		 "udp: datagrams that the server echoes; bounce: frames that a "
		 "forwarder sends back"},
	{"conns", OPT_NUMBER, AT(conns), "N", "64", 1, PEERS_MAX,
	 .help = "Number of connections at a time"},
	{"size", OPT_NUMBER, AT(size), "BYTES", "64", 1, 1400,
	 .help = "Bytes per request"},
	{"seconds", OPT_SECONDS_FP, AT(seconds), "SECONDS", "3",
	 OPT_NS_PER_S / 100, OPT_DAY_NS, .help = "Duration of the measurement"},
	{"warmup", OPT_SECONDS_FP, AT(warmup_s), "SECONDS", "0.5", 0,
	 OPT_DAY_NS, .help = "Duration of load before the measurement"},
	{"rate", OPT_NUMBER, AT(rate), "N", "0", 0, 1000000000,
	 .help = "Requests per second in an open loop; 0: a closed loop"},
	{"lcore", OPT_NUMBER, AT(lcore), "CPU", NULL, 0, 1023,
	 .help = "CPU to run on"},
	{"huge", OPT_CHOICE, AT(huge_off), "auto|off", "auto",
	 .help = "Use hugepages when they are available"},
	{"json", OPT_FILE, AT(json), "FILE", .example = "/tmp/flood.json",
	 .help = "Write the report to FILE instead of standard output"},
	{"syns", OPT_FLAG, AT(with_syns),
	 .help = "Send a flood of SYNs beside the load, while measuring"},
};

COMMAND_SET(flood_opts, rows, check_options);

static void start_flood(struct flood *fl)
{
	struct glue_eal_conf eal = {.links = &fl->link,
				    .n_links = 1,
				    .lcore = fl->lcore,
				    .huge_off = fl->huge_off,
				    .mtu = 1500,
				    .mem_mib = 96};
	struct glue_port_conf conf = {.mtu = 1500};
	char err[512];

	if (glue_eal_start(&eal, err, sizeof(err)) < 0 ||
	    glue_port_open(0, &conf, &fl->port, err, sizeof(err)) < 0)
		die_because("the link", err);
	fl->flows = mmap(NULL, (size_t)fl->conns * sizeof(struct flow),
			 PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (fl->flows == MAP_FAILED)
		die_because("flows", "no memory");
	fl->acks = calloc(FLOOD_ACKS, sizeof(*fl->acks));
	if (!fl->acks)
		die_because("ACKs", "no memory");
	madvise(fl->flows, (size_t)fl->conns * sizeof(struct flow),
		MADV_HUGEPAGE);
	for (uint32_t i = 0; i < fl->conns; i++)
		fl->flows[i].port =
			(uint16_t)(FLOOD_PORT_FIRST +
				   (i & ((1u << FLOOD_PORTS_BITS) - 1)));
	if (fl->mode == FLOOD_BULK && !flood_bulk_init(fl))
		die_because("bulk", "no memory");
	hist_reset(&fl->latency);
	fl->now_ns = glue_now_ns();
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct flood *fl = &flood;
	static const struct command_line line = {
		.set = &flood_opts,
		.doc = "Loads an echo server with forged segments, or a "
		       "forwarder with frames.",
	};
	int status;

	command_line_read(&line, argc, argv, fl);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	start_flood(fl);
	wait_link(fl);
	if (fl->mode != FLOOD_BOUNCE)
		find_server(fl);
	if (fl->mode == FLOOD_ECHO || fl->mode == FLOOD_BULK)
		open_all(fl);
	if (fl->mode == FLOOD_UDP)
		flood_udp_start(fl);
	else if (fl->mode != FLOOD_BOUNCE)
		start_load(fl);
	measure(fl);
	status = report(fl);
	if (fl->mode != FLOOD_BOUNCE && fl->mode != FLOOD_UDP)
		reset_all(fl);
	/*
	 * Without closing the port: DPDK's memif server may fall when its peer
	 * closes while it polls, and it must continue to serve. There is no
	 * file to remove: the other side made the socket.
	 */
	fflush(NULL);
	_exit(status);
}
