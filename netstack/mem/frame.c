/*
 * Received frames as lwIP's pbufs, which lie in the frames themselves.
 */
#include "netstack/mem/mem.h"

/* The first user words of a frame are the pbuf, the next one is the port. */
static_assert(sizeof(struct pbuf_custom) <=
		      NET_PORT_WORD * sizeof(((struct glue_frame *)0)->user[0]),
	      "lwIP's pbuf fits into a frame");

cold bool net_is_scarce_frame(const struct pbuf *p)
{
	const struct net_port *port;

	if (!net_is_frame(p))
		return false;
	port = net_frame_port(p);
	return port->empty_pools &&
	       glue_frame_is_of(port->glue, net_frame_around(p),
				port->empty_pools);
}

void net_frame_free(struct pbuf *p)
{
	net_frame_port(p)->frames_in--;
	glue_frame_free(net_frame_around(p));
}

struct pbuf *net_frame_wrap_chain(struct net_port *port,
				  struct glue_frame *frame)
{
	struct pbuf *head = NULL, **link = &head;
	unsigned total = 0;

	for (struct glue_frame *f = frame; f; f = f->next)
		total += f->seg_len;
	glue_frame_split(frame);
	for (struct glue_frame *f = frame; f; f = f->next) {
		*link = net_frame_wrap(port, f, (uint16_t)total);
		link = &(*link)->next;
		total -= f->seg_len;
	}
	return head;
}
