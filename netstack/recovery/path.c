/*
 * The path MTU: as reported by routers (RFC 1191, RFC 8201), or guessed after
 * long segments were lost, if they do not report it (after RFC 4821). This is
 * the one place that sets a connection's MSS.
 *
 * A "too big" is accepted only if it quotes a segment that is in flight on a
 * live connection (RFC 5927 4.1), and never below what every path must carry.
 * It takes effect at once: segments that are too long are split
 * (recovery/recut.c) and resent. The path MTU of a destination is cached for
 * ten minutes in a table of fixed size, which new connections use.
 */
#include "netstack/recovery/recovery_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lwip/prot/icmp.h"
#include "lwip/prot/icmp6.h"
#include "lwip/prot/ip4.h"
#include "lwip/prot/ip6.h"

#define HEADERS4   40u /* IP and TCP */
#define HEADERS6   60u
#define FLOOR4	   552u	 /* as Linux: less is an attack or no TCP path */
#define FLOOR6	   1280u /* RFC 8200 5 */
#define QUOTE_AT   8u	 /* the packet behind an ICMP header */
#define MAX_CUTS   8u	 /* of one destination; then to the floor at once */
#define AGE_NS	   INT64_C(600000000000) /* RFC 1191 6.3: ten minutes */
#define GUESS_NS   INT64_C(60000000000)	 /* for a guess */
#define WAYS	   4u
#define BLACK_HOLE 3u  /* timeouts in a row, RFC 1122 4.2.3.5's R1 */
#define LEAST_STEP 64u /* bytes by which a guess must lower the MTU */

/* MTUs that are tried one after the other if no router reports one. */
static const uint16_t guesses[] = {4352, 1500, 1280, 576};

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* Header bytes of a segment with data. */
static unsigned headers_of(const struct tcp_pcb *pcb)
{
	return (IP_IS_V6_VAL(pcb->remote_ip) ? HEADERS6 : HEADERS4) +
	       net_ts_bytes(pcb);
}

static unsigned floor_of(const ip_addr_t *ip)
{
	return IP_IS_V6(ip) ? FLOOR6 : FLOOR4;
}

/* ---- cache of destinations ---- */

#undef net_paths
NET_SHARD_VAR struct net_path *net_paths;
#define net_paths NET_SHARD(net_paths)

int net_path_init(void)
{
	net_paths = calloc(NET_PATHS, sizeof(*net_paths));
	return net_paths ? 0 : -ENOMEM;
}

void net_path_fini(void)
{
	free(net_paths);
	net_paths = NULL;
}

static struct net_path *set_of(const ip_addr_t *ip)
{
	uint64_t a, b = net_here()->hash_key[1];
	const uint32_t *w;

	if (IP_IS_V6(ip)) {
		w = ip_2_ip6(ip)->addr;
		a = (uint64_t)w[0] << 32 | w[1];
		b ^= (uint64_t)w[2] << 32 | w[3];
	} else {
		a = ip_2_ip4(ip)->addr;
	}
	a = (a ^ net_here()->hash_key[0]) * UINT64_C(0x9e3779b97f4a7c15);
	a = (a ^ a >> 29 ^ b) * UINT64_C(0xbf58476d1ce4e5b9);
	return &net_paths[(a >> 40) % (NET_PATHS / WAYS) * WAYS];
}

static struct net_path *find_path(const ip_addr_t *ip)
{
	struct net_path *path = set_of(ip);

	for (unsigned i = 0; i < WAYS; i++, path++)
		if (path->mtu && ip_addr_eq(&path->ip, ip))
			return path;
	return NULL;
}

unsigned net_path_mtu(const ip_addr_t *ip)
{
	const struct net_path *path;

	if (!net_here()->paths_used)
		return 0;
	path = find_path(ip);
	return path && path->until_ns > net_here()->now_ns ? path->mtu : 0;
}

/* The entry of a destination; a new one takes the place of the oldest. */
static struct net_path *entry_for(const ip_addr_t *ip)
{
	struct net_path *path = find_path(ip), *set = set_of(ip);

	if (path)
		return path;
	path = set;
	for (unsigned i = 1; i < WAYS; i++)
		if (set[i].until_ns < path->until_ns)
			path = &set[i];
	*path = (struct net_path){.ip = *ip};
	net_here()->paths_used = true;
	return path;
}

/*
 * A guess is believed for a minute and then, while it proves right each time,
 * for twice as long as before.
 */
static void remember_mtu(const ip_addr_t *ip, unsigned mtu, bool guessed)
{
	struct net_path *path = entry_for(ip);
	int64_t age_ns = AGE_NS;

	if (path->until_ns <= net_here()->now_ns)
		path->cuts = 0;
	if (guessed) {
		age_ns = GUESS_NS << LWIP_MIN(path->guesses, 4);
		if (age_ns > AGE_NS)
			age_ns = AGE_NS;
		path->guesses += path->guesses < 255;
	}
	path->mtu = (uint16_t)mtu;
	path->cuts += path->cuts < 255;
	path->until_ns = net_here()->now_ns + age_ns;
}

/*
 * DF is set (RFC 1191), except if a path takes less than TCP's least packet: a
 * router may fragment those.
 */
bool net_path_df(const ip4_addr_t *dest)
{
	ip_addr_t ip;

	if (!net_here()->paths_used)
		return !net_here()->pmtud_off;
	ip_addr_copy_from_ip4(ip, *dest);
	return net_path_mtu(&ip) != FLOOR4;
}

/* ---- a connection's MSS ---- */

/* Lowers the MSS; that of the handshake is kept, to go back to. */
static void set_mss(struct net_conn *conn, unsigned mss)
{
	struct tcp_pcb *pcb = &conn->pcb;
	struct net_conn_ext *ext;

	if (!(pcb->flags & NET_TF_PATH)) {
		ext = net_conn_ext(conn);
		if (ext) {
			ext->full_mss = pcb->mss & 0x3fff;
			tcp_set_flags(pcb, NET_TF_PATH);
		}
	}
	pcb->mss = (uint16_t)mss;
	/*
	 * The room behind the last byte was computed with the old MSS. lwIP
	 * would keep the room beyond the new MSS, and fill it after a later
	 * segment, whose memory may be lent.
	 */
	pcb->unsent_oversize = 0;
}

static unsigned mss_for(const struct tcp_pcb *pcb, unsigned mtu)
{
	unsigned mss = mtu - headers_of(pcb);

	return LWIP_MAX(mss, NET_MSS_FLOOR);
}

void net_path_settle(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;
	unsigned mtu;

	if (pcb->mss < NET_MSS_FLOOR)
		pcb->mss = NET_MSS_FLOOR;
	if (pcb->state < ESTABLISHED)
		return;
	pcb->mss = (uint16_t)(pcb->mss - net_ts_bytes(pcb)); /* RFC 6691 */
	mtu = net_path_mtu(&pcb->remote_ip);
	if (mtu && mss_for(pcb, mtu) < pcb->mss)
		set_mss(conn, mss_for(pcb, mtu));
}

/* The entry of its path has grown old: it may send full segments again. */
void net_path_review(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;
	unsigned mtu = net_path_mtu(&pcb->remote_ip);
	unsigned full = conn->ext->full_mss;

	if (mtu || full <= pcb->mss || pcb->state < ESTABLISHED)
		return;
	tcp_clear_flags(pcb, NET_TF_PATH);
	pcb->mss = (uint16_t)full;
}

/*
 * Cuts queued segments to fit, then lowers the MSS; returns whether there was
 * anything to do. Without memory for unsent segments nothing changes; sent ones
 * that stay too long are cut when they time out.
 */
static bool lower_mss(struct net_conn *conn, unsigned mtu)
{
	struct tcp_pcb *pcb = &conn->pcb;
	unsigned mss = LWIP_MIN(mss_for(pcb, mtu), pcb->mss);

	if (mss == pcb->mss && (!pcb->unacked || pcb->unacked->len <= mss))
		return false;
	if (!net_recut_unsent(conn, mss))
		return false;
	if (mss < pcb->mss)
		set_mss(conn, mss);
	net_recut_unacked(conn, mss);
	return true;
}

unsigned net_path_note(const ip_addr_t *remote, unsigned mtu)
{
	const struct net_path *path = find_path(remote);
	unsigned least = floor_of(remote), known = net_path_mtu(remote);

	if (mtu < least || (known && path->cuts >= MAX_CUTS))
		mtu = least;
	if (!known || mtu < known)
		remember_mtu(remote, mtu, false);
	return mtu;
}

void net_path_too_big(struct net_conn *conn, unsigned mtu)
{
	if (lower_mss(conn, net_path_note(&conn->pcb.remote_ip, mtu))) {
		net_here()->stats.path_mtu_lowered++;
		conn->pcb.nrtx = 0;
		net_recovery_resume_cut(conn);
	}
}

/* ---- black holes: routers that report no MTU ---- */

/* The largest guess well below an MTU; 0: there is no smaller one. */
static unsigned guess_below(const ip_addr_t *ip, unsigned mtu)
{
	for (unsigned i = 0; i < COUNT(guesses); i++)
		if (guesses[i] + LEAST_STEP <= mtu &&
		    guesses[i] >= floor_of(ip))
			return guesses[i];
	return 0;
}

/*
 * A full segment has timed out, which the next guess would cut: after three in
 * a row the path may drop long packets (RFC 4821 7.7), and each further timeout
 * makes a further guess. An MTU that other connections know already is used at
 * once. If the peer was merely gone, the cost is small segments for a minute.
 */
void net_path_timed_out(struct net_conn *conn)
{
	const struct net_port *port = net_conn_port(conn);
	struct tcp_pcb *pcb = &conn->pcb;
	const ip_addr_t *remote = &pcb->remote_ip;
	unsigned headers = headers_of(pcb);
	unsigned mtu = net_path_mtu(remote);
	unsigned head, least = pcb->mss + headers;

	if (!pcb->unacked || net_here()->pmtud_off ||
	    (port && port->no_carrier)) /* which explains the loss */
		return;
	head = pcb->unacked->len + headers;
	if (mtu && mtu < least)
		least = mtu;
	if (head > least) {
		lower_mss(conn, least);
		return;
	}
	mtu = guess_below(remote, head);
	if (mtu == 0 || pcb->nrtx + 1u < BLACK_HOLE)
		return;
	if (lower_mss(conn, mtu)) {
		remember_mtu(remote, mtu, true);
		net_here()->stats.path_mtu_guessed++;
	}
}
