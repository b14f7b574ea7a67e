/*
 * Finds the connection of a segment, in constant time.
 */
#include "netstack/tcp/tcp.h"

#include <errno.h>
#include <string.h>

#include "lwip/ip.h"
#include "lwip/prot/tcp.h"

/* Connections that have left the table: net_for_each_conn() */
static NET_SHARD_VAR unsigned removals;
#define removals NET_SHARD(removals)

int net_demux_init(unsigned max_conns)
{
	net_here()->buckets =
		net_mem_map_table(max_conns, &net_here()->bucket_mask);
	return net_here()->buckets ? 0 : -ENOMEM;
}

void net_demux_fini(void)
{
	net_mem_unmap_table(net_here()->buckets, net_here()->bucket_mask);
	net_here()->buckets = NULL;
}

/*
 * A keyed product, folded: flooding one bucket needs the key. Products of
 * consecutive ports are equidistant, and with some keys take only a part of the
 * values that their low bits can have, so a second product mixes all bits
 * (Knuth's multiplicative hashing).
 */
static inline uint32_t mix_words(uint64_t a, uint64_t b)
{
	unsigned __int128 m = (unsigned __int128)(a ^ net_here()->hash_key[0]) *
			      (b ^ net_here()->hash_key[1]);
	uint64_t folded = (uint64_t)m ^ (uint64_t)(m >> 64);

	return (uint32_t)(folded * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static inline uint32_t hash_ipv4(uint32_t local, uint32_t remote,
				 uint16_t local_port, uint16_t remote_port)
{
	return mix_words((uint64_t)remote << 32 | local,
			 (uint64_t)remote_port << 16 | local_port);
}

static uint32_t hash_ipv6(const uint32_t *local, const uint32_t *remote,
			  uint16_t local_port, uint16_t remote_port)
{
	uint64_t a = (uint64_t)mix_words((uint64_t)local[0] << 32 | local[1],
					 (uint64_t)local[2] << 32 | local[3]);
	uint64_t b = (uint64_t)mix_words((uint64_t)remote[0] << 32 | remote[1],
					 (uint64_t)remote[2] << 32 | remote[3]);

	return mix_words(a << 32 | b, (uint64_t)remote_port << 16 | local_port);
}

static inline uint32_t hash_of(const ip_addr_t *local, uint16_t local_port,
			       const ip_addr_t *remote, uint16_t remote_port)
{
	if (IP_IS_V6(local))
		return hash_ipv6(ip_2_ip6(local)->addr, ip_2_ip6(remote)->addr,
				 local_port, remote_port);
	return hash_ipv4(ip_2_ip4(local)->addr, ip_2_ip4(remote)->addr,
			 local_port, remote_port);
}

static inline struct net_conn **bucket_of(uint32_t hash)
{
	return &net_here()->buckets[hash & net_here()->bucket_mask];
}

/* Both ports lie side by side: one word excludes most strangers. */
static inline bool has_ports(const struct net_conn *conn, uint16_t local_port,
			     uint16_t remote_port)
{
	uint32_t both;

	memcpy(&both, &conn->pcb.local_port, sizeof(both));
	return both == ((uint32_t)remote_port << 16 | local_port);
}

static inline bool conn_matches(const struct net_conn *conn,
				const ip_addr_t *local, uint16_t local_port,
				const ip_addr_t *remote, uint16_t remote_port)
{
	return has_ports(conn, local_port, remote_port) &&
	       ip_addr_eq(&conn->pcb.remote_ip, remote) &&
	       ip_addr_eq(&conn->pcb.local_ip, local);
}

struct net_conn *net_demux_find_hashed(uint32_t hash, const ip_addr_t *local,
				       uint16_t local_port,
				       const ip_addr_t *remote,
				       uint16_t remote_port)
{
	struct net_conn *conn = *bucket_of(hash);

	for (; conn; conn = conn->pcb.hash_next)
		if (conn_matches(conn, local, local_port, remote, remote_port))
			break;
	return conn;
}

uint32_t net_demux_hash(const ip_addr_t *local, uint16_t local_port,
			const ip_addr_t *remote, uint16_t remote_port)
{
	return hash_of(local, local_port, remote, remote_port);
}

struct net_conn *net_demux_find(const ip_addr_t *local, uint16_t local_port,
				const ip_addr_t *remote, uint16_t remote_port)
{
	return net_demux_find_hashed(
		hash_of(local, local_port, remote, remote_port), local,
		local_port, remote, remote_port);
}

struct net_conn *net_demux_find4(uint32_t hash, uint32_t local,
				 uint16_t local_port, uint32_t remote,
				 uint16_t remote_port)
{
	struct net_conn *conn = *bucket_of(hash);

	net_here()->rx_hash = hash;
	for (; conn; conn = conn->pcb.hash_next) {
		const struct tcp_pcb *pcb = &conn->pcb;

		if (has_ports(conn, local_port, remote_port) &&
		    ip_2_ip4(&pcb->remote_ip)->addr == remote &&
		    ip_2_ip4(&pcb->local_ip)->addr == local &&
		    !IP_IS_V6_VAL(pcb->remote_ip))
			break;
	}
	return conn;
}

struct net_conn *net_demux_find_current(const struct tcp_hdr *tcp)
{
	const ip_addr_t *local = ip_current_dest_addr();
	const ip_addr_t *remote = ip_current_src_addr();
	uint16_t local_port = lwip_ntohs(tcp->dest);
	uint16_t remote_port = lwip_ntohs(tcp->src);
	uint32_t hash = hash_of(local, local_port, remote, remote_port);

	net_here()->rx_hash = hash;
	return net_demux_find_hashed(hash, local, local_port, remote,
				     remote_port);
}

uint32_t net_demux_hash_of(const struct net_conn *conn)
{
	return hash_of(&conn->pcb.local_ip, conn->pcb.own_port,
		       &conn->pcb.remote_ip, conn->pcb.remote_port);
}

void net_demux_insert_hashed(struct net_conn *conn, uint32_t hash)
{
	struct net_conn **bucket = bucket_of(hash);

	conn->pcb.own_port = conn->pcb.local_port;
	conn->pcb.hash_next = *bucket;
	*bucket = conn;
	conn->hashed = true;
}

void net_demux_insert(struct net_conn *conn)
{
	conn->pcb.own_port = conn->pcb.local_port;
	net_demux_insert_hashed(conn, net_demux_hash_of(conn));
}

void net_demux_remove(struct net_conn *conn)
{
	struct net_conn **at;

	if (!conn->hashed)
		return;
	for (at = bucket_of(net_demux_hash_of(conn)); *at != conn;)
		at = &(*at)->pcb.hash_next;
	*at = conn->pcb.hash_next;
	removals++;
	conn->hashed = false;
	if (unlikely(conn->announced))
		++*net_turn_of(net_demux_hash_of(conn));
}

static inline uint32_t hash_frame(const struct glue_frame *frame)
{
	const uint8_t *l3 = frame->data + frame->l3_off;
	const struct tcp_hdr *tcp = (const void *)(frame->data + frame->l4_off);
	uint32_t addrs[8]; /* source, destination */

	if (frame->flags & GLUE_FRAME_IP4) {
		memcpy(addrs, l3 + 12, 8);
		return hash_ipv4(addrs[1], addrs[0], lwip_ntohs(tcp->dest),
				 lwip_ntohs(tcp->src));
	}
	memcpy(addrs, l3 + 8, 32);
	return hash_ipv6(addrs + 4, addrs, lwip_ntohs(tcp->dest),
			 lwip_ntohs(tcp->src));
}

/* This many connections stay in the cache by themselves. */
#define CACHED_CONNS 2048u
/* Lines of a segment that is acknowledged: itself, its pbuf, its TCP header. */
#define SEG_LINES 3u

/*
 * A burst's buckets are fetched first; when the first of them has come, so
 * have most, and every connection's hot lines are fetched; then what these lead
 * to: the line of the coroutine that will be woken, the segment that is
 * acknowledged, and the counters of a connection that has some. A miss is then
 * paid once a burst and not once a frame. The bytes that a coroutine needs to
 * run, coro fetches itself. (Always inline: gcc believes that a function which
 * only prefetches has no effect, and removes calls of it.)
 */
static inline __attribute__((always_inline)) void
prefetch_conns(const uint32_t *hashes, unsigned n)
{
	struct net_conn *conns[GLUE_BURST];

	for (unsigned i = 0; i < n; i++)
		__builtin_prefetch(bucket_of(hashes[i]));
	for (unsigned i = 0; i < n; i++) {
		const char *conn = (void *)(conns[i] = *bucket_of(hashes[i]));

		for (unsigned line = 0; conn && line < NET_CONN_LINES; line++)
			if (line != NET_CONN_COLD_LINE)
				__builtin_prefetch(conn + 64 * line);
	}
	for (unsigned i = 0; i < n; i++) {
		const struct net_conn *conn = conns[i];

		if (!conn)
			continue;
		__builtin_prefetch(conn->reader);
		for (unsigned line = 0; line < SEG_LINES; line++)
			__builtin_prefetch((const char *)conn->pcb.unacked +
					   64 * line);
		__builtin_prefetch(conn->ext);
	}
}

void net_demux_hash_burst(struct glue_frame *const *frames, unsigned n,
			  uint32_t *hashes)
{
	for (unsigned i = 0; i < n; i++)
		hashes[i] = hash_frame(frames[i]);
	if (net_here()->n_conns > CACHED_CONNS)
		prefetch_conns(hashes, n);
}

void net_for_each_conn(void (*fn)(struct net_conn *conn))
{
	for (uint32_t i = 0; i <= net_here()->bucket_mask; i++) {
		struct net_conn *conn = net_here()->buckets[i];

		while (conn) {
			unsigned before = removals;

			fn(conn);
			conn = removals == before ? conn->pcb.hash_next
						  : net_here()->buckets[i];
		}
	}
}
