/*
 * raw-echo: coronet-echo without coroutines, on the same stack. Each connection
 * is watched, and echoed at the end of lwIP's callback. The difference to
 * coronet-echo is the cost of coroutines.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <coronet/net.h>

static void on_change(struct net_conn *conn, struct net_watch *watch)
{
	struct net_view view;
	long n;

	while ((n = net_recv_view(conn, &view)) > 0)
		if ((n = net_send_view(conn, &view)) < 0)
			break;
	if (n != -EAGAIN)
		net_close(conn);
}

static void *accept_all(void *arg)
{
	static struct net_watch watch = {.fn = on_change};
	struct net_conn *conn;

	while (net_accept(arg, &conn) == 0) {
		net_set_watch(conn, &watch);
		on_change(conn, &watch);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct net_listener *listener;
	struct net_stack *stack;

	if (net_stack_open_args(argc, argv, &stack) < 0)
		return 1;
	if (net_listen(stack, &net_addr_any(7777), 0, &listener) < 0)
		return 1;
	net_spawn(stack, "accept", accept_all, listener);
	puts("listening on *:7777");
	fflush(stdout);
	net_stack_run(stack);
	net_listener_close(listener);
	net_stack_close(stack);
	return 0;
}
