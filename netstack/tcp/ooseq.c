/*
 * Out-of-order data, within a budget of all connections together.
 *
 * Each piece holds a frame until the hole before it is filled: a sender of
 * single bytes with holes between could pin every frame there is. Small
 * pieces are copied into memory of their own size; all of them count, and
 * what exceeds the budget is dropped as if the wire had lost it.
 */
#include "netstack/tcp/tcp.h"

#include "lwip/prot/tcp.h"

#define SMALL_BYTES 512u /* of data; less is copied */
#define CONN_MOST   256u /* pieces of one connection */
#define CONN_SCARCE 16u	 /* once half of all, or memory, is used */

static bool has_room(const struct net_conn *conn)
{
	unsigned budget = net_here()->ooseq_most;
	bool scarce = net_here()->ooseq_held >= budget / 2 ||
		      net_here()->rcv_most < TCP_WND;
	unsigned most = scarce ? CONN_SCARCE : CONN_MOST;

	return net_here()->ooseq_held < budget && conn->ooseq_held < most;
}

static struct pbuf *copy_of(const struct pbuf *p)
{
	struct pbuf *copy = pbuf_alloc(PBUF_RAW, p->tot_len, PBUF_RAM);

	if (copy)
		pbuf_copy_partial(p, copy->payload, p->tot_len, 0);
	return copy;
}

bool net_ooseq_admit(struct net_conn *conn, struct pbuf **p, unsigned len)
{
	struct pbuf *copy;

	if (!has_room(conn)) {
		net_here()->stats.ooseq_drops++;
		tcp_send_empty_ack(&conn->pcb);
		net_timer_check(conn);
		return false;
	}
	if (len < SMALL_BYTES && net_is_frame(*p)) {
		copy = copy_of(*p);
		if (!copy) {
			net_here()->stats.ooseq_drops++;
			return false;
		}
		pbuf_free(*p);
		*p = copy;
	}
	return true;
}

void net_ooseq_count(struct net_conn *conn)
{
	unsigned held = 0;

	if (conn->pcb_live)
		for (const struct tcp_seg *s = conn->pcb.ooseq; s; s = s->next)
			held += pbuf_clen(s->p);
	net_here()->ooseq_held += held - conn->ooseq_held;
	conn->ooseq_held = (uint16_t)held;
}
