/*
 * coronet-echo: sends back what it receives, with one coroutine per connection.
 * With --udp it also echoes datagrams, with one coroutine per shard.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <coronet/net.h>
#include <coronet/net_tls.h>
#include <coronet/net_udp.h>

#include "apps/common/datagrams.h"
#include "apps/common/log_signal.h"
#include "apps/common/opts.h"
#include "apps/common/tls_pairs.h"

#define UDP_BATCH 32

struct echo_opts {
	struct net_opts net;
	uint16_t port;
	bool udp;
	struct net_limits limits;
	struct tls_pairs pairs; /* certificates; without any, no TLS */
	const char *key_log;	/* a file; NULL: none */
};

static void echo_conn(struct net_conn *conn, void *arg)
{
	struct net_view view;

	while (net_recv_view(conn, &view) > 0)
		if (net_send_view(conn, &view) < 0)
			break;
}

/*
 * Leaves out datagrams that cannot be answered: port 0, a smaller path MTU, a
 * link without room.
 */
static void answer_datagrams(struct net_udp *udp,
			     const struct net_datagram *got, int n)
{
	int sent = 0;

	while (sent < n) {
		int rc = datagrams_send(udp, got + sent, (unsigned)(n - sent));

		if (rc == -ECANCELED)
			return;
		sent += rc < 0 ? 1 : rc;
	}
}

static void *echo_datagrams(void *arg)
{
	struct net_addr any = {.port = *(const uint16_t *)arg};
	struct net_datagram got[UDP_BATCH];
	struct net_udp *udp;
	uint64_t errors = 0;
	int err, n;

	err = net_udp_open(net_stack_here(), &any, NULL, &udp);
	if (err < 0) {
		net_log_at(NET_LOG_ERROR, "coronet-echo: UDP port %u: %s",
			   any.port, strerror(-err));
		net_stack_stop(net_stack_here());
		return NULL;
	}
	while ((n = datagrams_recv(udp, got, UDP_BATCH, &errors)) > 0) {
		answer_datagrams(udp, got, n);
		net_udp_release(udp, got, (unsigned)n);
	}
	if (errors)
		net_log_at(NET_LOG_WARNING,
			   "coronet-echo: UDP port %u: %" PRIu64
			   " calls failed to receive",
			   any.port, errors);
	net_udp_close(udp);
	return NULL;
}

static void start_datagrams(void *arg)
{
	net_spawn(net_stack_here(), "echo_datagrams", echo_datagrams, arg);
}

static int serve_datagrams(struct net_stack *stack, uint16_t *port)
{
	int err = 0;

	for (unsigned i = 0; err == 0 && i < net_stack_shards(stack); i++)
		err = net_post(i, start_datagrams, port);
	return err;
}

#define AT(member) OPT_AT(struct echo_opts, member)

static const struct opt rows[] = {
	{"port", OPT_NUMBER, AT(port), "N", "7777", 1, 65535,
	 .help = "Listen on this port", .letter = 'p'},
	{"udp", OPT_FLAG, AT(udp),
	 .help = "Also echo UDP datagrams that arrive at --port"},
	{"max-clients", OPT_NUMBER, AT(limits.clients), "N", NULL, 1, 4000000,
	 .help = "Maximum number of clients at a time; further SYNs are "
		 "dropped, and the clients' TCP retries (default: no limit but "
		 "--max-conns)",
	 .example = "1000"},
	{"max-clients-per-source", OPT_NUMBER, AT(limits.clients_per_source),
	 "N", NULL, 1, 4000000,
	 .help = "Maximum number of clients of one IPv4 address or IPv6 /64 "
		 "(default: half of --max-conns, at least 1024)",
	 .example = "1000"},
#if APPS_TLS
	{"tls-cert", OPT_CUSTOM, AT(pairs), "FILE", .read = tls_pairs_read_cert,
	 .expected = TLS_PAIRS_EXPECTED, .example = "/etc/coronet/cert.pem",
	 .help = "Use TLS for TCP, with the certificate of this PEM file, "
		 "which "
		 "those that lead to its CA follow (repeatable): the name that "
		 "a client asks for chooses one, else it gets the first"},
	{"tls-key", OPT_CUSTOM, AT(pairs), "FILE", .read = tls_pairs_read_key,
	 .expected = TLS_PAIRS_EXPECTED, .example = "/etc/coronet/key.pem",
	 .help = "PEM file with the key of the --tls-cert before it (default: "
		 "the file of the certificate)"},
	TLS_PAIRS_KEY_LOG(AT(key_log)),
#endif
};

OPT_SET(echo_opts, rows, 0x2000, NULL)

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	struct echo_opts *opts = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		opt_begin(state);
		state->child_inputs[0] = &opts->net;
		return 0;
	case ARGP_KEY_ARG:
		opt_refuse_argument(state, arg);
	default:
		return echo_opts_parse(key, arg, state);
	}
}

#if APPS_TLS
/* Makes the context of --tls-cert. Returns 0, or -errno with a message. */
static int open_tls(struct echo_opts *opts, struct net_tls **tls)
{
	struct net_tls_opts how = {.n_pairs = opts->pairs.n,
				   .key_log = opts->net.check ? NULL
							      : opts->key_log};
	int err;

	if (opts->pairs.n == 0 && opts->key_log) {
		snprintf(opts->net.error, sizeof(opts->net.error),
			 "--tls-keylog needs a certificate: add --tls-cert "
			 "FILE");
		return -EINVAL;
	}
	if (opts->pairs.n == 0)
		return 0;
	memcpy(how.pairs, opts->pairs.pairs, sizeof(how.pairs));
	err = net_tls_server(&how, tls);
	if (err < 0)
		snprintf(opts->net.error, sizeof(opts->net.error),
			 "--tls-cert and other options of TLS: %s", how.error);
	return err;
}

static int serve(struct net_stack *stack, const struct echo_opts *opts,
		 struct net_tls *tls)
{
	const struct net_addr at = net_addr_any(opts->port);
	int err;

	if (!tls)
		return net_serve_limited(stack, &at, &opts->limits, echo_conn,
					 NULL);
	err = net_serve_tls(stack, &at, &opts->limits, tls, echo_conn, NULL);
	net_tls_free(tls);
	return err;
}
#else
static int open_tls(struct echo_opts *opts, struct net_tls **tls)
{
	return 0;
}

static int serve(struct net_stack *stack, const struct echo_opts *opts,
		 struct net_tls *tls)
{
	return net_serve_limited(stack, &net_addr_any(opts->port),
				 &opts->limits, echo_conn, NULL);
}
#endif

int main(int argc, char **argv)
{
	static const struct argp_child children[] = {
		{&net_argp, 0, "Common options:", 1}, {0}};
	static const struct argp argp = {
		.options = echo_opts_options,
		.parser = parse_key,
		.help_filter = echo_opts_help,
		.doc = "TCP and UDP echo server on coronet: DPDK, lwIP, one "
		       "coroutine per connection.\vWords after -- go to DPDK's "
		       "EAL.",
		.children = children,
	};
	static struct echo_opts opts;
	struct net_tls *tls = NULL;
	struct net_stack *stack;
	int err;

	log_signal_catch();
	net_log_name("coronet.echo");
	opts_set_version("coronet-echo");
	opt_use_place(net_config_place);
	opt_set_defaults(rows, OPT_COUNT(rows), &opts);
	net_opts_init(&opts.net);
	opts.net.max_shards = NET_MAX_SHARDS;
	err = net_parse_args(&argp, argc, argv, &opts.net, &opts);
	if (err == 0)
		err = open_tls(&opts, &tls);
	if (err == 0)
		err = net_stack_open(&opts.net, &stack);
	if (err < 0) {
		if (opts.net.error[0])
			fprintf(stderr, "coronet-echo: %s\n", opts.net.error);
		return net_exit_status(err);
	}
	if (opts.udp)
		err = serve_datagrams(stack, &opts.port);
	if (err < 0) {
		fprintf(stderr, "coronet-echo: --udp: %s\n", strerror(-err));
		net_stack_close(stack);
		return net_exit_status(err);
	}
	return net_exit_status(serve(stack, &opts, tls));
}
