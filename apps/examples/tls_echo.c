/* An echo server with TLS: example-tls-echo CERT.pem KEY.pem OPTIONS */
#include <stdio.h>

#include <coronet/net_tls.h>

static void echo(struct net_conn *conn, void *arg)
{
	struct net_view view;

	while (net_recv_view(conn, &view) > 0)
		if (net_send_view(conn, &view) < 0)
			break;
} /* returning sends close_notify and closes the connection */

int main(int argc, char **argv)
{
	struct net_tls_opts opts = {.n_pairs = 1};
	struct net_tls *tls = NULL;
	struct net_stack *stack;
	int err;

	if (argc < 3)
		return 2;
	opts.pairs[0] = (struct net_tls_pair){argv[1], argv[2]};
	err = net_tls_server(&opts, &tls);
	if (err < 0)
		fprintf(stderr, "%s\n", opts.error);
	else
		err = net_stack_open_args(argc - 2, argv + 2, &stack);
	if (err == 0)
		err = net_serve_tls(stack, &net_addr_any(7777), NULL, tls, echo,
				    NULL);
	net_tls_free(tls);
	return net_exit_status(err);
}
