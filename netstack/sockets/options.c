/*
 * getsockopt(), setsockopt(), ioctl().
 *
 * Each option is also set on the kernel's socket that holds the number, which
 * checks values and returns those that have no effect here. An option that is
 * not in these lists is refused (ENOPROTOOPT) rather than ignored.
 */
#include "netstack/sockets/dgram.h"
#include "netstack/sockets/whole.h"

#include <limits.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>

#include <linux/sockios.h>

#define NEVER_NS (-1)

/* Returns whether an option is stored and returned, without effect. */
static bool is_kept(int level, int name)
{
	switch (level) {
	case SOL_SOCKET:
		return name == SO_REUSEADDR || name == SO_REUSEPORT ||
		       name == SO_SNDBUF || name == SO_RCVBUF ||
		       name == SO_OOBINLINE || name == SO_PRIORITY ||
		       name == SO_BROADCAST || name == SO_DONTROUTE ||
		       name == SO_BUSY_POLL;
	case IPPROTO_IP:
		return name == IP_TOS || name == IP_TTL ||
		       name == IP_MTU_DISCOVER || name == IP_FREEBIND ||
		       name == IP_BIND_ADDRESS_NO_PORT;
	case IPPROTO_IPV6:
		return name == IPV6_TCLASS || name == IPV6_V6ONLY;
	case IPPROTO_TCP:
		return name == TCP_QUICKACK || name == TCP_DEFER_ACCEPT ||
		       name == TCP_NOTSENT_LOWAT || name == TCP_SYNCNT ||
		       name == TCP_LINGER2 || name == TCP_WINDOW_CLAMP ||
		       name == TCP_THIN_LINEAR_TIMEOUTS ||
		       name == TCP_FASTOPEN || name == TCP_FASTOPEN_CONNECT;
	default:
		return false;
	}
}

/* Returns whether the kernel's socket, of the same kind, has the answer. */
static bool is_of_kind(int level, int name)
{
	return level == SOL_SOCKET &&
	       (name == SO_TYPE || name == SO_DOMAIN || name == SO_PROTOCOL);
}

/* The MSS is kept until there is a connection, which has its own. */
static bool is_mss(int level, int name)
{
	return level == IPPROTO_TCP && name == TCP_MAXSEG;
}

/* ---- values ---- */

static int64_t timeval_ns(const struct timeval *tv)
{
	if (tv->tv_sec == 0 && tv->tv_usec == 0)
		return NEVER_NS;
	if (tv->tv_sec < 0)
		return 0; /* at once */
	if (tv->tv_sec >= INT64_MAX / 2000000000)
		return NEVER_NS;
	return tv->tv_sec * INT64_C(1000000000) + tv->tv_usec * 1000;
}

/* Reads a rate of 4 or 8 bytes; all ones: no limit. */
static uint64_t pacing_rate(const void *value, socklen_t len)
{
	uint64_t rate = 0;

	memcpy(&rate, value, len < sizeof(rate) ? sizeof(uint32_t) : len);
	return rate == UINT32_MAX || rate == UINT64_MAX ? 0 : rate;
}

static void set_nagle(struct net_sock *sock)
{
	if (sock->conn)
		net_set_nodelay(sock->conn,
				sock->opts.nodelay && !sock->opts.cork);
}

static void apply_keepalive(struct net_sock *sock)
{
	const struct net_sock_opts *o = &sock->opts;

	if (sock->conn)
		net_set_keepalive(
			sock->conn, o->keepalive ? (unsigned)o->keep_idle_s : 0,
			(unsigned)o->keep_interval_s, (unsigned)o->keep_count);
}

void net_sock_opts_apply(struct net_sock *sock)
{
	const struct net_sock_opts *o = &sock->opts;

	if (!o->nodelay || o->cork)
		set_nagle(sock);
	if (o->keepalive)
		apply_keepalive(sock);
	if (o->user_timeout_ms)
		net_set_user_timeout(sock->conn, o->user_timeout_ms);
	if (o->pacing_rate)
		net_set_pacing_rate(sock->conn, o->pacing_rate);
	if (o->cc[0])
		net_set_cc(sock->conn, o->cc); /* or only the kernel has it */
}

static int kernels_int(int fd, int level, int name)
{
	int value = 0;
	socklen_t len = sizeof(value);

	net_real()->getsockopt(fd, level, name, &value, &len);
	return value;
}

static int64_t kernels_timeout(int fd, int name)
{
	struct timeval tv = {0};
	socklen_t len = sizeof(tv);

	net_real()->getsockopt(fd, SOL_SOCKET, name, &tv, &len);
	return timeval_ns(&tv);
}

/* The kernel's default congestion control. */
static char kernels_cc[16];
static pthread_once_t kernels_cc_once = PTHREAD_ONCE_INIT;

static void get_cc(int fd, char cc[static 16])
{
	socklen_t len = 15;

	if (net_real()->getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, &len) <
	    0)
		cc[0] = '\0';
}

static void ask_kernels_cc(void)
{
	int fd = net_real()->socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return;
	get_cc(fd, kernels_cc);
	net_real()->close(fd);
}

/* Loads the congestion control, if it is not the default, and the rate. */
static void load_rate(struct net_sock_opts *o, int fd)
{
	uint64_t rate = 0;
	socklen_t len = sizeof(rate);

	pthread_once(&kernels_cc_once, ask_kernels_cc);
	get_cc(fd, o->cc);
	if (strcmp(o->cc, kernels_cc) == 0)
		o->cc[0] = '\0';
	if (net_real()->getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate,
				   &len) == 0)
		o->pacing_rate = pacing_rate(&rate, len);
}

/* Loads what the program has set before the socket was one of the stack's. */
void net_sock_opts_load(struct net_sock *sock, int fd)
{
	struct net_sock_opts *o = &sock->opts;
	struct linger linger = {0};
	socklen_t len = sizeof(linger);

	o->nodelay = true; /* as the stack has it */
	o->keepalive = kernels_int(fd, SOL_SOCKET, SO_KEEPALIVE);
	o->keep_idle_s = kernels_int(fd, IPPROTO_TCP, TCP_KEEPIDLE);
	o->keep_interval_s = kernels_int(fd, IPPROTO_TCP, TCP_KEEPINTVL);
	o->keep_count = kernels_int(fd, IPPROTO_TCP, TCP_KEEPCNT);
	o->user_timeout_ms =
		(unsigned)kernels_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT);
	o->recv_timeout_ns = kernels_timeout(fd, SO_RCVTIMEO);
	o->send_timeout_ns = kernels_timeout(fd, SO_SNDTIMEO);
	o->reuse_port = kernels_int(fd, SOL_SOCKET, SO_REUSEPORT);
	o->recv_low = (unsigned)kernels_int(fd, SOL_SOCKET, SO_RCVLOWAT);
	net_real()->getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &len);
	o->linger.on = linger.l_onoff;
	o->linger.seconds = linger.l_linger;
	load_rate(o, fd);
}

/* ---- setting ---- */

/* Returns true if an option has an effect here, and has had it. */
static bool set_socket(struct net_sock *sock, int name, const void *value,
		       socklen_t len)
{
	struct net_sock_opts *o = &sock->opts;
	struct linger linger;
	struct timeval tv;
	int number;

	memcpy(&number, value, sizeof(number));
	switch (name) {
	case SO_KEEPALIVE:
		o->keepalive = number;
		apply_keepalive(sock);
		return true;
	case SO_LINGER:
		memcpy(&linger, value, sizeof(linger));
		o->linger.on = linger.l_onoff;
		o->linger.seconds = linger.l_linger;
		return true;
	case SO_RCVTIMEO:
		memcpy(&tv, value, sizeof(tv));
		o->recv_timeout_ns = timeval_ns(&tv);
		return true;
	case SO_SNDTIMEO:
		memcpy(&tv, value, sizeof(tv));
		o->send_timeout_ns = timeval_ns(&tv);
		return true;
	case SO_REUSEPORT:
		o->reuse_port = number;
		return true;
	case SO_RCVLOWAT:
		o->recv_low = number < 0    ? INT_MAX
			      : number == 0 ? 1
					    : (unsigned)number;
		net_sock_notify(sock, net_sock_events(sock));
		return true;
	case SO_MAX_PACING_RATE:
		o->pacing_rate = pacing_rate(
			value, len < sizeof(uint64_t) ? 4 : sizeof(uint64_t));
		if (sock->conn)
			net_set_pacing_rate(sock->conn, o->pacing_rate);
		return true;
	default:
		return false;
	}
}

static bool set_tcp(struct net_sock *sock, int name, const void *value)
{
	struct net_sock_opts *o = &sock->opts;
	int number;

	memcpy(&number, value, sizeof(number));
	switch (name) {
	case TCP_NODELAY:
		o->nodelay = number;
		set_nagle(sock);
		return true;
	case TCP_CORK:
		o->cork = number;
		set_nagle(sock);
		return true;
	case TCP_KEEPIDLE:
		o->keep_idle_s = number;
		apply_keepalive(sock);
		return true;
	case TCP_KEEPINTVL:
		o->keep_interval_s = number;
		apply_keepalive(sock);
		return true;
	case TCP_KEEPCNT:
		o->keep_count = number;
		apply_keepalive(sock);
		return true;
	case TCP_USER_TIMEOUT:
		o->user_timeout_ms = (unsigned)number;
		if (sock->conn)
			net_set_user_timeout(sock->conn, (unsigned)number);
		return true;
	default:
		return false;
	}
}

static bool has_effect(int level, int name)
{
	return (level == SOL_SOCKET &&
		(name == SO_KEEPALIVE || name == SO_LINGER ||
		 name == SO_RCVTIMEO || name == SO_SNDTIMEO ||
		 name == SO_RCVLOWAT || name == SO_MAX_PACING_RATE)) ||
	       (level == IPPROTO_TCP &&
		(name == TCP_NODELAY || name == TCP_CORK ||
		 name == TCP_KEEPIDLE || name == TCP_KEEPINTVL ||
		 name == TCP_KEEPCNT || name == TCP_USER_TIMEOUT));
}

static long set_congestion(struct net_sock *sock, const void *value,
			   socklen_t len)
{
	char name[sizeof(sock->opts.cc)] = "";
	int err = 0;

	if (len == 0)
		return -EINVAL;
	memcpy(name, value, len < sizeof(name) ? len : sizeof(name) - 1);
	if (sock->state == NET_SOCK_LISTENING)
		err = net_sock_listener_set_cc(sock, name);
	else if (sock->conn)
		err = net_set_cc(sock->conn, name);
	else if (strcmp(name, "cubic") != 0 && strcmp(name, "reno") != 0 &&
		 strcmp(name, "bbr") != 0)
		err = -ENOENT;
	if (err == 0) /* for the connection to come, and accepted ones */
		memcpy(sock->opts.cc, name, sizeof(name));
	return err == -EINVAL ? -ENOENT : err;
}

static bool comes_too_late(const struct net_sock *sock, int name)
{
	return (name == TCP_FASTOPEN && sock->state == NET_SOCK_CONNECTED) ||
	       (name == TCP_FASTOPEN_CONNECT && sock->state != NET_SOCK_BOUND);
}

long net_sock_setopt(struct net_sock *sock, int fd, int level, int name,
		     const void *value, socklen_t len)
{
	if (sock->dgram)
		return net_dgram_setopt(sock, fd, level, name, value, len);
	if (level == IPPROTO_TCP && name == TCP_CONGESTION)
		return value && net_can_read(value, len)
			       ? set_congestion(sock, value, len)
			       : -EFAULT;
	if (!is_kept(level, name) && !has_effect(level, name) &&
	    !is_mss(level, name))
		return -ENOPROTOOPT;
	if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY && sock->v6 &&
	    (sock->state != NET_SOCK_BOUND || sock->local.family))
		return -EINVAL;
	if (level == IPPROTO_TCP && comes_too_late(sock, name))
		return -EINVAL;
	if (net_real()->setsockopt(fd, level, name, value, len) < 0)
		return -errno; /* of a wrong value, or length */
	if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY)
		sock->v6_only = sock->v6 && *(const int *)value;
	if (level == SOL_SOCKET)
		set_socket(sock, name, value, len);
	else if (level == IPPROTO_TCP)
		set_tcp(sock, name, value);
	return 0;
}

/* ---- getting ---- */

static long copy_value(void *value, socklen_t *len, const void *from,
		       size_t size)
{
	if (*len > size)
		*len = (socklen_t)size;
	memcpy(value, from, *len);
	return 0;
}

static long give_int(void *value, socklen_t *len, int number)
{
	return copy_value(value, len, &number, sizeof(number));
}

static long give_timeout(void *value, socklen_t *len, int64_t ns)
{
	struct timeval tv = {0};

	if (ns >= 0) {
		tv.tv_sec = ns / 1000000000;
		tv.tv_usec = ns % 1000000000 / 1000;
	}
	return copy_value(value, len, &tv, sizeof(tv));
}

static int take_error(struct net_sock *sock)
{
	int err = sock->err;

	sock->err = 0;
	if (err || !sock->conn || sock->err_reported)
		return err;
	if (!(net_ready(sock->conn, 0) & NET_FAILED))
		return 0;
	/* Peeking returns the error, and leaves bytes that could be read. */
	err = -(int)net_peek(sock->conn, &(char){0}, 1);
	if (err <= 0 || err == EPIPE || err == EAGAIN)
		return 0;
	sock->err_reported = true;
	return err;
}

static void fill_info(const struct net_tcp_info *from, struct tcp_info *out)
{
#define COPY(name) out->tcpi_##name = from->name
	*out = (struct tcp_info){0};
	COPY(state), COPY(ca_state), COPY(retransmits), COPY(probes);
	COPY(backoff), COPY(options);
	out->tcpi_snd_wscale = from->snd_wscale & 15;
	out->tcpi_rcv_wscale = from->rcv_wscale & 15;
	out->tcpi_delivery_rate_app_limited = from->delivery_rate_app_limited;
	COPY(rto), COPY(ato), COPY(snd_mss), COPY(rcv_mss);
	COPY(unacked), COPY(sacked), COPY(lost), COPY(retrans), COPY(fackets);
	COPY(last_data_sent), COPY(last_ack_sent);
	COPY(last_data_recv), COPY(last_ack_recv);
	COPY(pmtu), COPY(rcv_ssthresh), COPY(rtt), COPY(rttvar);
	COPY(snd_ssthresh), COPY(snd_cwnd), COPY(advmss), COPY(reordering);
	COPY(rcv_rtt), COPY(rcv_space), COPY(total_retrans);
	COPY(pacing_rate), COPY(max_pacing_rate);
	COPY(bytes_acked), COPY(bytes_received);
	COPY(segs_out), COPY(segs_in), COPY(notsent_bytes), COPY(min_rtt);
	COPY(data_segs_in), COPY(data_segs_out), COPY(delivery_rate);
	COPY(busy_time), COPY(rwnd_limited), COPY(sndbuf_limited);
	COPY(delivered), COPY(delivered_ce);
	COPY(bytes_sent), COPY(bytes_retrans), COPY(dsack_dups);
	COPY(reord_seen), COPY(rcv_ooopack), COPY(snd_wnd);
#undef COPY
}

static long give_info(const struct net_sock *sock, void *value, socklen_t *len)
{
	struct net_conn_stats stats;
	struct tcp_info info = {.tcpi_state = 7 /* CLOSE */};

	if (sock->state == NET_SOCK_LISTENING)
		info.tcpi_state = 10;
	if (sock->state == NET_SOCK_CONNECTING)
		info.tcpi_state = 2;
	if (sock->conn && net_conn_stats(sock->conn, &stats) == 0)
		fill_info(&stats.info, &info);
	return copy_value(value, len, &info, sizeof(info));
}

static long get_socket(struct net_sock *sock, int name, void *value,
		       socklen_t *len)
{
	const struct net_sock_opts *o = &sock->opts;
	struct linger linger = {o->linger.on, o->linger.seconds};

	switch (name) {
	case SO_ERROR:
		return give_int(value, len, take_error(sock));
	case SO_ACCEPTCONN:
		return give_int(value, len, sock->state == NET_SOCK_LISTENING);
	case SO_KEEPALIVE:
		return give_int(value, len, o->keepalive);
	case SO_LINGER:
		return copy_value(value, len, &linger, sizeof(linger));
	case SO_RCVTIMEO:
		return give_timeout(value, len, o->recv_timeout_ns);
	case SO_SNDTIMEO:
		return give_timeout(value, len, o->send_timeout_ns);
	default:
		return -ENOPROTOOPT;
	}
}

static long get_tcp(struct net_sock *sock, int name, void *value,
		    socklen_t *len)
{
	const struct net_sock_opts *o = &sock->opts;
	struct net_conn_stats stats = {.mss = 536, .cc = "cubic"};
	char cc[16] = "";

	switch (name) {
	case TCP_NODELAY:
		return give_int(value, len, o->nodelay);
	case TCP_CORK:
		return give_int(value, len, o->cork);
	case TCP_KEEPIDLE:
		return give_int(value, len, o->keep_idle_s);
	case TCP_KEEPINTVL:
		return give_int(value, len, o->keep_interval_s);
	case TCP_KEEPCNT:
		return give_int(value, len, o->keep_count);
	case TCP_USER_TIMEOUT:
		return give_int(value, len, (int)o->user_timeout_ms);
	case TCP_INFO:
		return give_info(sock, value, len);
	case TCP_MAXSEG:
		net_conn_stats(sock->conn, &stats);
		return give_int(value, len, (int)stats.mss);
	case TCP_CONGESTION:
		if (net_conn_stats(sock->conn, &stats) < 0 && sock->opts.cc[0])
			stats.cc = sock->opts.cc;
		memcpy(cc, stats.cc, strnlen(stats.cc, sizeof(cc) - 1));
		return copy_value(value, len, cc, sizeof(cc));
	default:
		return -ENOPROTOOPT;
	}
}

static long get_path_mtu(struct net_sock *sock, void *value, socklen_t *len)
{
	struct net_conn_stats stats;

	if (!sock->conn || net_conn_stats(sock->conn, &stats) < 0)
		return -ENOTCONN;
	return give_int(value, len, (int)stats.info.pmtu);
}

long net_sock_getopt(struct net_sock *sock, int fd, int level, int name,
		     void *value, socklen_t *len)
{
	long err = level == IPPROTO_IP || level == IPPROTO_IPV6 ? -ENOPROTOOPT
								: -EOPNOTSUPP;

	if (!value || !len || !net_can_write(len, sizeof(*len)))
		return -EFAULT;
	if ((int)*len < 0)
		return -EINVAL;
	if (*len && !net_can_write(value, 1))
		return -EFAULT;
	if (sock->dgram)
		return net_dgram_getopt(sock, fd, level, name, value, len);
	if (is_kept(level, name) || is_of_kind(level, name) ||
	    (is_mss(level, name) && !sock->conn) ||
	    (level == SOL_SOCKET &&
	     (name == SO_MAX_PACING_RATE || name == SO_RCVLOWAT)))
		return net_real()->getsockopt(fd, level, name, value, len) < 0
			       ? -errno
			       : 0;
	if (level == SOL_SOCKET)
		err = get_socket(sock, name, value, len);
	else if (level == IPPROTO_TCP)
		err = get_tcp(sock, name, value, len);
	else if ((level == IPPROTO_IP && name == IP_MTU) ||
		 (level == IPPROTO_IPV6 && name == IPV6_MTU))
		err = get_path_mtu(sock, value, len);
	return err;
}

/* ---- ioctl ---- */

int net_sock_ioctl(struct net_sock *sock, unsigned long request, void *arg,
		   long *result)
{
	struct net_conn_stats stats = {0};

	if (request != FIONREAD && request != SIOCOUTQ)
		return 0;
	*result = 0;
	if (!arg || !net_can_write(arg, sizeof(int))) {
		*result = -EFAULT;
	} else if (sock->state == NET_SOCK_LISTENING) {
		*result = -EINVAL;
	} else if (sock->dgram) {
		*result = net_dgram_ioctl(sock, request, arg);
	} else {
		net_conn_stats(sock->conn, &stats);
		*(int *)arg = (int)(request == FIONREAD
					    ? stats.unread
					    : stats.unsent + stats.unacked);
	}
	return 1;
}
