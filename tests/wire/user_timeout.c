/*
 * user-timeout: sends without end to each client, with the user timeout that
 * the client asks for. `user-timeout PORT` reads a line with a number of ms
 * from each client, sets that with net_set_user_timeout(), and prints a line
 * when the client has been given up: the number, and the error. The options of
 * any appliance follow.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <coronet/net.h>

#define LINE_MAX_BYTES 16

/* Returns the number of ms that the client sends; -1: it sends no number. */
static long asked_ms(struct net_conn *conn)
{
	char line[LINE_MAX_BYTES + 1] = "", *end;
	size_t len = 0;
	long n, ms;

	while (len < LINE_MAX_BYTES && !strchr(line, '\n')) {
		n = net_recv(conn, line + len, LINE_MAX_BYTES - len);
		if (n <= 0)
			return -1;
		len += (size_t)n;
	}
	ms = strtol(line, &end, 10);
	return end != line && *end == '\n' ? ms : -1;
}

static void serve_client(struct net_conn *conn, void *arg)
{
	static const char data[65536];
	long ms = asked_ms(conn), err;

	if (ms < 0)
		return;
	err = net_set_user_timeout(conn, (unsigned)ms);
	while (err >= 0)
		err = net_send_all(conn, data, sizeof(data));
	printf("gave up %ld: %s\n", ms, strerror((int)-err));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct net_stack *stack;
	struct net_addr any;
	int err;

	if (argc < 2) {
		fprintf(stderr, "usage: user-timeout PORT OPTION...\n");
		return 2;
	}
	any = net_addr_any((uint16_t)strtoul(argv[1], NULL, 10));
	argv[1] = argv[0];
	err = net_stack_open_args(argc - 1, argv + 1, &stack);
	if (err < 0)
		return net_exit_status(err);
	return net_exit_status(net_serve(stack, &any, serve_client, NULL));
}
