/*
 * IDs of connections, as an operator reads and types them:
 * SHARD-HASH-PLACE-TURN.
 *
 * SHARD, HASH and PLACE identify the place in memory of a connection and a hash
 * of its addresses and ports. A later connection may have the same three; TURN
 * distinguishes them. It counts, by hash, the ends of connections whose ID was
 * shown: only such an ID may be used later, so nothing is stored for others. If
 * another connection of the same hash slot ends, the ID of a live connection
 * may become invalid as well; the next listing shows its new ID. A connection
 * that is traced keeps its ID, which its events have.
 */
#include "netstack/control/control_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t turn_of(const struct net_conn *conn, uint32_t hash)
{
	const struct net_trace *trace =
		net_traced(conn) ? net_trace_of(conn) : NULL;

	return trace ? trace->turn : *net_turn_of(hash);
}

void net_id_format(struct net_conn *conn, char *text, size_t len)
{
	uint32_t hash = net_demux_hash_of(conn);

	conn->announced = true;
	snprintf(text, len, "%u-%08x-%x-%x", net_here()->shard, hash,
		 net_mem_ref(conn), turn_of(conn, hash));
}

struct id {
	unsigned shard;
	uint32_t hash, place, turn;
};

static bool parse_id(const char *text, struct id *out)
{
	int end = 0;

	return strspn(text, "0123456789abcdef-") == strlen(text) &&
	       sscanf(text, "%3u-%8" SCNx32 "-%8" SCNx32 "-%8" SCNx32 "%n",
		      &out->shard, &out->hash, &out->place, &out->turn,
		      &end) == 4 &&
	       text[end] == '\0';
}

int net_id_shard(const char *text)
{
	struct id id;

	return parse_id(text, &id) ? (int)id.shard : -EINVAL;
}

struct net_conn *net_id_find(const char *text)
{
	struct net_conn *conn;
	struct id id;

	if (!parse_id(text, &id) || id.shard != net_here()->shard)
		return NULL;
	conn = net_here()->buckets[id.hash & net_here()->bucket_mask];
	for (; conn; conn = conn->pcb.hash_next)
		if (conn->announced && net_mem_ref(conn) == id.place &&
		    net_demux_hash_of(conn) == id.hash &&
		    turn_of(conn, id.hash) == id.turn)
			return conn;
	return NULL;
}
