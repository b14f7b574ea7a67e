/*
 * coronet-echo: sends back what it receives, one coroutine a connection.
 */
#include <argp.h>
#include <stdio.h>

#include <coronet/net.h>

#include "apps/common/opts.h"

enum { OPT_MAX_CLIENTS = 0x2000, OPT_MAX_SOURCE };

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

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	struct echo_opts *opts = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		opt_begin(state);
		state->child_inputs[0] = &opts->net;
		return 0;
	case 'p':
		opts->port = (uint16_t)opts_number(state, "--port", arg, 1,
						   65535, "--port 7777");
		return 0;
	case OPT_MAX_CLIENTS:
		opts->limits.clients =
			(unsigned)opts_number(state, "--max-clients", arg, 1,
					      4000000, "--max-clients 1000");
		return 0;
	case OPT_MAX_SOURCE:
		opts->limits.clients_per_source = (unsigned)opts_number(
			state, "--max-clients-per-source", arg, 1, 4000000,
			"--max-clients-per-source 1000");
		return 0;
	case ARGP_KEY_ARG:
		opt_refuse_argument(state, arg);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"port", 'p', "N", 0, "Listen on this port (default 7777)", 0},
		{"max-clients", OPT_MAX_CLIENTS, "N", 0,
		 "Maximum number of clients at a time; SYNs beyond it are "
		 "dropped, so that clients retry (default: limited by "
		 "--max-conns)",
		 0},
		{"max-clients-per-source", OPT_MAX_SOURCE, "N", 0,
		 "Maximum number of clients of one IPv4 address or IPv6 /64 "
		 "(default: half of --max-conns)",
		 0},
		{0},
	};
	static const struct argp_child children[] = {
		{&net_argp, 0, "Common options:", 1}, {0}};
	static const struct argp argp = {
		.options = options,
		.parser = parse_key,
		.doc = "TCP echo server on coronet: DPDK, lwIP, one coroutine "
		       "a connection.\vWords after -- go to DPDK's EAL.",
		.children = children,
	};
	struct echo_opts opts = {.port = 7777};
	struct net_stack *stack;
	int err;

	net_log_name("coronet.echo");
	opts_set_version("coronet-echo");
	opt_use_place(net_config_place);
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
