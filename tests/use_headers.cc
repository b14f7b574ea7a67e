/*
 * A C++ program uses every public header as a C program does. Compiled alone,
 * never run: check_headers.sh.
 */
#include <coronet/coro.h>
#include <coronet/coro_chan.h>
#include <coronet/coro_sync.h>
#include <coronet/net.h>

static void serve(net_conn *conn, void *)
{
	char buf[16];
	const iovec iov = {buf, sizeof(buf)};
	long n = net_recvv(conn, &iov, 1);

	if (n > 0)
		net_send_all(conn, buf, (size_t)n);
}

int main(int argc, char **argv)
{
	net_addr addr = net_addr_any(80);
	net_listener *listener;
	net_stack *stack;
	coro_mutex mutex = {};

	if (net_stack_open_args(argc, argv, &stack) < 0)
		return 1;
	coro_mutex_trylock(&mutex);
	addr.port = 81;
	net_listen(stack, &addr, 0, &listener);
	return net_serve(stack, &net_addr_any(80), serve, nullptr);
}
