/*
 * The sockets of c-ares, on the stack's UDP and TCP calls. None of these
 * functions blocks, so that c-ares is never left in the middle of its work:
 * sockets have a watch, with which no room and no memory are errors, and TCP
 * connects in a coroutine of its own.
 */
#include "netstack/resolve/resolve_priv.h"

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#define DIAL_TIMEOUT_MS 5000

/* Datagrams that wait: the answers of all queries, and a flood's. */
static const struct net_udp_opts udp_opts = {
	.rx_datagrams = NET_RESOLVE_QUERIES,
	.rx_bytes = 128 * 1024,
};

static struct net_dns_socket *socket_of(void *data, ares_socket_t fd)
{
	struct net_resolver *resolver = data;

	return &resolver->sockets[fd - 1];
}

static int set_errno(int err)
{
	errno = err < 0 ? -err : err;
	return -1;
}

/* Events wake net_poll(); there is nothing else to do. */
static void on_datagram(struct net_udp *udp, struct net_udp_watch *watch)
{
}

static void on_event(struct net_conn *conn, struct net_watch *watch)
{
}

static ares_socket_t open_socket(int domain, int type, int protocol, void *data)
{
	struct net_resolver *resolver = data;
	struct net_addr any = {.family = domain == AF_INET6 ? 6 : 4};
	struct net_dns_socket *s = resolver->sockets;
	int err;

	while (s < resolver->sockets + NET_DNS_SOCKETS && s->used)
		s++;
	if (s == resolver->sockets + NET_DNS_SOCKETS)
		return set_errno(EMFILE);
	*s = (struct net_dns_socket){.resolver = resolver,
				     .udp_watch.fn = on_datagram,
				     .watch.fn = on_event,
				     .stream = type == SOCK_STREAM};
	if (!s->stream) {
		err = net_udp_open(net_here(), &any, &udp_opts, &s->udp);
		if (err < 0)
			return set_errno(err);
		net_udp_set_watch(s->udp, &s->udp_watch);
	}
	s->used = true;
	return (ares_socket_t)(s - resolver->sockets) + 1;
}

static int close_socket(ares_socket_t fd, void *data)
{
	struct net_dns_socket *s = socket_of(data, fd);

	if (s->dialer) {
		s->gone = true;
		coro_cancel(s->dialer);
		return 0;
	}
	net_udp_close(s->udp);
	net_close(s->conn);
	*s = (struct net_dns_socket){0};
	return 0;
}

static void *dial_server(void *arg)
{
	const struct net_dial_opts opts = {.timeout_ms = DIAL_TIMEOUT_MS};
	struct net_dns_socket *s = arg;
	struct net_conn *conn = NULL;
	int err = net_dial(net_here(), &s->server, &opts, &conn);

	coro_detach(s->dialer);
	s->dialer = NULL;
	if (s->gone) {
		net_abort(conn);
		*s = (struct net_dns_socket){0};
		return NULL;
	}
	net_set_watch(conn, &s->watch);
	s->conn = conn;
	s->err = (int16_t)err;
	net_query_wake(s->resolver);
	return NULL;
}

static bool read_sockaddr(const struct sockaddr *sa, struct net_addr *out)
{
	*out = (struct net_addr){0};
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *sin = (const void *)sa;

		out->family = 4;
		out->port = ntohs(sin->sin_port);
		memcpy(out->ip, &sin->sin_addr, 4);
		return true;
	}
	if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *sin6 = (const void *)sa;

		out->family = 6;
		out->port = ntohs(sin6->sin6_port);
		memcpy(out->ip, &sin6->sin6_addr, 16);
		return true;
	}
	return false;
}

static int connect_socket(ares_socket_t fd, const struct sockaddr *sa,
			  ares_socklen_t len, void *data)
{
	struct net_dns_socket *s = socket_of(data, fd);
	struct coro_attr attr = {.name = "dns-dial"};
	int err;

	if (!read_sockaddr(sa, &s->server))
		return set_errno(EAFNOSUPPORT);
	if (!s->stream) {
		err = net_udp_connect(s->udp, &s->server);
		return err < 0 ? set_errno(err) : 0;
	}
	err = coro_spawn(net_here()->sched, &attr, dial_server, s, &s->dialer);
	return set_errno(err < 0 ? err : EINPROGRESS);
}

static void write_sockaddr(const struct net_addr *addr, struct sockaddr *sa,
			   ares_socklen_t *len)
{
	struct sockaddr_in sin = {.sin_family = AF_INET,
				  .sin_port = htons(addr->port)};
	struct sockaddr_in6 sin6 = {.sin6_family = AF_INET6,
				    .sin6_port = htons(addr->port)};
	const void *from = addr->family == 4 ? (const void *)&sin : &sin6;
	ares_socklen_t size = addr->family == 4 ? sizeof(sin) : sizeof(sin6);

	memcpy(&sin.sin_addr, addr->ip, 4);
	memcpy(&sin6.sin6_addr, addr->ip, 16);
	memcpy(sa, from, size < *len ? size : *len);
	*len = size;
}

/*
 * Discards what cannot be a response before c-ares sees it: c-ares takes an
 * empty datagram, which anybody can forge, for the server's failure.
 */
static ares_ssize_t receive_datagram(struct net_udp *udp, void *buf, size_t len,
				     struct sockaddr *sa,
				     ares_socklen_t *sa_len)
{
	struct net_datagram info;

	if (len > NET_DNS_DATAGRAM_BYTES)
		len = NET_DNS_DATAGRAM_BYTES;
	while (net_udp_ready(udp, NET_READABLE)) {
		long n = net_udp_recv(udp, buf, len, &info);

		if (n < 0)
			return set_errno((int)n);
		if (n < NS_HFIXEDSZ || info.len > len)
			continue;
		if (sa)
			write_sockaddr(&info.peer, sa, sa_len);
		return n;
	}
	return set_errno(EAGAIN);
}

static ares_ssize_t receive_bytes(ares_socket_t fd, void *buf, size_t len,
				  int flags, struct sockaddr *sa,
				  ares_socklen_t *sa_len, void *data)
{
	struct net_dns_socket *s = socket_of(data, fd);
	long n;

	if (!s->stream)
		return receive_datagram(s->udp, buf, len, sa, sa_len);
	if (!s->conn)
		return set_errno(s->err ? s->err : EAGAIN);
	if (!net_ready(s->conn, NET_READABLE))
		return set_errno(EAGAIN);
	n = net_recv(s->conn, buf, len);
	return n < 0 ? set_errno((int)n) : n;
}

/* A datagram for which the link has no room is lost, as on any path. */
static ares_ssize_t send_datagram(struct net_udp *udp, const struct iovec *iov,
				  unsigned n)
{
	long sent = net_udp_sendv(udp, NULL, iov, n);

	if (sent == -EAGAIN)
		for (sent = 0; n > 0; n--)
			sent += (long)iov[n - 1].iov_len;
	return sent < 0 ? set_errno((int)sent) : sent;
}

static ares_ssize_t send_vectors(ares_socket_t fd, const struct iovec *iov,
				 int n, void *data)
{
	struct net_dns_socket *s = socket_of(data, fd);
	long sent;

	if (!s->stream)
		return send_datagram(s->udp, iov, (unsigned)n);
	if (!s->conn)
		return set_errno(s->err ? s->err : EAGAIN);
	if (!net_ready(s->conn, NET_WRITABLE))
		return set_errno(EAGAIN);
	sent = net_sendv(s->conn, iov, (unsigned)n);
	return sent < 0 ? set_errno((int)sent) : sent;
}

const struct ares_socket_functions net_dns_functions = {
	.asocket = open_socket,
	.aclose = close_socket,
	.aconnect = connect_socket,
	.arecvfrom = receive_bytes,
	.asendv = send_vectors,
};

void net_dns_interest(void *data, ares_socket_t fd, int reads, int writes)
{
	struct net_dns_socket *s = socket_of(data, fd);

	s->reads = reads;
	s->writes = writes;
}

static unsigned wanted_events(const struct net_dns_socket *s)
{
	return (s->reads ? NET_READABLE : 0u) | (s->writes ? NET_WRITABLE : 0u);
}

unsigned net_dns_items(struct net_resolver *resolver,
		       struct net_poll_item items[NET_DNS_SOCKETS])
{
	unsigned n = 0;

	for (unsigned i = 0; i < NET_DNS_SOCKETS; i++) {
		struct net_dns_socket *s = &resolver->sockets[i];

		if (s->used && (s->udp || s->conn))
			items[n++] = (struct net_poll_item){
				.udp = s->udp,
				.conn = s->conn,
				.events = wanted_events(s),
			};
	}
	return n;
}

static unsigned ready_events(const struct net_dns_socket *s)
{
	if (!s->used || s->gone)
		return 0;
	if (s->udp)
		return net_udp_ready(s->udp, wanted_events(s));
	if (s->conn)
		return net_ready(s->conn, wanted_events(s));
	return s->err ? NET_FAILED : 0;
}

void net_dns_process(struct net_resolver *resolver)
{
	for (unsigned i = 0; i < NET_DNS_SOCKETS; i++) {
		struct net_dns_socket *s = &resolver->sockets[i];
		unsigned events = ready_events(s);
		bool failed = events & (NET_FAILED | NET_GONE);
		ares_socket_t fd = (ares_socket_t)i + 1;

		if (events)
			ares_process_fd(resolver->channel,
					failed || (events & NET_READABLE)
						? fd
						: ARES_SOCKET_BAD,
					failed || (events & NET_WRITABLE)
						? fd
						: ARES_SOCKET_BAD);
	}
}
