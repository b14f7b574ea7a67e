/*
 * Takes plain TCP frames from a link: finds their connections, and passes each
 * segment to header prediction or, past lwIP's IP layer, to TCP. Segments of
 * one connection that follow each other are a run, processed as one.
 */
#include "netstack/tcp/tcp.h"

#include "lwip/ip.h"

/* Has a router marked a packet? Then it takes the full path. */
static inline bool is_marked(unsigned tos)
{
	return (tos & NET_ECN_FIELD) == NET_ECN_CE;
}

static inline bool is_ip6(const struct glue_frame *frame)
{
	return frame->flags & GLUE_FRAME_IP6;
}

static inline void *ip_header_of(const struct glue_frame *frame)
{
	return frame->data + frame->l3_off;
}

static inline const struct tcp_hdr *
tcp_header_of(const struct glue_frame *frame)
{
	return (const void *)(frame->data + frame->l4_off);
}

/* May header prediction see the segment? */
static inline bool may_predict(const struct glue_frame *frame)
{
	const void *ip = ip_header_of(frame);

	return net_here()->predicts &&
	       !is_marked(is_ip6(frame) ? IP6H_TC((const struct ip6_hdr *)ip)
					: IPH_TOS((const struct ip_hdr *)ip));
}

/* Wraps a frame's segment: its TCP header and what follows. */
static inline struct pbuf *wrap_segment(struct net_port *port,
					struct glue_frame *frame)
{
	const void *ip = ip_header_of(frame);
	uint16_t len;
	struct pbuf *p;

	if (is_ip6(frame))
		len = IP6H_PLEN((const struct ip6_hdr *)ip);
	else
		len = (uint16_t)(lwip_ntohs(
					 IPH_LEN((const struct ip_hdr *)ip)) -
				 (frame->l4_off - frame->l3_off));
	p = net_frame_wrap(port, frame, len);
	p->payload = frame->data + frame->l4_off;
	p->len = len;
	return p;
}

static inline struct net_conn *find_conn(const struct net_port *port,
					 const struct glue_frame *frame,
					 uint32_t hash)
{
	const struct tcp_hdr *tcp = tcp_header_of(frame);
	const struct ip6_hdr *ip6 = ip_header_of(frame);
	const struct ip_hdr *ip4 = ip_header_of(frame);
	ip_addr_t local, remote;

	if (!is_ip6(frame))
		return net_demux_find4(hash, ip4->dest.addr,
				       lwip_ntohs(tcp->dest), ip4->src.addr,
				       lwip_ntohs(tcp->src));
	ip_addr_copy_from_ip6_packed(local, ip6->dest);
	ip_addr_copy_from_ip6_packed(remote, ip6->src);
	ip6_addr_assign_zone(ip_2_ip6(&local), IP6_UNKNOWN, port->netif0);
	ip6_addr_assign_zone(ip_2_ip6(&remote), IP6_UNKNOWN, port->netif0);
	return net_demux_find_hashed(hash, &local, lwip_ntohs(tcp->dest),
				     &remote, lwip_ntohs(tcp->src));
}

static bool is_for_conn(const struct tcp_pcb *pcb,
			const struct glue_frame *frame)
{
	const struct tcp_hdr *tcp = tcp_header_of(frame);
	const struct ip6_hdr *ip6 = ip_header_of(frame);
	const struct ip_hdr *ip4 = ip_header_of(frame);

	if (tcp->src != lwip_htons(pcb->remote_port) ||
	    tcp->dest != lwip_htons(pcb->local_port))
		return false;
	if (is_ip6(frame))
		return IP_IS_V6_VAL(pcb->remote_ip) &&
		       !memcmp(&ip6->src, ip_2_ip6(&pcb->remote_ip),
			       sizeof(ip6->src)) &&
		       !memcmp(&ip6->dest, ip_2_ip6(&pcb->local_ip),
			       sizeof(ip6->dest));
	return IP_IS_V4_VAL(pcb->remote_ip) &&
	       ip4->src.addr == ip_2_ip4(&pcb->remote_ip)->addr &&
	       ip4->dest.addr == ip_2_ip4(&pcb->local_ip)->addr;
}

/* Sets what lwIP's IP layer would, and passes a segment to TCP. Owns p. */
__attribute__((noinline)) static void input_unpredicted4(struct netif *netif,
							 struct ip_hdr *ip,
							 struct net_conn *conn,
							 struct pbuf *p)
{
	ip_data.current_netif = netif;
	ip_data.current_input_netif = netif;
	ip_data.current_ip4_header = ip;
	ip_data.current_ip_header_tot_len = IPH_HL_BYTES(ip);
	ip_addr_copy_from_ip4(ip_data.current_iphdr_src, ip->src);
	ip_addr_copy_from_ip4(ip_data.current_iphdr_dest, ip->dest);
	net_tcp_input_found(conn, p, netif);
	ip_data.current_netif = NULL;
	ip_data.current_input_netif = NULL;
	ip_data.current_ip4_header = NULL;
	ip_data.current_ip_header_tot_len = 0;
}

/* Passes a packet to lwIP's IP layer, which checks more. Owns p. */
__attribute__((noinline)) static void
input_unpredicted6(struct netif *netif, const struct glue_frame *frame,
		   struct pbuf *p)
{
	p->payload = ip_header_of(frame);
	p->len = p->tot_len = (uint16_t)(frame->seg_len - frame->l3_off);
	ip6_input(p, netif);
}

/*
 * Processes what follows a predicted segment of a connection, as GRO does: the
 * n frames that may be the connection's, as long as each is the next one
 * expected. Returns how many there were. Nothing happens between them: no other
 * frame, no lwIP, no coroutine.
 */
__attribute__((noinline)) static unsigned
input_run(struct net_conn *conn, struct net_port *port,
	  struct glue_frame *const *frames, unsigned n)
{
	unsigned k = 0;

	for (; k < n && may_predict(frames[k]) &&
	       is_for_conn(&conn->pcb, frames[k]);
	     k++) {
		struct pbuf *p = wrap_segment(port, frames[k]);

		if (p->len < TCP_HLEN || !net_predict_next(conn, p)) {
			port->frames_in--; /* the frame is as it was */
			break;
		}
	}
	if (k > 0)
		net_predict_settle(conn);
	return k;
}

/* Returns how many of n frames, from the first on, have its hash. */
static inline unsigned same_hash(const uint32_t *hashes, unsigned n)
{
	unsigned k = 1;

	while (k < n && hashes[k] == hashes[0])
		k++;
	return k;
}

/* Processes a segment, or a run of them. Returns the number of frames. */
static inline unsigned input_segments(struct net_port *port,
				      struct glue_frame *const *frames,
				      const uint32_t *hashes, unsigned n)
{
	struct glue_frame *frame = frames[0];
	struct pbuf *p = wrap_segment(port, frame);
	struct net_conn *conn = NULL;
	bool ip6 = is_ip6(frame);
	ip6_addr_t remote; /* the frame may be gone when it is needed */
	unsigned run = 1;

	if (likely(p->len >= TCP_HLEN))
		conn = find_conn(port, frame, hashes[0]);
	if (ip6)
		ip6_addr_copy_from_packed(
			remote,
			((const struct ip6_hdr *)ip_header_of(frame))->src);
	if (likely(conn) && net_predict_runs(conn))
		run = same_hash(hashes, n);
	if (unlikely(!conn || !may_predict(frame) ||
		     !net_predict_input(conn, p))) {
		if (ip6)
			input_unpredicted6(port->netif0, frame, p);
		else
			input_unpredicted4(port->netif0, ip_header_of(frame),
					   conn, p);
		return 1;
	}
	if (ip6)
		net_link_confirm6(port->netif0, &remote);
	if (likely(run == 1))
		return 1;
	return 1 + input_run(conn, port, frames + 1, run - 1);
}

void net_tcp_input_burst(struct net_port *port,
			 struct glue_frame *const *frames, unsigned n)
{
	uint32_t hashes[GLUE_BURST];

	net_demux_hash_burst(frames, n, hashes);
	for (unsigned i = 0; i < n;)
		i += input_segments(port, frames + i, hashes + i, n - i);
}
