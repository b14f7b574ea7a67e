/*
 * UDP: sending.
 *
 * A sender that finds no room on its link waits in the port's list
 * (conn/room.c) until the output phase finds that the port accepts frames.
 */
#include "netstack/api/api.h"

#include <string.h>

#define HEADERS4 (IP_HLEN + NET_UDP_HEADER)
#define HEADERS6 ((unsigned)IP6_HLEN + NET_UDP_HEADER)

/* A datagram as the calls give it. */
struct out {
	struct net_udp_path path;
	const struct iovec *iov;
	unsigned n, len;
	struct net_extbuf *ext;	 /* owns the bytes; or NULL */
	const struct pbuf *held; /* a received one that has them; or NULL */
};

/* The largest payload to an address. */
static unsigned room_to(const ip_addr_t *remote)
{
	unsigned mtu = net_here()->mtu, known = net_path_mtu(remote);

	if (known && known < mtu)
		mtu = known;
	return mtu - (IP_IS_V6(remote) ? HEADERS6 : HEADERS4);
}

/* ---- routing ---- */

/* any: allows a peer other than the one that the socket is connected to. */
static int find_peer(const struct net_udp *udp, const struct net_addr *peer,
		     bool any, struct net_udp_path *path)
{
	int err;

	if (!peer || !peer->family) {
		if (!udp->remote_port)
			return -EDESTADDRREQ;
		ip_addr_copy(path->remote, udp->remote);
		path->remote_port = udp->remote_port;
		return 0;
	}
	err = net_udp_read_peer(peer, &path->remote);
	if (err < 0)
		return err;
	path->remote_port = peer->port;
	if (!any && udp->remote_port &&
	    (udp->remote_port != peer->port ||
	     !ip_addr_eq(&udp->remote, &path->remote)))
		return -EISCONN;
	return 0;
}

/* Did the datagram that is answered come to a group? */
static bool is_group(const struct net_addr *addr)
{
	return addr->family == 4 ? addr->ip[0] >> 4 == 0xe
				 : addr->ip[0] == 0xff;
}

/* The local address: the datagram's, the socket's, or zero: the route's. */
static int find_local(const struct net_udp *udp, const struct net_addr *local,
		      struct net_udp_path *path)
{
	bool fixed = !IP_IS_ANY_TYPE_VAL(udp->local);

	if (fixed && IP_GET_TYPE(&udp->local) != IP_GET_TYPE(&path->remote))
		return -EADDRNOTAVAIL;
	fixed = fixed && !ip_addr_isany_val(udp->local);
	if (local && local->family && !is_group(local)) {
		net_addr_read(local, &path->local);
		if (IP_GET_TYPE(&path->local) != IP_GET_TYPE(&path->remote) ||
		    (fixed && !ip_addr_eq(&path->local, &udp->local)))
			return -EADDRNOTAVAIL;
	} else if (fixed) {
		ip_addr_copy(path->local, udp->local);
	} else {
		ip_addr_set_zero(&path->local);
		IP_SET_TYPE_VAL(path->local, IP_GET_TYPE(&path->remote));
	}
	return 0;
}

/* Sets the TTL and the source of a datagram to a group. */
cold static void set_group_fields(const struct net_udp *udp,
				  struct net_udp_path *path)
{
	unsigned family = IP_IS_V6_VAL(path->remote) ? 6 : 4;

	path->ttl = udp->group_ttl;
	if (ip_addr_isany_val(path->local) && udp->group_local.family == family)
		net_addr_read(&udp->group_local, &path->local);
}

static int find_path(const struct net_udp *udp, const struct net_addr *peer,
		     bool any, const struct net_addr *local,
		     struct net_udp_path *path)
{
	int err = find_peer(udp, peer, any, path);

	if (err == 0)
		err = find_local(udp, local, path);
	path->local_port = udp->local_port;
	path->ttl = udp->ttl;
	path->tos = udp->tos;
	if (err == 0 && ip_addr_ismulticast(&path->remote))
		set_group_fields(udp, path);
	return err;
}

/* ---- sending ---- */

/* Called if the neighbour is not known, or the source has to be found. */
cold static int send_slowly(struct out *out)
{
	struct net_addr source = {0};
	int err;

	if (!ip_addr_isany_val(out->path.local))
		net_addr_from_lwip(&out->path.local, 0, &source);
	err = net_source_choose(&source, &out->path.remote, &out->path.local);
	if (err < 0)
		return err;
	return net_link_route_udp(&out->path, out->iov, out->n, out->len);
}

/* Cold: runs when the call no longer waits, or its coroutine is destroyed. */
static void sender_close(void *arg)
{
	struct net_udp_sender *sender = arg;
	struct net_udp *udp = sender->udp;

	net_room_leave(&sender->wait);
	LIST_REMOVE(sender, link);
	net_mem_free(sender);
	udp->waiters--;
	net_udp_put(udp);
}

static int sender_open(struct net_udp *udp, struct net_udp_sender **out)
{
	struct net_udp_sender *sender = net_mem_calloc(1, sizeof(*sender));
	int err;

	if (!sender)
		return -ENOMEM;
	err = coro_cleanup_push(sender_close, sender);
	if (err < 0) {
		net_mem_free(sender);
		return err;
	}
	sender->udp = udp;
	LIST_INSERT_HEAD(&udp->senders, sender, link);
	udp->waiters++;
	*out = sender;
	return 0;
}

/*
 * Waits for room on a port: 0, or why the call cannot go on. *sender is opened
 * at the first wait of a datagram, and keeps its place in the port's list.
 */
__attribute__((noinline)) static int
wait_for_room(struct net_udp *udp, struct net_port *port,
	      struct net_udp_sender **sender)
{
	int err = 0;

	udp->stats.tx_busy++;
	if (udp->watch)
		net_udp_watch_room(udp, port);
	if (!coro_self() || udp->watch)
		return -EAGAIN;
	if (net_here()->draining)
		return -ECANCELED;
	if (!*sender)
		err = sender_open(udp, sender);
	if (err < 0)
		return err;
	net_room_wait(&(*sender)->wait, port);
	(*sender)->wait.co = coro_self();
	err = coro_park_at("net_udp_send", CORO_FOREVER);
	(*sender)->wait.co = NULL;
	return net_udp_wait_result(udp, err);
}

/*
 * Delivers a datagram to the group's members on this shard. No ICMP error is
 * about a group (RFC 1122 3.2.2, RFC 4443 2.4 e), so the datagram is not noted
 * for one.
 */
cold static void loop_group(const struct net_udp *udp, const struct out *out)
{
	if (!udp->group_quiet)
		net_link_loop_group(&out->path, out->iov, out->n, out->len);
}

static int try_once(struct out *out)
{
	int err;

	if (out->held && net_link_send_held(&out->path, out->held) == 0)
		return 0;
	err = net_link_send_udp(&out->path, out->iov, out->n, out->len,
				out->ext);
	return unlikely(err == -EINPROGRESS) ? send_slowly(out) : err;
}

/* Called if the port had no room. Frees *udp if it is closed meanwhile. */
cold static int send_later(struct net_udp *udp, struct out *out)
{
	struct net_udp_sender *sender = NULL;
	int err;

	out->held = NULL; /* others may release it */
	do {
		err = wait_for_room(udp, out->path.port, &sender);
		if (err < 0)
			break;
		err = try_once(out);
	} while (err == -EAGAIN);
	if (sender)
		coro_cleanup_pop(true);
	return err;
}

static int send_one(struct net_udp *udp, struct out *out)
{
	int err;

	if (out->len > room_to(&out->path.remote)) {
		udp->stats.tx_too_big++;
		return -EMSGSIZE;
	}
	err = try_once(out);
	if (unlikely(err == -EAGAIN))
		err = send_later(udp, out);
	if (err < 0)
		return err;
	if (unlikely(ip_addr_ismulticast(&out->path.remote)))
		loop_group(udp, out);
	else
		net_udp_note_sent(&out->path.local, udp->local_port,
				  &out->path.remote, out->path.remote_port);
	net_here()->stats.udp_sent++;
	udp->stats.tx++;
	udp->stats.tx_bytes += out->len;
	return 0;
}

/*
 * Finds the path of an answer, to where a datagram of IPv4 came from, which
 * needs none of find_path()'s checks: the socket has received it. False: it
 * goes elsewhere.
 */
static inline bool find_return_path(const struct net_udp *udp,
				    const struct net_datagram *d,
				    const struct pbuf *p,
				    struct net_udp_path *path)
{
	uint32_t remote, local;

	if (udp->remote_port || !net_udp_is_answer4(p, d))
		return false;
	memcpy(&remote, d->peer.ip, 4);
	memcpy(&local, d->local.ip, 4);
	ip_addr_set_ip4_u32_val(path->remote, remote);
	ip_addr_set_ip4_u32_val(path->local, local);
	path->remote_port = d->peer.port;
	path->local_port = udp->local_port;
	path->ttl = udp->ttl;
	path->tos = udp->tos;
	return true;
}

static int send_enter(struct net_udp *udp)
{
	int err = net_udp_enter(udp);

	return err < 0 ? err : net_udp_take_error(udp);
}

int net_udp_send_batch(struct net_udp *udp,
		       const struct net_datagram *datagrams, unsigned n)
{
	unsigned sent = 0;
	int err;

	NET_CHECK_UDP(udp);
	err = send_enter(udp);
	if (err == 0 && (!datagrams || n == 0))
		err = -EINVAL;
	while (err == 0 && sent < n) {
		const struct net_datagram *d = &datagrams[sent];
		struct iovec iov = {(void *)(uintptr_t)d->data, d->len};
		struct out out = {.iov = &iov, .n = 1};

		if (!d->data && d->len)
			err = -EINVAL;
		else if (d->len > UINT16_MAX)
			err = -EMSGSIZE;
		out.len = (unsigned)d->len;
		out.held = d->owner ? net_udp_held_frame(udp, d) : NULL;
		if (err == 0 &&
		    (!out.held ||
		     !find_return_path(udp, d, out.held, &out.path)))
			err = find_path(udp, &d->peer, false, &d->local,
					&out.path);
		if (err == 0)
			err = send_one(udp, &out);
		sent += err == 0;
	}
	return sent ? (int)sent : err;
}

static long send_vectors(struct net_udp *udp, const struct net_addr *local,
			 const struct net_addr *peer, bool any, struct out *out)
{
	int err = send_enter(udp);
	long total = net_iov_bytes(out->iov, out->n);

	if (err < 0)
		return err;
	if (total < 0)
		return total;
	if (total > UINT16_MAX) {
		udp->stats.tx_too_big++;
		return -EMSGSIZE;
	}
	out->len = (unsigned)total;
	err = find_path(udp, peer, any, local, &out->path);
	if (err == 0)
		err = send_one(udp, out);
	return err < 0 ? err : total;
}

long net_udp_send(struct net_udp *udp, const struct net_addr *peer,
		  const void *buf, size_t len)
{
	struct iovec iov = {(void *)(uintptr_t)buf, len};
	struct out out = {.iov = &iov, .n = 1};

	NET_CHECK_UDP(udp);
	return send_vectors(udp, NULL, peer, false, &out);
}

long net_udp_sendv(struct net_udp *udp, const struct net_addr *peer,
		   const struct iovec *iov, unsigned n)
{
	struct out out = {.iov = iov, .n = n};

	NET_CHECK_UDP(udp);
	return send_vectors(udp, NULL, peer, false, &out);
}

long net_udp_sendv_from(struct net_udp *udp, const struct net_addr *local,
			const struct net_addr *peer, const struct iovec *iov,
			unsigned n)
{
	struct out out = {.iov = iov, .n = n};

	NET_CHECK_UDP(udp);
	return send_vectors(udp, local, peer, true, &out);
}

long net_udp_send_owned(struct net_udp *udp, const struct net_addr *peer,
			const void *data, size_t len, net_release release,
			void *arg)
{
	struct iovec iov = {(void *)(uintptr_t)data, len};
	struct out out = {.iov = &iov, .n = 1};
	long n;

	NET_CHECK_UDP(udp);
	if (!release || (!data && len))
		return -EINVAL;
	net_check_shared(data, "the buffer of net_udp_send_owned()");
	out.ext = net_extbuf_open(release, arg);
	if (!out.ext) {
		release(arg);
		return -ENOMEM;
	}
	n = send_vectors(udp, NULL, peer, false, &out);
	net_extbuf_put(out.ext);
	return n;
}

long net_udp_room(struct net_udp *udp, const struct net_addr *peer)
{
	struct net_udp_path path;
	int err;

	NET_CHECK_UDP(udp);
	err = net_udp_enter(udp);
	if (err == 0)
		err = find_peer(udp, peer, true, &path);
	return err < 0 ? err : (long)room_to(&path.remote);
}
