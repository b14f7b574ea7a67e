/* Options of sockets. */
#include "calls.h"

#include <fcntl.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int fd;

static void set_option(const char *label, int level, int option, int value)
{
	show(label, setsockopt(fd, level, option, &value, sizeof(value)));
}

static void get_option(const char *label, int level, int option)
{
	show(label, get_int(fd, level, option));
}

static const struct {
	const char *name;
	int level, option, value;
} kept[] = {
	{"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 7},
	{"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR, 1},
	{"SO_REUSEPORT", SOL_SOCKET, SO_REUSEPORT, 1},
	{"SO_BROADCAST", SOL_SOCKET, SO_BROADCAST, 1},
	{"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE, 1},
	{"SO_PRIORITY", SOL_SOCKET, SO_PRIORITY, 3},
	{"SO_DONTROUTE", SOL_SOCKET, SO_DONTROUTE, 1},
	{"SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP, 1},
	{"SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, 40000},
	{"SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, 40000},
	{"SO_SNDBUF, little", SOL_SOCKET, SO_SNDBUF, 1},
	{"SO_RCVBUF, little", SOL_SOCKET, SO_RCVBUF, 1},
	{"SO_ZEROCOPY", SOL_SOCKET, SO_ZEROCOPY, 1},
	{"SO_BUSY_POLL", SOL_SOCKET, SO_BUSY_POLL, 0},
	{"SO_TYPE", SOL_SOCKET, SO_TYPE, 1},
	{"SO_ERROR", SOL_SOCKET, SO_ERROR, 1},
	{"unknown of SOL_SOCKET", SOL_SOCKET, 999, 1},
	{"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, 1},
	{"TCP_CORK", IPPROTO_TCP, TCP_CORK, 1},
	{"TCP_CORK, off", IPPROTO_TCP, TCP_CORK, 0},
	{"TCP_MAXSEG", IPPROTO_TCP, TCP_MAXSEG, 1000},
	{"TCP_MAXSEG, little", IPPROTO_TCP, TCP_MAXSEG, 10},
	{"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 100},
	{"TCP_KEEPIDLE of 0", IPPROTO_TCP, TCP_KEEPIDLE, 0},
	{"TCP_KEEPIDLE, long", IPPROTO_TCP, TCP_KEEPIDLE, 32768},
	{"TCP_KEEPINTVL", IPPROTO_TCP, TCP_KEEPINTVL, 10},
	{"TCP_KEEPINTVL of 0", IPPROTO_TCP, TCP_KEEPINTVL, 0},
	{"TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT, 3},
	{"TCP_KEEPCNT, many", IPPROTO_TCP, TCP_KEEPCNT, 128},
	{"TCP_SYNCNT", IPPROTO_TCP, TCP_SYNCNT, 3},
	{"TCP_SYNCNT, many", IPPROTO_TCP, TCP_SYNCNT, 256},
	{"TCP_LINGER2", IPPROTO_TCP, TCP_LINGER2, 10},
	{"TCP_DEFER_ACCEPT of 0", IPPROTO_TCP, TCP_DEFER_ACCEPT, 0},
	{"TCP_WINDOW_CLAMP", IPPROTO_TCP, TCP_WINDOW_CLAMP, 20000},
	{"TCP_QUICKACK", IPPROTO_TCP, TCP_QUICKACK, 1},
	{"TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT, 5000},
	{"TCP_USER_TIMEOUT, negative", IPPROTO_TCP, TCP_USER_TIMEOUT, -1},
	{"TCP_NOTSENT_LOWAT", IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384},
	{"TCP_THIN_LINEAR_TIMEOUTS", IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1},
	{"TCP_FASTOPEN", IPPROTO_TCP, TCP_FASTOPEN, 5},
	{"TCP_FASTOPEN_CONNECT", IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1},
	{"unknown of IPPROTO_TCP", IPPROTO_TCP, 999, 1},
	{"IP_TOS", IPPROTO_IP, IP_TOS, 0x10},
	{"IP_TTL", IPPROTO_IP, IP_TTL, 64},
	{"IP_TTL, much", IPPROTO_IP, IP_TTL, 256},
	{"IP_MTU_DISCOVER", IPPROTO_IP, IP_MTU_DISCOVER, 2},
	{"IP_RECVERR", IPPROTO_IP, IP_RECVERR, 1},
	{"IP_FREEBIND", IPPROTO_IP, IP_FREEBIND, 1},
	{"IP_BIND_ADDRESS_NO_PORT", IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1},
	{"unknown of IPPROTO_IP", IPPROTO_IP, 999, 1},
	{"IPV6_V6ONLY of IPv4", IPPROTO_IPV6, IPV6_V6ONLY, 1},
	{"unknown level", 999, 1, 1},
};

/* The kernel changes it with the connection. */
static bool is_tuned(int level, int option)
{
	return level == SOL_SOCKET
		       ? option == SO_SNDBUF || option == SO_RCVBUF
		       : level == IPPROTO_TCP && option == TCP_WINDOW_CLAMP;
}

static void all_kept(const char *state)
{
	char label[80];

	for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++) {
		snprintf(label, sizeof(label), "%s%s: at first", state,
			 kept[i].name);
		if (!*state || !is_tuned(kept[i].level, kept[i].option))
			get_option(label, kept[i].level, kept[i].option);
		snprintf(label, sizeof(label), "%s%s", state, kept[i].name);
		set_option(label, kept[i].level, kept[i].option, kept[i].value);
		snprintf(label, sizeof(label), "%s%s: then", state,
			 kept[i].name);
		get_option(label, kept[i].level, kept[i].option);
	}
}

static void lengths(void)
{
	int value = 1;
	char text[64] = "reno";
	struct linger linger = {1, 5};
	socklen_t len = 2;

	show("length 2: setsockopt",
	     setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, 2));
	show("length 1: TCP_NODELAY",
	     setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, 1));
	show("length 1: IP_TOS", setsockopt(fd, IPPROTO_IP, IP_TOS, &value, 1));
	show("length 2: getsockopt",
	     getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &len));
	show("length 2: its length", len);
	len = 100;
	show("length 100: getsockopt",
	     getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, text, &len));
	show("length 100: its length", len);
	len = (socklen_t)-1;
	show("length -1: getsockopt",
	     getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &len));
	len = 0;
	show("length 0: getsockopt",
	     getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &len));
	show("SO_LINGER",
	     setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)));
	show("SO_LINGER, short",
	     setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, 4));
	len = sizeof(linger);
	memset(&linger, 0, len);
	show("SO_LINGER: read",
	     getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &len));
	show_text("SO_LINGER: is", "%d %d %u", linger.l_onoff, linger.l_linger,
		  len);
	len = sizeof(text);
	show("TCP_CONGESTION",
	     setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
	show("TCP_CONGESTION: read",
	     getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, text, &len));
	show_text("TCP_CONGESTION: is", "%s %u", text, len);
	show("TCP_CONGESTION, unknown",
	     setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "nosuch", 6));
	show("SO_PEERCRED",
	     getsockopt(fd, SOL_SOCKET, SO_PEERCRED, text, &len) < 0 ? -1 : 0);
	show("SO_BINDTODEVICE, none such",
	     setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "nosuch", 7));
}

static void information(void)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);
	int connected = talk("read:5 end");

	show("TCP_INFO", getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len));
	show("TCP_INFO: state", info.tcpi_state);
	len = sizeof(info);
	send(connected, "12345", 5, 0);
	show("TCP_INFO, connected",
	     getsockopt(connected, IPPROTO_TCP, TCP_INFO, &info, &len));
	show("TCP_INFO, connected: state", info.tcpi_state);
	show("TCP_MAXSEG, connected",
	     get_int(connected, IPPROTO_TCP, TCP_MAXSEG));
	show("IP_MTU", get_int(connected, IPPROTO_IP, IP_MTU));
	show("IP_TTL, connected", get_int(connected, IPPROTO_IP, IP_TTL));
	close(connected);
}

void calls_on_options(void)
{
	unsigned port;

	fd = tcp();
	all_kept("");
	close(fd);
	fd = talk("end");
	all_kept("connected: ");
	close(fd);
	fd = listener(&port);
	all_kept("listening: ");
	close(fd);
	fd = tcp();
	lengths();
	information();
	close(fd);
	fd = tcp6();
	get_option("IPV6_V6ONLY", IPPROTO_IPV6, IPV6_V6ONLY);
	set_option("IPV6_V6ONLY: set", IPPROTO_IPV6, IPV6_V6ONLY, 1);
	get_option("IPV6_V6ONLY: then", IPPROTO_IPV6, IPV6_V6ONLY);
	set_option("IPV6_UNICAST_HOPS", IPPROTO_IPV6, IPV6_UNICAST_HOPS, 64);
	set_option("IPV6_TCLASS", IPPROTO_IPV6, IPV6_TCLASS, 16);
	get_option("IPV6_TCLASS: then", IPPROTO_IPV6, IPV6_TCLASS);
	close(fd);
}
