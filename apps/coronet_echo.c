/*
 * coronet-echo: sends back what it receives, one coroutine a connection.
 */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <coronet/net.h>

const char *argp_program_version = "coronet-echo " CORONET_VERSION;

struct echo_opts {
	struct net_opts net;
	long port;
};

static void echo(struct net_conn *conn, void *arg)
{
	struct net_view view;

	while (net_recv_view(conn, &view) > 0)
		if (net_send_view(conn, &view) < 0)
			break;
}

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	struct echo_opts *opts = state->input;
	char *end;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &opts->net;
		return 0;
	case 'p':
		opts->port = strtol(arg, &end, 10);
		if (end == arg || *end || opts->port < 1 || opts->port > 65535)
			argp_failure(state, 2, 0,
				     "--port '%s': expected a number from 1 to "
				     "65535, as in --port 7777",
				     arg);
		return 0;
	case ARGP_KEY_ARG:
		argp_failure(state, 2, 0,
			     "'%s': expected options only; --help lists them",
			     arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"port", 'p', "N", 0, "TCP port to listen on (default 7777)",
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

	net_opts_init(&opts.net);
	err = net_parse_args(&argp, argc, argv, &opts.net, &opts);
	if (err == 0)
		err = net_stack_open(&opts.net, &stack);
	if (err < 0) {
		fprintf(stderr, "coronet-echo: %s\n", opts.net.error);
		return net_exit_status(err);
	}
	return net_exit_status(
		net_serve(stack, &net_addr_any((uint16_t)opts.port), echo,
			  NULL));
}
