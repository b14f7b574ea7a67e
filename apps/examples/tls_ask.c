/* Sends a line to a server with TLS and prints what comes back:
 * example-tls-ask ADDRESS:PORT NAME CA.pem OPTIONS */
#include <stdio.h>
#include <string.h>

#include <coronet/net_tls.h>

static struct net_addr server;
static struct net_dial_opts dial;
static int status = 1;

static void print_answer(struct net_conn *conn)
{
	char text[4096];
	long n;

	net_send_all(conn, "hello\n", 6);
	net_shutdown(conn, NET_SHUT_WR);
	while ((n = net_recv(conn, text, sizeof(text))) > 0)
		fwrite(text, 1, (size_t)n, stdout);
	if (n < 0)
		fprintf(stderr, "%s: %s\n", strerror((int)-n),
			net_tls_error(conn));
	status = n < 0;
}

static void *ask_server(void *arg)
{
	struct net_conn *conn;
	int err = net_link_wait(net_stack_here(), 10000);

	if (err == 0)
		err = net_dial(net_stack_here(), &server, &dial, &conn);
	if (err < 0) {
		fprintf(stderr, "%s: %s\n", strerror(-err),
			net_tls_error(NULL));
	} else {
		print_answer(conn);
		net_close_wait(conn, net_clock_ns() + 2000000000);
	}
	net_stack_stop(net_stack_here());
	return NULL;
}

int main(int argc, char **argv)
{
	struct net_tls_opts opts = {0};
	struct net_stack *stack;

	if (argc < 4 || net_addr_parse(argv[1], -1, &server) < 0)
		return 2;
	dial.tls_name = argv[2];
	opts.ca = argv[3];
	if (net_tls_client(&opts, &dial.tls) < 0) {
		fprintf(stderr, "%s\n", opts.error);
		return 1;
	}
	if (net_stack_open_args(argc - 3, argv + 3, &stack) < 0)
		return 1;
	net_spawn(stack, "ask", ask_server, NULL);
	net_stack_run(stack);
	net_stack_close(stack);
	net_tls_free(dial.tls);
	return status;
}
