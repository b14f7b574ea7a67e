/* Both ends of a bulk stream, for bench-bulk and bench-bulk-loop. */
#include "tests/bench/bulk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bulk bulk;

static void discard(struct net_conn *conn, struct net_view *view)
{
	*bulk.received += view->len;
	net_view_release(conn, view);
}

void bulk_serve(struct net_conn *conn, void *arg)
{
	struct net_view view;

	while (net_recv_view(conn, &view) > 0) {
		if (!bulk.echo)
			discard(conn, &view);
		else if (net_send_view(conn, &view) < 0)
			break;
	}
}

static void *read_back(void *arg)
{
	struct net_conn *conn = arg;
	struct net_view view;

	while (net_recv_view(conn, &view) > 0)
		discard(conn, &view);
	return NULL;
}

/* All sends share the buffer: nothing to free. */
static void keep_lent(void *arg)
{
}

void *bulk_send(void *arg)
{
	struct net_dial_opts dial = {0};
	struct net_addr to;
	struct net_conn *conn;
	long n;
	int err;

	net_addr_parse(bulk.to, BULK_PORT, &to);
	if (bulk.from)
		net_addr_parse(bulk.from, 0, &dial.source);
	err = net_dial(bulk.stack, &to, &dial, &conn);
	if (err == -ECANCELED)
		return NULL; /* the stack stops */
	if (err < 0) {
		fprintf(stderr, "bulk: %s: %s\n", bulk.to, strerror(-err));
		exit(1);
	}
	net_spawn(bulk.stack, "back", read_back, conn);
	do
		n = bulk.given ? net_send_owned(conn, bulk.block, bulk.size,
						keep_lent, NULL)
			       : net_send_all(conn, bulk.block, bulk.size);
	while (n > 0);
	return NULL;
}
