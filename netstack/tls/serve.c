/*
 * Serving with TLS.
 */
#include "netstack/tls/tls_priv.h"

#include <errno.h>
#include <stdio.h>

int net_serve_tls(struct net_stack *stack, const struct net_addr *addr,
		  const struct net_limits *limits, struct net_tls *tls,
		  net_handler handler, void *arg)
{
	if (tls && tls->is_server)
		return net_serve_with(stack, addr, limits, tls, handler, arg);
	fprintf(stderr, "%s: net_serve_tls: no server's context\n",
		program_invocation_short_name);
	net_stack_close(stack);
	return -EINVAL;
}
