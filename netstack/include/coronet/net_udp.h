/*
 * net_udp.h - UDP (RFC 768) from coroutines.
 *
 * Threads, pointers, blocking calls and their errors (-EPERM, -ECANCELED,
 * -ETIMEDOUT, -ENOMEM, -EBADF, -EBUSY) are those of coronet/net.h. A socket
 * belongs to the shard that opened it.
 *
 * Shards: a datagram belongs to the shard that its addresses and ports hash to,
 * like a segment of TCP. So a server opens a socket at the same port on every
 * shard, as net_serve() listens on every shard, and each socket receives the
 * datagrams of its shard's peers. A client connects its socket
 * (net_udp_connect()): the stack then chooses a port whose answers come to this
 * shard.
 *
 * Limits: no IP fragments in either direction, and no broadcast.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <coronet/net.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

struct net_udp;

/* Limits of a socket; 0 means the default. */
struct net_udp_opts {
	unsigned rx_datagrams; /* that wait to be read; default 1024 */
	unsigned rx_bytes;     /* of their payloads; default 1 MiB */
	uint8_t ttl;	       /* IPv4's TTL, IPv6's hop limit; default 64 */
	uint8_t tos;	       /* IPv4's TOS, IPv6's traffic class */
	bool shared;	       /* see net_udp_open() */
	/*
	 * Of datagrams to multicast groups, see net_udp_join(). group_ttl is
	 * used in place of ttl; default 1: they stay on the link. group_quiet:
	 * members of this shard do not receive them.
	 */
	uint8_t group_ttl;
	bool group_quiet;
	/*
	 * An address of the stack. It is the source of datagrams to groups, and
	 * its link is the one that they leave by and that groups are joined on,
	 * unless a call names another. Family 0: the link of the route to the
	 * group or, without one, the first that has an address of its family.
	 */
	struct net_addr group_local;
};

/* A socket's default limits. */
#define NET_UDP_DATAGRAMS 1024u
#define NET_UDP_BYTES	  (1024u * 1024)
/* Sockets of a shard; more: -ENOMEM. */
#define NET_UDP_MAX 262144u

/*
 * Opens a socket at local. Does not block. Family, zero addresses and port 0
 * mean what they mean to net_listen(), and the same addresses exclude each
 * other; connected sockets exclude only those with the same peer. A datagram
 * goes to the socket that is connected to its source, otherwise to the socket
 * at its destination's address, otherwise to that of every address. A datagram
 * that finds no socket is answered with ICMP's "port unreachable", at most 100
 * times a second. Sockets with opts->shared do not exclude each other: they
 * share their address and port, and all datagrams of a peer's port go to the
 * same one of them, as long as none is opened or closed.
 * opts: copied; NULL: the defaults. *out is owned by the caller, who gives it
 * to net_udp_close().
 *
 * Returns 0 or
 *   -EADDRINUSE     a socket of this shard has this address and port, or no
 *                   port is free
 *   -EADDRNOTAVAIL  the address is not the stack's
 *   -EINVAL         a pointer is NULL
 *   -ECANCELED      the stack stops
 *   -ENOMEM         no memory, or the shard has NET_UDP_MAX sockets
 */
int net_udp_open(struct net_stack *stack, const struct net_addr *local,
		 const struct net_udp_opts *opts, struct net_udp **out);

/*
 * Connects a socket: from now on it receives only from peer, calls that send
 * need no address, and "port unreachable" from there makes one call return
 * -ECONNREFUSED. Fixes the local address; a port that the stack chose is chosen
 * again (RFC 6056). Datagrams that wait to be read are discarded. Does not
 * block, and sends nothing. Returns 0 or
 *   -EHOSTUNREACH   no route, also between a loopback address and another one
 *   -EADDRNOTAVAIL  the local address is of the other family, or answers to
 *                   this port would arrive at another shard; or no port is left
 *   -EADDRINUSE     another socket has these addresses and ports
 *   -EACCES         peer is a broadcast address
 *   -EINVAL         peer is NULL or has no address or no port
 *   -EISCONN        the socket is connected
 */
int net_udp_connect(struct net_udp *udp, const struct net_addr *peer);

/*
 * Closes and frees a socket. Does not block: what was sent has left. Other
 * coroutines that are blocked on it get -EBADF. Datagrams that have not been
 * read are discarded; those of net_udp_recv_batch() that were not released are
 * reclaimed, counted (net_stats.views_reclaimed) and logged. Sockets that are
 * left when the stack closes are closed by net_stack_close(). NULL is ignored.
 */
void net_udp_close(struct net_udp *udp);

/* The most memberships that a socket may have. */
#define NET_UDP_GROUPS_MAX 64u

/*
 * Joins a multicast group on a link: the socket receives the datagrams to the
 * group that arrive there at its port. It must be open at every address, or at
 * every one of the group's family; if it is connected, it receives those of its
 * peer alone. Each member of a group gets a copy of each datagram, also of
 * those that this shard's sockets send there (group_quiet). A datagram for
 * which there is no memory is dropped, and counted for its socket.
 *
 * group: its port is ignored. local: an address of the stack on the link; NULL
 * or family 0: group_local of struct net_udp_opts. source: the only host whose
 * datagrams the socket receives; NULL or family 0: every host. A socket may
 * join a group with several sources, one call each.
 *
 * The stack announces groups by IGMPv2 (RFC 2236) and MLDv1 (RFC 2710): it
 * sends a report at once and another within half a second, answers queries
 * after a random delay unless another host does so first, and sends a message
 * after the last member has left. These protocols carry no sources, so routers
 * forward those of every source. With several shards, each announces its own
 * groups, and the datagrams of a group are spread over the shards by their
 * addresses and ports, as all others are: a program that wants all of them
 * joins on each shard.
 *
 * Does not block. Returns 0 or
 *   -EADDRINUSE     the socket has joined the group already: of this source, or
 *                   of every source, or this call is for every source
 *   -EADDRNOTAVAIL  local is not the stack's or of the other family, or no link
 *                   has an address of this family
 *   -EINVAL         group is NULL or not a multicast address, or source is of
 *                   the other family or not the address of a host
 *   -ENOBUFS        the socket has NET_UDP_GROUPS_MAX memberships, or the shard
 *                   has 256 groups on the link or 256 members of the group
 *   -ENOMEM         no memory
 *   -EBADF, -ECANCELED
 */
int net_udp_join(struct net_udp *udp, const struct net_addr *group,
		 const struct net_addr *local, const struct net_addr *source);

/*
 * Ends the membership that net_udp_join() began with the same group, link and
 * source. If neither local nor group_local names the link, it ends the latest
 * one of this group and source, on any link. Datagrams that wait to be read
 * stay. net_udp_close() ends all memberships of a socket. Does not block.
 * Returns 0,
 *   -EADDRNOTAVAIL  there is no such membership, or as for net_udp_join()
 *   -EINVAL         as for net_udp_join()
 *   -EBADF, -ECANCELED
 */
int net_udp_leave(struct net_udp *udp, const struct net_addr *group,
		  const struct net_addr *local, const struct net_addr *source);

/* A datagram that was received, or is to be sent. */
struct net_datagram {
	const void *data;
	size_t len;
	struct net_addr peer;  /* the source, or the destination */
	struct net_addr local; /* the stack's address and port on it */
	uint8_t ttl, tos;      /* as received (hop limit, traffic class);
				  calls that send ignore them */
	void *owner;	       /* private */
};

/* Limit of the unreleased datagrams of a socket. */
#define NET_UDP_VIEWS_MAX 256u

/*
 * Blocks until there is a datagram, and fills datagrams[] with those that have
 * come, n at most (n: 1 or more), in the order of their arrival. Their bytes
 * lie in the memory that the NIC wrote them to, and are the caller's until
 * net_udp_release(); they never lie on a coroutine's stack, the array may.
 * Returns how many there are, or
 *   -ECONNREFUSED  the peer of a connected socket has no socket at its port
 *                  (ICMP); reported once for each message, after the datagrams
 *                  that have come
 *   -ENOBUFS       NET_UDP_VIEWS_MAX datagrams are not released, or there is
 *                  no memory to note another one
 *   -EINVAL        datagrams is NULL, or n is 0
 */
int net_udp_recv_batch(struct net_udp *udp, struct net_datagram *datagrams,
		       unsigned n);

/*
 * Returns the bytes of n datagrams to the stack and empties them. Empty ones
 * are ignored; one that was released before is ignored, logged and counted
 * (net_stats.view_misuses). Does not block.
 */
void net_udp_release(struct net_udp *udp, struct net_datagram *datagrams,
		     unsigned n);

/*
 * Blocks until there is a datagram, and copies at most len bytes of it to buf;
 * the rest of it is lost. Returns how many were copied, or an error of
 * net_udp_recv_batch(); -EINVAL: buf is NULL and len is not 0. *info, unless
 * NULL, gets its addresses and its length: if that is more than the result, the
 * datagram was cut. info->data and info->owner are NULL.
 */
long net_udp_recv(struct net_udp *udp, void *buf, size_t len,
		  struct net_datagram *info);

/*
 * Returns the datagram that net_udp_recv() would take, without taking it.
 * out->data points to its bytes until the next call on the socket, or until the
 * calling coroutine waits or the stack's loop goes on; out->owner is NULL. Does
 * not block. Returns 0, or -EAGAIN: there is none.
 */
int net_udp_peek(struct net_udp *udp, struct net_datagram *out);

/*
 * Discards the datagram that net_udp_recv() would take. Does not block. Returns
 * 0 or an error of net_udp_peek().
 */
int net_udp_discard(struct net_udp *udp);

/*
 * Returns the error that the next call would return once, such as
 * -ECONNREFUSED, 0 if there is none, or -EBADF. take: clears the error, so that
 * no call returns it. Does not block.
 */
int net_udp_error(struct net_udp *udp, bool take);

/*
 * Sends n datagrams in order, copying their bytes. A peer of family 0 is the
 * one that the socket is connected to; local is the address to send from, as
 * net_udp_recv_batch() has set it, so that an answer comes from the address
 * that was asked; family 0: the socket's own address, or the one that the route
 * prefers. local.port is ignored: datagrams leave from the socket's port. So an
 * array from net_udp_recv_batch() can be sent back as it is, or to other peers;
 * on most links this copies no bytes. The calling coroutine waits while the
 * link has no room; outside a coroutine the call returns -EAGAIN instead.
 *
 * A datagram for a neighbour whose MAC address is not known waits for ARP or
 * neighbour discovery in a queue of fixed size, and is lost if there is no
 * answer, as on a wire. Checksums are always sent.
 *
 * Returns how many were sent, at least one, or what the first one failed with:
 *   -EMSGSIZE       longer than net_udp_room(), since nothing is fragmented
 *   -ECONNREFUSED   as for net_udp_recv_batch(); nothing was sent
 *   -EDESTADDRREQ   no peer
 *   -EISCONN        another peer than the one the socket is connected to
 *   -EHOSTUNREACH   no route, also between a loopback address and another one
 *   -EADDRNOTAVAIL  local is not the stack's or of the other family
 *   -EACCES         the peer is a broadcast address
 *   -EINVAL         a pointer is NULL, n is 0, or a peer's port is 0
 *   -ENOMEM         no memory for a datagram that waits for its neighbour, or
 *                   for a call that waits for room on the link
 *   -EAGAIN         outside a coroutine: the link has no room
 */
int net_udp_send_batch(struct net_udp *udp,
		       const struct net_datagram *datagrams, unsigned n);

/*
 * Sends one datagram to peer; NULL: the one that the socket is connected to.
 * Returns len or an error of net_udp_send_batch().
 */
long net_udp_send(struct net_udp *udp, const struct net_addr *peer,
		  const void *buf, size_t len);

/*
 * Like net_udp_send(), with the bytes of n buffers, one after the other, and
 * -EINVAL as in net_recvv().
 */
long net_udp_sendv(struct net_udp *udp, const struct net_addr *peer,
		   const struct iovec *iov, unsigned n);

/*
 * Like net_udp_sendv(), from an address of the stack: as in
 * net_udp_send_batch(), local's port is ignored, and NULL or family 0 means the
 * socket's own address. Unlike the other calls, this one also sends from a
 * connected socket to another peer.
 */
long net_udp_sendv_from(struct net_udp *udp, const struct net_addr *local,
			const struct net_addr *peer, const struct iovec *iov,
			unsigned n);

/*
 * Like net_udp_send(), but without copying the bytes where the link permits it:
 * the stack owns the buffer until it calls release(arg), once the frame has
 * left. Like for net_send_owned(), release is called exactly once, also if the
 * call fails, except with -EINVAL because release is NULL, or data is NULL and
 * len is not 0. It is not called before this call returns, except if there is
 * no memory (-ENOMEM). data must not lie on a shared stack.
 */
long net_udp_send_owned(struct net_udp *udp, const struct net_addr *peer,
			const void *data, size_t len, net_release release,
			void *arg);

/*
 * Returns how many bytes a datagram to peer may have now (NULL: the connected
 * peer): the MTU of the link, or what routers have reported for the path (RFC
 * 1191, RFC 8201), less the headers. Such a report is believed if it quotes a
 * datagram that the stack has sent to that peer within ten seconds (RFC 5927).
 * Returns an error of net_udp_send_batch() for a wrong peer, or -EBADF. Does
 * not block.
 */
long net_udp_room(struct net_udp *udp, const struct net_addr *peer);

/*
 * Sets the time after which calls that wait for a datagram return -ETIMEDOUT:
 * absolute, in ns, as in net_now_ns(); CORO_FOREVER removes it. A call that is
 * already blocked keeps the deadline that it began with. NULL is ignored.
 */
void net_udp_set_read_deadline(struct net_udp *udp, int64_t deadline_ns);

/*
 * Changes a socket's limits, TTL and TOS; 0 means the default, and `shared` is
 * ignored. Datagrams that wait stay in the queue, even if they exceed the new
 * limits. Does not block. Returns 0, -EBADF or -EINVAL (opts is NULL).
 */
int net_udp_set_opts(struct net_udp *udp, const struct net_udp_opts *opts);

/*
 * A callback in place of a coroutine, as struct net_watch is for connections:
 * fn is called on the shard's thread, outside any coroutine, after a datagram
 * was queued or ICMP has reported an error. It is also called once after a call
 * that sends has returned -EAGAIN and the link accepts frames again. It may
 * receive and send, but not close the socket. Calls that would block return
 * -EAGAIN.
 */
struct net_udp_watch {
	void (*fn)(struct net_udp *udp, struct net_udp_watch *watch);
};

/*
 * Sets the socket's watch; NULL removes it. watch: borrowed until the socket is
 * closed or its watch is replaced or removed; on a shared stack it ends the
 * process with a message. No coroutine may be blocked on the socket. fn is not
 * called for earlier events. A udp of NULL is ignored.
 */
void net_udp_set_watch(struct net_udp *udp, struct net_udp_watch *watch);

/*
 * Makes calls that are blocked on the socket return -ECANCELED now, and every
 * later call that receives or sends at once. The owner still closes the socket.
 * Does not block. Returns 0 or -EBADF.
 */
int net_udp_cancel(struct net_udp *udp);

/*
 * Returns which of the given events a socket has now, as net_poll() reports
 * them for its item's udp: NET_READABLE: net_udp_recv() would not block;
 * NET_WRITABLE: always; NET_FAILED: cancelled; NET_GONE: closed. Does not
 * block.
 */
unsigned net_udp_ready(const struct net_udp *udp, unsigned events);

/*
 * Return the socket's address and port, and those of its peer; family 0 and
 * port 0 for NULL and where there are none.
 */
struct net_addr net_udp_local_addr(const struct net_udp *udp);
struct net_addr net_udp_peer_addr(const struct net_udp *udp);

struct net_udp_stats {
	uint64_t rx, rx_bytes; /* datagrams queued, and their payloads */
	uint64_t rx_full; /* dropped: rx_datagrams or rx_bytes was reached */
	uint64_t rx_no_memory; /* dropped: no frame to keep it in, no memory */
	uint64_t rx_cut;       /* longer than the buffer of net_udp_recv() */
	uint64_t tx, tx_bytes; /* datagrams sent, and their payloads */
	uint64_t tx_busy;      /* times that the link had no room */
	uint64_t tx_too_big;   /* -EMSGSIZE */
	uint64_t refused;      /* "port unreachable" from the peer */
	unsigned queued, queued_bytes; /* that wait to be read */
	unsigned views;		       /* not released */
};

/* Copies the socket's counters. Does not block. Returns 0 or -EBADF. */
int net_udp_stats(const struct net_udp *udp, struct net_udp_stats *out);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
