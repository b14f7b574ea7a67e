/*
 * flow: a stream of bytes in one direction between two of our stacks, or to and
 * from a kernel's. `flow sink PORT` counts the received bytes and prints the
 * count ten times a second; `flow source ADDRESS:PORT` sends until a signal.
 * The options of any appliance follow. Each line of the sink: seconds since the
 * first byte, bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <coronet/net.h>

#define PRINT_NS 100000000

static uint8_t data[65536];
static uint64_t taken;
static int64_t begun_ns;
static struct net_addr target;
static int status;

static void receive_stream(struct net_conn *conn, void *arg)
{
	struct net_view view;
	long n;

	while ((n = net_recv_view(conn, &view)) > 0) {
		if (begun_ns == 0)
			begun_ns = net_clock_ns();
		taken += (uint64_t)n;
		net_view_release(conn, &view);
	}
}

static void *print_flow(void *arg)
{
	while (coro_sleep_ns(PRINT_NS) == 0) {
		if (begun_ns == 0)
			continue;
		printf("%.6f %llu\n", (double)(net_clock_ns() - begun_ns) / 1e9,
		       (unsigned long long)taken);
		fflush(stdout);
	}
	return NULL;
}

static void *send_on(void *arg)
{
	struct net_stack *stack = arg;
	struct net_conn *conn;
	int err = net_link_wait(stack, 10000);

	if (err == 0)
		err = net_dial(stack, &target, NULL, &conn);
	if (err < 0) {
		fprintf(stderr, "flow: no connection: %s\n", strerror(-err));
		status = 1;
		net_stack_stop(stack);
		return NULL;
	}
	while (net_send_all(conn, data, sizeof(data)) > 0)
		;
	net_close(conn);
	return NULL;
}

int main(int argc, char **argv)
{
	struct net_stack *stack;
	bool sink = argc > 2 && strcmp(argv[1], "sink") == 0;
	int err;

	if (argc > 2 && sink)
		target = net_addr_any((uint16_t)strtoul(argv[2], NULL, 10));
	if (argc < 3 || (!sink && (strcmp(argv[1], "source") != 0 ||
				   net_addr_parse(argv[2], -1, &target) < 0))) {
		fprintf(stderr, "usage: flow sink PORT|source ADDRESS:PORT "
				"OPTION...\n");
		return 2;
	}
	argv[2] = argv[0];
	err = net_stack_open_args(argc - 2, argv + 2, &stack);
	if (err < 0)
		return net_exit_status(err);
	if (sink) {
		net_spawn(stack, "print", print_flow, NULL);
		return net_exit_status(
			net_serve(stack, &target, receive_stream, NULL));
	}
	net_spawn(stack, "source", send_on, stack);
	net_stack_run(stack);
	net_stack_close(stack);
	return status;
}
