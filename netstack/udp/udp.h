/*
 * UDP's sockets: how a datagram finds its socket, the queue in which it waits,
 * the datagrams that a program holds, ICMP errors, groups. All calls act on the
 * shard of the calling thread; ports are in host byte order.
 *
 * A queued datagram is one pbuf that holds its payload. An IP header without
 * options and the UDP header precede the payload in memory, in the frame or in
 * a copy, so addresses and ports are read from there.
 */
#pragma once

#include <coronet/net_udp.h>

#include "netstack/tcp/tcp.h"

#define NET_UDP_HEADER 8u

/* Limits of a shard: groups of a link, memberships of a group. */
#define NET_UDP_LINK_GROUPS   256u
#define NET_UDP_GROUP_MEMBERS 256u
#define NET_UDP_GROUP_BUCKETS 256u

/* A flag of a queued pbuf that lwIP does not use: the datagram is IPv6. */
#define NET_UDP_IS_V6 0x80u

/* A datagram that the program holds. */
struct net_udp_held {
	struct pbuf *p;
	uint32_t serial; /* odd: held */
	uint32_t next;	 /* index of the next free one, plus 1; 0: none */
};

/* A group that sockets have joined on a link. */
struct net_udp_group {
	struct net_udp_group *next; /* in its bucket */
	struct net_udp_member *members;
	unsigned n;
	uint8_t link;
	ip_addr_t ip; /* without a zone */
};

/* A socket's membership. */
struct net_udp_member {
	struct net_udp_member *next;	 /* in the group */
	struct net_udp_member *udp_next; /* of the socket */
	struct net_udp_group *group;
	struct net_udp *udp;
	ip_addr_t source;   /* its only source; of no type: any */
	uint64_t delivered; /* number of the last datagram it received */
};

/* A coroutine that waits for room on a port; allocated while it waits. */
struct net_udp_sender {
	struct net_room_wait wait;
	struct net_udp *udp;
	LIST_ENTRY(net_udp_sender) link; /* of the socket */
};

struct net_udp {
	struct net_udp *hash_next; /* at its port, or in its 4-tuple's bucket */
	ip_addr_t local;  /* of no type: any; zero: any of its family */
	ip_addr_t remote; /* if remote_port */
	uint16_t local_port, remote_port; /* remote_port 0: not connected */
	uint8_t shard, ttl, tos, group_ttl;
	bool port_chosen : 1; /* by the stack */
	bool owned : 1;	      /* the program has its handle */
	bool cancelled : 1;
	bool loaded : 1; /* in the shard's list of sockets with datagrams */
	bool shared : 1; /* others may have the same address and port */
	bool group_quiet : 1; /* its group datagrams are not looped back */
	int err; /* for the next call that finds no datagram; or 0 */
	struct pbuf *rx_head, *rx_tail;
	unsigned rx_queued, rx_queued_bytes, rx_max, rx_max_bytes;
	struct coro *reader;
	unsigned waiters; /* coroutines blocked in a call on it */
	struct net_poll_node *pollers;
	struct net_udp_watch *watch; /* or NULL */
	struct net_room_wait room;   /* the watch waits for room on a port */
	LIST_HEAD(, net_udp_sender) senders; /* blocked without room */
	int64_t read_deadline;
	struct net_udp_held *held; /* NULL: none yet; owned */
	unsigned n_held, held_room;
	uint32_t held_free; /* index of the first free one, plus 1; 0: none */
	struct net_udp *next, **pprev;
	struct net_udp *loaded_next, **loaded_pprev;
	struct net_udp_member *members; /* its memberships */
	unsigned n_members;
	struct net_addr group_local; /* of the link of groups; or family 0 */
	struct net_udp_stats stats;
};

/* A 4-tuple that a datagram was sent on, to check ICMP errors (RFC 5927). */
struct net_udp_sent {
	uint32_t hash, ms;
};
#define NET_UDP_SENT 1024u

#define NET_UDP_BUCKETS 65536u /* of 4-tuples; and ports */

/* The sockets of a shard. */
struct net_udp_sockets {
	struct net_udp **ports; /* unconnected ones, by port; NULL: no socket */
	struct net_udp **tuples; /* connected ones, by the 4-tuple's hash */
	struct net_udp *all, *loaded;
	unsigned n, n_connected;
	struct net_udp_group *groups[NET_UDP_GROUP_BUCKETS];
	unsigned n_groups[NET_MAX_LINKS];
	uint64_t group_datagrams; /* number of the last one to a group */
	unsigned group_changes;	  /* how often memberships have changed */
	struct net_udp_sent sent[NET_UDP_SENT];
};
extern NET_SHARD_VAR struct net_udp_sockets net_udps
	__attribute__((visibility("hidden")));
#define net_udps NET_SHARD(net_udps)

/* ---- demux.c ---- */
/* Allocates the tables with the first socket. Returns 0 or -ENOMEM. */
int net_udp_tables_open(void);
void net_udp_hash(struct net_udp *udp);
void net_udp_unhash(struct net_udp *udp);
/*
 * The socket of a datagram: a connected one, or one bound to its destination,
 * chosen by hash among those that share it. NULL: there is none.
 */
struct net_udp *net_udp_find(const ip_addr_t *local, uint16_t local_port,
			     const ip_addr_t *remote, uint16_t remote_port);
/* A connected socket with exactly these addresses. */
struct net_udp *net_udp_find_connected(const ip_addr_t *local,
				       uint16_t local_port,
				       const ip_addr_t *remote,
				       uint16_t remote_port);
/*
 * Returns whether an unconnected socket prevents binding to this address and
 * port; ip NULL: to every address. shared: sockets that share their port do
 * not.
 */
bool net_udp_is_taken(const ip_addr_t *ip, uint16_t port, bool shared);
/* Note that a datagram is sent, and return whether one was sent recently. */
void net_udp_note_sent(const ip_addr_t *local, uint16_t local_port,
		       const ip_addr_t *remote, uint16_t remote_port);
bool net_udp_was_sent(const ip_addr_t *local, uint16_t local_port,
		      const ip_addr_t *remote, uint16_t remote_port);

/* ---- socket.c ---- */
/* Makes a socket, which is not in the hash tables yet; NULL: no memory. */
struct net_udp *net_udp_new(const struct net_udp_opts *opts);
/* Sets all options except `shared`; opts NULL: the defaults. */
void net_udp_configure(struct net_udp *udp, const struct net_udp_opts *opts);
/* Frees a socket once nobody uses it: an owner, a waiter, a poller. */
void net_udp_put(struct net_udp *udp);
/*
 * Called when the owner has closed a socket: removes it from all tables, frees
 * its datagrams and wakes all that wait on it. It may be freed.
 */
void net_udp_disown(struct net_udp *udp);
/* Notifies the watch once a port that had no room accepts frames again. */
void net_udp_watch_room(struct net_udp *udp, struct net_port *port);
/* Wakes the coroutines that wait for room on a port in order to send. */
void net_udp_wake_senders(struct net_udp *udp);
/* Wakes the reader and those that poll for these events. */
void net_udp_wake(struct net_udp *udp, unsigned events);
/* Wakes all that wait on any socket, when the stack stops. */
void net_udp_wake_all(void);
/* Closes all sockets and frees the tables, after the last coroutine. */
void net_udp_fini(void);

/* ---- queue.c ---- */
/* Queues a datagram, whose payload p is, or drops and counts it. Owns p. */
void net_udp_queue(struct net_udp *udp, struct pbuf *p);
/* Removes the first datagram; the queue is not empty. The caller owns it. */
struct pbuf *net_udp_unqueue(struct net_udp *udp);
/* Puts back the datagram that net_udp_unqueue() has just returned. */
void net_udp_unqueue_undo(struct net_udp *udp, struct pbuf *p);
void net_udp_queue_clear(struct net_udp *udp);
/*
 * A copy of a queued datagram and its headers, owned by the caller; NULL: no
 * memory. p is borrowed.
 */
struct pbuf *net_udp_copy(const struct pbuf *p);
/* Copies queued datagrams that lie in frames, a bounded number of them. */
void net_udp_copy_frames(void);
/* Fills in all members of *out but owner, which is NULL. */
void net_udp_describe(const struct pbuf *p, struct net_datagram *out);
/*
 * Enters p into the datagrams that the program holds, and fills in *out with
 * its owner. Returns 0, or -ENOBUFS: the caller still owns p.
 */
int net_udp_hold(struct net_udp *udp, struct pbuf *p, struct net_datagram *out);
/*
 * The pbuf of a datagram that the program holds, if it is all of *d's bytes and
 * lies in its frame; else NULL.
 */
const struct pbuf *net_udp_held_frame(const struct net_udp *udp,
				      const struct net_datagram *d);
/*
 * Returns whether a datagram of IPv4 goes back to where p came from, by p's
 * headers.
 */
bool net_udp_is_answer4(const struct pbuf *p, const struct net_datagram *d);
/* Ends the hold of a datagram. Returns its pbuf; NULL: it was not held. */
struct pbuf *net_udp_unhold(struct net_udp *udp, const void *owner);
/* Frees all held datagrams. Returns how many there were. */
unsigned net_udp_unhold_all(struct net_udp *udp);

/* ---- input.c ---- */
/*
 * Receives a datagram from lwIP's IP, which is built to call this in place of
 * udp_input(). Owns p, which begins with the UDP header; ip_data is set.
 */
void net_udp_input(struct pbuf *p, struct netif *netif);
/*
 * The socket of a datagram to an address of netif, if the frame is one piece
 * and its IP header has no options. *len: bytes of payload. NULL: the frame
 * must go through lwIP's IP.
 */
struct net_udp *net_udp_find_plain(const struct netif *netif,
				   const struct glue_frame *frame,
				   unsigned *len);
/* Returns whether a UDP frame, with any IP options, has a socket. */
bool net_udp_wants(const struct glue_frame *frame);

/*
 * Delivers a datagram to the members of its group on a link: each of them gets
 * a copy. Owns p, which has IP's header at l3_off and UDP's at l4_off, all of
 * them in its first piece.
 */
void net_udp_group_input(unsigned link, struct pbuf *p, unsigned l3_off,
			 unsigned l4_off);

/* ---- group.c ---- */
/* The group of an address on a link; NULL: no socket has joined it. */
struct net_udp_group *net_udp_group_find(unsigned link, const ip_addr_t *ip);
/*
 * Makes the socket a member; a group's first member is reported by IGMP or MLD.
 * source: the only sender whose datagrams it receives; NULL: all. Returns 0,
 * -EADDRINUSE (it is a member already), -ENOBUFS (too many) or -ENOMEM.
 */
int net_udp_group_join(struct net_udp *udp, unsigned link, const ip_addr_t *ip,
		       const ip_addr_t *source);
/*
 * Ends a membership; with NET_UDP_ANY_LINK, the newest one of this group and
 * source. Returns 0 or -EADDRNOTAVAIL: there is none.
 */
#define NET_UDP_ANY_LINK (-1)
int net_udp_group_leave(struct net_udp *udp, int link, const ip_addr_t *ip,
			const ip_addr_t *source);
/* Ends all memberships of a socket. */
void net_udp_group_leave_all(struct net_udp *udp);

/* ---- icmp.c ---- */
/* Returns whether an ICMP message is an error that quotes a UDP datagram. */
bool net_udp_quoted(const struct glue_frame *frame);
/* Processes such an error: "port unreachable" or "too big". */
void net_udp_icmp_input(const struct net_port *port,
			const struct glue_frame *frame);
