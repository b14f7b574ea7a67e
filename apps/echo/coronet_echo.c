/*
 * coronet-echo: sends back what it receives, one coroutine a connection.
 */
#include <argp.h>
#include <stdio.h>

#include <coronet/net.h>

#include "apps/common/opts.h"

struct echo_opts {
	struct net_opts net;
	uint16_t port;
	struct net_limits limits;
};

static void echo_conn(struct net_conn *conn, void *arg)
{
	struct net_view view;

	while (net_recv_view(conn, &view) > 0)
		if (net_send_view(conn, &view) < 0)
			break;
}

#define AT(member) OPT_AT(struct echo_opts, member)

static const struct opt rows[] = {
	{"port", OPT_NUMBER, AT(port), "N", "7777", 1, 65535,
	 .help = "Listen on this port", .letter = 'p'},
	{"max-clients", OPT_NUMBER, AT(limits.clients), "N", NULL, 1, 4000000,
	 .help = "Maximum number of clients at a time; SYNs beyond it are "
		 "dropped, so that clients retry (default: limited by "
		 "--max-conns)",
	 .example = "1000"},
	{"max-clients-per-source", OPT_NUMBER, AT(limits.clients_per_source),
	 "N", NULL, 1, 4000000,
	 .help = "Maximum number of clients of one IPv4 address or IPv6 /64 "
		 "(default: half of --max-conns)",
	 .example = "1000"},
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

int main(int argc, char **argv)
{
	static const struct argp_child children[] = {
		{&net_argp, 0, "Common options:", 1}, {0}};
	static const struct argp argp = {
		.options = echo_opts_options,
		.parser = parse_key,
		.help_filter = echo_opts_help,
		.doc = "TCP echo server on coronet: DPDK, lwIP, one coroutine "
		       "a connection.\vWords after -- go to DPDK's EAL.",
		.children = children,
	};
	struct echo_opts opts = {0};
	struct net_stack *stack;
	int err;

	net_log_name("coronet.echo");
	opts_set_version("coronet-echo");
	opt_use_place(net_config_place);
	opt_set_defaults(rows, OPT_COUNT(rows), &opts);
	net_opts_init(&opts.net);
	opts.net.max_shards = NET_MAX_SHARDS;
	err = net_parse_args(&argp, argc, argv, &opts.net, &opts);
	if (err == 0)
		err = net_stack_open(&opts.net, &stack);
	if (err < 0) {
		if (opts.net.error[0])
			fprintf(stderr, "coronet-echo: %s\n", opts.net.error);
		return net_exit_status(err);
	}
	return net_exit_status(
		net_serve_limited(stack, &net_addr_any(opts.port), &opts.limits,
				  echo_conn, NULL));
}
