/*
 * How many handshakes may be under way: of a context, and of one source.
 *
 * A source is what conn/clients.c takes for one: an IPv4 address, or an IPv6
 * /64. Sources whose hashes are equal share their part; the hash has a random
 * key, so a client cannot choose with whom.
 */
#include "netstack/tls/tls_priv.h"

#include <errno.h>
#include <stdlib.h>

#define SOURCES 1024u

/* The handshakes of a source; of a client's context, all. */
static struct net_tls_source *find_source(struct net_tls *tls,
					  const struct net_conn *conn)
{
	struct net_tls_source **all = &tls->sources[net_here()->shard];
	unsigned i = 0;

	if (!*all)
		*all = calloc(tls->is_server ? SOURCES : 1, sizeof(**all));
	if (tls->is_server)
		i = net_clients_hash(&conn->pcb.remote_ip) % SOURCES;
	return *all ? *all + i : NULL;
}

/* Returns whether the shard may have one more than n, of `most` of the program.
 */
static bool has_room(unsigned n, unsigned most)
{
	unsigned part =
		net_part_of(most, net_here()->n_shards, net_here()->shard);

	return n < LWIP_MAX(part, 1u);
}

int net_tls_admit(struct net_tls *tls, const struct net_conn *conn)
{
	const struct net_tls_source *source = find_source(tls, conn);

	if (source && !net_budget_is_short() &&
	    has_room(tls->handshakes[net_here()->shard], tls->max_handshakes) &&
	    (!tls->is_server || has_room(source->n, tls->max_per_source)))
		return 0;
	net_here()->stats.tls_refused++;
	return !source || net_budget_is_short() ? -ENOMEM : -EUSERS;
}

struct net_tls_source *net_tls_count(struct net_tls *tls,
				     const struct net_conn *conn)
{
	struct net_tls_source *source = find_source(tls, conn);

	tls->handshakes[net_here()->shard]++;
	atomic_fetch_add(&tls->refs, 1);
	source->tls = tls;
	source->n++;
	return source;
}

void net_tls_uncount(void *arg)
{
	struct net_tls_source *source = arg;

	source->n--;
	source->tls->handshakes[net_here()->shard]--;
	net_tls_free(source->tls); /* and the source, if it was the last */
}
