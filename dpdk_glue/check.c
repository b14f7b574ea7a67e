/*
 * Checks frames other than plain TCP segments: ARP, ICMP, neighbour discovery,
 * options and extension headers. lwIP reads past the end of some of these (ARP,
 * the routing header, options of neighbour discovery), and takes a link-layer
 * address from whichever option comes first; here all must be well formed.
 *
 * Refused, since nothing here needs them: fragments, routing headers and source
 * routes (RFC 5095, RFC 7126), router solicitations and redirects (this host
 * is no router, and RAs give its gateways), ICMP errors other than "too big"
 * and "port unreachable" for a datagram of UDP, and unused protocols. Of IGMP
 * and MLD, queries and reports pass that routers and hosts of the link may
 * send.
 */
#include "dpdk_glue/check.h"

#include <string.h>

#define ARP_BYTES      28u
#define ICMP_BYTES     8u
#define ND_BYTES       24u /* of a solicitation or an advertisement */
#define RA_BYTES       16u
#define MLD_BYTES      24u
#define IGMP_BYTES     8u
#define ND_HOPS	       255u
#define MAX_EXTENSIONS 4u

enum { NEXT_HOPBYHOP = 0, NEXT_FRAGMENT = 44, NEXT_DESTOPTS = 60 };
enum {
	OPT4_END = 0,
	OPT4_NOP = 1,
	OPT4_LSRR = 131,
	OPT4_SSRR = 137,
	OPT4_ALERT = 148,
	OPT6_ALERT = 5,
};
enum { IGMP_QUERY = 0x11, IGMP_REPORT2 = 0x16 };
enum { ICMP_UNREACHABLE = 3, ICMP_ECHO = 8 };
enum { ICMP_PORT = 3, ICMP_NEEDS_FRAGMENTS = 4, ICMP6_PORT = 4 }; /* codes */
enum {
	ICMP6_UNREACHABLE = 1,
	ICMP6_TOO_BIG = 2,
	ICMP6_ECHO = 128,
	ICMP6_QUERY = 130,
	ICMP6_REPORT = 131,
	ICMP6_ROUTER = 134,
	ICMP6_SOLICITATION = 135,
	ICMP6_ADVERTISEMENT = 136,
};
#define ND_SOLICITED 0x40

/* The address of one neighbour: neither multicast nor zero. */
static bool is_unicast_mac(const uint8_t *mac)
{
	return !(mac[0] & 1) && memcmp(mac, "\0\0\0\0\0\0", 6) != 0;
}

enum glue_verdict glue_check_arp(struct glue_frame *f)
{
	const uint8_t *arp = f->data + f->l3_off;
	unsigned op;

	if (f->seg_len < f->l3_off + ARP_BYTES)
		return GLUE_BAD_FRAME;
	op = glue_get16(arp + 6);
	if (memcmp(arp, "\0\1\10\0\6\4", 6) != 0 || (op != 1 && op != 2) ||
	    !is_unicast_mac(arp + 8))
		return GLUE_REFUSED;
	f->flags |= GLUE_FRAME_ARP;
	return GLUE_KEEP;
}

/* ---- IPv4 ---- */

static enum glue_verdict check_options4(const uint8_t *opt, unsigned left)
{
	while (left && *opt != OPT4_END) {
		unsigned step = 1;

		if (*opt != OPT4_NOP) {
			if (left < 2 || opt[1] < 2 || opt[1] > left)
				return GLUE_BAD_FRAME;
			step = opt[1];
		}
		if (*opt == OPT4_LSRR || *opt == OPT4_SSRR)
			return GLUE_REFUSED;
		opt += step;
		left -= step;
	}
	return GLUE_KEEP;
}

/* Bytes from the transport header on that lie in the first segment. */
static unsigned room_of(const struct glue_frame *f, const struct glue_l4 *l4)
{
	unsigned room = f->seg_len - f->l4_off;

	return room < l4->len ? room : l4->len;
}

static enum glue_verdict check_icmp4(struct glue_frame *f,
				     const struct glue_l4 *l4)
{
	const uint8_t *icmp = f->data + f->l4_off;
	unsigned room = room_of(f, l4);

	if (room < ICMP_BYTES)
		return GLUE_BAD_FRAME;
	f->flags |= GLUE_FRAME_ICMP;
	if (icmp[0] == ICMP_ECHO)
		return GLUE_KEEP;
	if (icmp[0] != ICMP_UNREACHABLE ||
	    (icmp[1] != ICMP_NEEDS_FRAGMENTS && icmp[1] != ICMP_PORT))
		return GLUE_REFUSED;
	if (icmp[1] == ICMP_PORT)
		return room < ICMP_BYTES + GLUE_IP4_BYTES + 8 ||
				       icmp[ICMP_BYTES + 9] != GLUE_PROTO_UDP
			       ? GLUE_REFUSED
			       : GLUE_KEEP;
	return room < ICMP_BYTES + GLUE_IP4_BYTES + 8 ? GLUE_BAD_FRAME
						      : GLUE_KEEP;
}

/* Is there a router alert (RFC 2113) among options that are well formed? */
static bool has_alert4(const uint8_t *opt, const uint8_t *end)
{
	while (opt < end && *opt != OPT4_END) {
		if (*opt == OPT4_ALERT)
			return true;
		opt += *opt == OPT4_NOP ? 1 : opt[1];
	}
	return false;
}

/*
 * RFC 2236: messages go to groups, have a TTL of 1 and a router alert. Only
 * version 1 of a query has none: eight bytes and no response time (RFC 3376
 * 7.1).
 */
static enum glue_verdict check_igmp(struct glue_frame *f,
				    const struct glue_l4 *l4)
{
	const uint8_t *igmp = f->data + f->l4_off;
	const uint8_t *ip = f->data + f->l3_off;
	bool is_version1;

	if (room_of(f, l4) < IGMP_BYTES)
		return GLUE_BAD_FRAME;
	f->flags |= GLUE_FRAME_IGMP;
	if (ip[8] != 1 || l4->addrs[4] >> 4 != 0xe ||
	    (igmp[0] != IGMP_QUERY && igmp[0] != IGMP_REPORT2))
		return GLUE_REFUSED;
	is_version1 =
		igmp[0] == IGMP_QUERY && igmp[1] == 0 && l4->len == IGMP_BYTES;
	return is_version1 || has_alert4(ip + GLUE_IP4_BYTES, igmp)
		       ? GLUE_KEEP
		       : GLUE_REFUSED;
}

static enum glue_verdict check_transport(struct glue_frame *f,
					 const struct glue_l4 *l4)
{
	unsigned room = room_of(f, l4);

	if (l4->proto == GLUE_PROTO_TCP) {
		f->flags |= GLUE_FRAME_TCP;
		return room < GLUE_TCP_BYTES ? GLUE_BAD_FRAME : GLUE_KEEP;
	}
	f->flags |= GLUE_FRAME_UDP;
	return room < 8 ? GLUE_BAD_FRAME : GLUE_KEEP;
}

enum glue_verdict glue_check_rare4(struct glue_frame *f, struct glue_l4 *l4)
{
	const uint8_t *ip = f->data + f->l3_off;
	enum glue_verdict verdict = check_options4(
		ip + GLUE_IP4_BYTES, f->l4_off - f->l3_off - GLUE_IP4_BYTES);

	if (verdict != GLUE_KEEP)
		return verdict;
	if (glue_get16(ip + 6) & 0x3fff)
		return GLUE_REFUSED; /* a fragment: there is no reassembly */
	switch (l4->proto) {
	case GLUE_PROTO_TCP:
	case GLUE_PROTO_UDP:
		return check_transport(f, l4);
	case GLUE_PROTO_ICMP:
		return check_icmp4(f, l4);
	case GLUE_PROTO_IGMP:
		return check_igmp(f, l4);
	default:
		return GLUE_REFUSED;
	}
}

/* ---- IPv6 ---- */

/*
 * Checks that each hop-by-hop or destination option lies within the header, and
 * has no type that asks nodes that do not know it to discard the packet (RFC
 * 8200 4.2).
 */
static enum glue_verdict check_options6(const uint8_t *opt, unsigned left)
{
	while (left) {
		unsigned step = 1;

		if (*opt != 0) {
			if (left < 2 || opt[1] + 2u > left)
				return GLUE_BAD_FRAME;
			step = opt[1] + 2u;
		}
		if (*opt >> 6)
			return GLUE_REFUSED;
		opt += step;
		left -= step;
	}
	return GLUE_KEEP;
}

/* Skips one header with options, or a fragment header without a fragment. */
static enum glue_verdict skip_extension(struct glue_frame *f,
					struct glue_l4 *l4)
{
	const uint8_t *header = f->data + f->l4_off;
	unsigned room = room_of(f, l4), len = 8;
	enum glue_verdict verdict = GLUE_KEEP;

	if (room < 8)
		return GLUE_BAD_FRAME;
	if (l4->proto == NEXT_FRAGMENT) { /* RFC 6946: atomic ones are whole */
		if (glue_get16(header + 2) & 0xfff9)
			return GLUE_REFUSED;
	} else {
		len = 8 * (1u + header[1]);
		if (len > room)
			return GLUE_BAD_FRAME;
		verdict = check_options6(header + 2, len - 2);
	}
	l4->proto = header[0];
	l4->len = (uint16_t)(l4->len - len);
	f->l4_off = (uint16_t)(f->l4_off + len);
	return verdict;
}

/* Options of neighbour discovery: none has length 0, and none is cut short. */
static bool nd_options_ok(const uint8_t *opt, unsigned left)
{
	while (left) {
		if (left < 8 || opt[1] == 0 || opt[1] * 8u > left)
			return false;
		left -= opt[1] * 8u;
		opt += opt[1] * 8u;
	}
	return true;
}

const uint8_t *glue_nd_option(const uint8_t *opt, unsigned left, unsigned type)
{
	while (left) {
		if (opt[0] == type)
			return opt;
		left -= opt[1] * 8u;
		opt += opt[1] * 8u;
	}
	return NULL;
}

static const uint8_t any6[16];

/*
 * RFC 4861 7.1.1 and 7.1.2. Solicitations need their sender's MAC (4.3) only if
 * they go to a group: those to one host may leave it out.
 */
static enum glue_verdict check_nd(const struct glue_frame *f,
				  const struct glue_l4 *l4)
{
	const uint8_t *nd = f->data + f->l4_off, *opt = nd + ND_BYTES;
	const uint8_t *src = l4->addrs, *dest = src + 16, *mac;
	unsigned len = l4->len - ND_BYTES;
	bool anonymous = memcmp(src, any6, 16) == 0;
	bool solicits = nd[0] == ICMP6_SOLICITATION, keep;

	if (nd[1] != 0 || nd[8] == 0xff || src[0] == 0xff ||
	    f->data[f->l3_off + 7] != ND_HOPS)
		return GLUE_REFUSED;
	if (!nd_options_ok(opt, len))
		return GLUE_BAD_FRAME;
	mac = glue_nd_option(
		opt, len, solicits ? GLUE_ND_SOURCE_MAC : GLUE_ND_TARGET_MAC);
	if (mac && (mac[1] != 1 || !is_unicast_mac(mac + 2)))
		return GLUE_REFUSED;
	if (solicits && anonymous)
		keep = dest[0] == 0xff && !mac;
	else if (solicits)
		keep = mac || dest[0] != 0xff;
	else
		keep = !anonymous && !(dest[0] == 0xff && nd[4] & ND_SOLICITED);
	return keep ? GLUE_KEEP : GLUE_REFUSED;
}

static bool is_link_local6(const uint8_t *ip)
{
	return ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80;
}

/* A router advertisement: RFC 4861 6.1.2. */
static enum glue_verdict check_ra(const struct glue_frame *f,
				  const struct glue_l4 *l4)
{
	const uint8_t *ra = f->data + f->l4_off;

	if (ra[1] != 0 || !is_link_local6(l4->addrs) ||
	    f->data[f->l3_off + 7] != ND_HOPS)
		return GLUE_REFUSED;
	return nd_options_ok(ra + RA_BYTES, l4->len - RA_BYTES)
		       ? GLUE_KEEP
		       : GLUE_BAD_FRAME;
}

/* Is there a router alert for MLD (RFC 2711) in a hop-by-hop header? */
static bool has_alert6(const struct glue_frame *f)
{
	const uint8_t *ip = f->data + f->l3_off;
	const uint8_t *opt = ip + GLUE_IP6_BYTES + 2;
	const uint8_t *end = opt + 6 + 8u * opt[-1];

	if (ip[6] != NEXT_HOPBYHOP)
		return false;
	while (opt < end) {
		if (*opt == OPT6_ALERT)
			return opt[1] == 2 && glue_get16(opt + 2) == 0;
		opt += *opt ? opt[1] + 2u : 1;
	}
	return false;
}

/*
 * RFC 2710 3 and RFC 3810 6.2: messages are link-local, have a hop limit of 1
 * and a router alert, and go to a group.
 */
static enum glue_verdict check_mld(const struct glue_frame *f,
				   const struct glue_l4 *l4)
{
	const uint8_t *src = l4->addrs;

	if (room_of(f, l4) < MLD_BYTES)
		return GLUE_BAD_FRAME;
	return f->data[f->l3_off + 7] == 1 && is_link_local6(src) &&
			       src[16] == 0xff && has_alert6(f)
		       ? GLUE_KEEP
		       : GLUE_REFUSED;
}

static enum glue_verdict check_icmp6(struct glue_frame *f,
				     const struct glue_l4 *l4)
{
	const uint8_t *icmp = f->data + f->l4_off;
	unsigned room = room_of(f, l4);

	if (room < ICMP_BYTES)
		return GLUE_BAD_FRAME;
	f->flags |= GLUE_FRAME_ICMP;
	switch (icmp[0]) {
	case ICMP6_ECHO:
		return GLUE_KEEP;
	case ICMP6_UNREACHABLE:
		return room >= ICMP_BYTES + GLUE_IP6_BYTES + 8 &&
				       icmp[1] == ICMP6_PORT &&
				       icmp[ICMP_BYTES + 6] == GLUE_PROTO_UDP
			       ? GLUE_KEEP
			       : GLUE_REFUSED;
	case ICMP6_TOO_BIG:
		return room < ICMP_BYTES + GLUE_IP6_BYTES + 8 ? GLUE_BAD_FRAME
							      : GLUE_KEEP;
	case ICMP6_QUERY:
	case ICMP6_REPORT:
		return check_mld(f, l4);
	case ICMP6_ROUTER:
		if (room < RA_BYTES || room < l4->len)
			return GLUE_BAD_FRAME;
		return check_ra(f, l4);
	case ICMP6_SOLICITATION:
	case ICMP6_ADVERTISEMENT:
		if (room < ND_BYTES || room < l4->len)
			return GLUE_BAD_FRAME;
		return check_nd(f, l4);
	default:
		return GLUE_REFUSED;
	}
}

enum glue_verdict glue_check_rare6(struct glue_frame *f, struct glue_l4 *l4)
{
	bool fragment = false;

	for (unsigned i = 0; i <= MAX_EXTENSIONS; i++) {
		enum glue_verdict verdict;

		switch (l4->proto) {
		case GLUE_PROTO_TCP:
		case GLUE_PROTO_UDP:
			return check_transport(f, l4);
		case GLUE_PROTO_ICMP6: /* RFC 6980: not behind a fragment */
			return fragment ? GLUE_REFUSED : check_icmp6(f, l4);
		case NEXT_FRAGMENT:
			fragment = true;
			break;
		case NEXT_HOPBYHOP:
			if (i)
				return GLUE_REFUSED;
			break;
		case NEXT_DESTOPTS:
			break;
		default:
			return GLUE_REFUSED;
		}
		verdict = skip_extension(f, l4);
		if (verdict != GLUE_KEEP)
			return verdict;
	}
	return GLUE_REFUSED;
}

/* ---- frames that are refused, for another stack ---- */

/* Does the first fragment of a segment begin at l4_off, with its ports? */
static bool begins_segment4(const struct glue_frame *f)
{
	const uint8_t *ip = f->data + f->l3_off;

	return ip[9] == GLUE_PROTO_TCP && f->seg_len >= f->l4_off + 4u &&
	       (glue_get16(ip + 6) & 0x1fff) == 0;
}

/* Finds a segment only if the fragment header comes first, as hosts send it. */
static bool begins_segment6(struct glue_frame *f)
{
	const uint8_t *ip = f->data + f->l3_off;
	unsigned at = f->l3_off + GLUE_IP6_BYTES;
	const uint8_t *fragment = f->data + at;

	if (ip[6] != NEXT_FRAGMENT || f->seg_len < at + 8 + 4 ||
	    fragment[0] != GLUE_PROTO_TCP ||
	    (glue_get16(fragment + 2) & 0xfff8) != 0)
		return false;
	f->l4_off = (uint16_t)(at + 8);
	return true;
}

void glue_check_other(struct glue_frame *f, struct glue_l4 *l4)
{
	uint16_t is_ip = f->flags & (GLUE_FRAME_IP4 | GLUE_FRAME_IP6);

	f->flags = (uint16_t)((f->flags & GLUE_FRAME_MCAST) | is_ip |
			      GLUE_FRAME_OTHER);
	if (is_ip & GLUE_FRAME_IP4 ? begins_segment4(f)
				   : is_ip && begins_segment6(f))
		f->flags |= GLUE_FRAME_TCP;
}
