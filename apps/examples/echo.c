/* An echo server: every client receives what it has sent. */
#include <coronet/net.h>

static void echo(struct net_conn *conn, void *arg)
{
	struct net_view view;

	while (net_recv_view(conn, &view) > 0)
		if (net_send_view(conn, &view) < 0)
			break;
} /* returning closes the connection */

int main(int argc, char **argv)
{
	struct net_stack *stack;
	int err = net_stack_open_args(argc, argv, &stack);

	if (err == 0)
		err = net_serve(stack, &net_addr_any(7777), echo, NULL);
	return net_exit_status(err);
}
