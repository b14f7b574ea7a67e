/* Sockets that are new, that connect and that listen. */
#include "calls.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ADDR(addr) ((struct sockaddr *)&(addr))

/* ---- new ---- */

void calls_on_new_sockets(void)
{
	struct sockaddr_in addr = {0};
	socklen_t len = sizeof(addr);
	char byte = 0;
	int fd;

	show("socket: unknown type", socket(AF_INET, 77, 0));
	show("socket: UDP as a stream",
	     socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
	show("socket: unknown flag", socket(AF_INET, SOCK_STREAM | 0x100, 0));
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
		    IPPROTO_TCP);
	show("SOCK_NONBLOCK", fcntl(fd, F_GETFL) & O_NONBLOCK ? 1 : 0);
	show("SOCK_CLOEXEC", fcntl(fd, F_GETFD));
	close(fd);
	fd = tcp();
	show("new: SO_TYPE", get_int(fd, SOL_SOCKET, SO_TYPE));
	show("new: SO_DOMAIN", get_int(fd, SOL_SOCKET, SO_DOMAIN));
	show("new: SO_PROTOCOL", get_int(fd, SOL_SOCKET, SO_PROTOCOL));
	show("new: SO_ACCEPTCONN", get_int(fd, SOL_SOCKET, SO_ACCEPTCONN));
	show("new: getsockname", getsockname(fd, ADDR(addr), &len));
	show_text("new: its name", "%d %d %u", addr.sin_family,
		  ntohs(addr.sin_port), len);
	show("new: getpeername", getpeername(fd, ADDR(addr), &len));
	show("new: recv", recv(fd, &byte, 1, 0));
	show("new: recv, not waiting", recv(fd, &byte, 1, MSG_DONTWAIT));
	show("new: send", send(fd, &byte, 1, 0));
	show("new: write of nothing", write(fd, &byte, 0));
	show("new: shutdown", shutdown(fd, SHUT_WR));
	show("new: accept", accept(fd, NULL, NULL));
	show_poll("new: poll", 1, wait_for(fd, POLLIN | POLLOUT));
	show("new: listen without an address", listen(fd, 1));
	show("new: then a port", getsockname(fd, ADDR(addr), &len));
	show("new: which is given", addr.sin_port != 0);
	show("new: close", close(fd));
	show("closed: close", close(fd));
	show("closed: recv", recv(fd, &byte, 1, 0));
	show("closed: connect", connect(fd, ADDR(addr), sizeof(addr)));
	show("closed: getsockname", getsockname(fd, ADDR(addr), &len));
	fd = open("/dev/null", O_RDWR);
	show("no socket: recv", recv(fd, &byte, 1, 0));
	show("no socket: connect", connect(fd, ADDR(addr), sizeof(addr)));
	show("no socket: accept", accept(fd, NULL, NULL));
	show("no socket: getsockname", getsockname(fd, ADDR(addr), &len));
	show("no socket: SO_ERROR", so_error(fd));
	close(fd);
}

/* ---- connect ---- */

static int dial_port(int fd, unsigned port)
{
	struct sockaddr_in addr = peer_addr(port);

	return connect(fd, ADDR(addr), sizeof(addr));
}

static void refusals(void)
{
	int fd = tcp();

	show("refused", dial_port(fd, closed_port));
	show("refused: SO_ERROR", so_error(fd));
	show_poll("refused: poll", 1, wait_for(fd, POLLIN | POLLOUT));
	show("refused: again", dial_port(fd, closed_port));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	show("refused, not waiting", dial_port(fd, closed_port));
	show_poll("refused, not waiting: poll", 1,
		  wait_for(fd, POLLIN | POLLOUT | POLLRDHUP));
	show("refused, not waiting: SO_ERROR", so_error(fd));
	show("refused, not waiting: SO_ERROR again", so_error(fd));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	dial_port(fd, closed_port);
	wait_for(fd, POLLOUT);
	show("refused, not waiting: connect says", dial_port(fd, closed_port));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	dial_port(fd, closed_port);
	wait_for(fd, POLLOUT);
	show("refused, not waiting: send says", send(fd, "x", 1, 0));
	show("refused, not waiting: then", send(fd, "x", 1, 0));
	close(fd);
}

static void progress(void)
{
	struct sockaddr_in addr = peer_addr(0), name;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on;
	struct timeval wait = {.tv_usec = 50000};
	socklen_t len = sizeof(name);

	/* Nobody has this address: there is no answer to ARP. */
	addr.sin_addr.s_addr = htonl(ntohl(addr.sin_addr.s_addr) + 76);
	addr.sin_port = htons(7);
	show("silence: connect", connect(fd, ADDR(addr), sizeof(addr)));
	show("silence: again", connect(fd, ADDR(addr), sizeof(addr)));
	show("silence: recv", recv(fd, &on, 1, 0));
	show("silence: send", send(fd, "x", 1, 0));
	show("silence: getpeername", getpeername(fd, ADDR(name), &len));
	show("silence: getsockname", getsockname(fd, ADDR(name), &len));
	show("silence: its port", name.sin_port != 0);
	close(fd);
	fd = tcp();
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	show("silence: SO_SNDTIMEO", connect(fd, ADDR(addr), sizeof(addr)));
	close(fd);
}

static void addresses(void)
{
	struct sockaddr_in addr = peer_addr(closed_port);
	struct sockaddr_in name = own_addr(0), other;
	struct sockaddr_in6 addr6 = peer_addr6(closed_port);
	socklen_t len = sizeof(name);
	int fd = tcp(), one = 1;

	show("connect: short address", connect(fd, ADDR(addr), 8));
	show("connect: no address", connect(fd, NULL, sizeof(addr)));
	show("connect: another family",
	     connect(fd, ADDR(addr6), sizeof(addr6)));
	addr.sin_family = AF_UNIX;
	show("connect: AF_UNIX", connect(fd, ADDR(addr), sizeof(addr)));
	addr.sin_family = AF_UNSPEC;
	show("connect: AF_UNSPEC, new", connect(fd, ADDR(addr), sizeof(addr)));
	close(fd);

	fd = talk("end");
	show("connect: connected", dial_port(fd, closed_port));
	show("bind: connected", bind(fd, ADDR(name), sizeof(name)));
	show("listen: connected", listen(fd, 1));
	show("getsockname: connected", getsockname(fd, ADDR(name), &len));
	other = own_addr(0);
	show("getsockname: the address",
	     name.sin_addr.s_addr == other.sin_addr.s_addr);
	show("getpeername: connected", getpeername(fd, ADDR(name), &len));
	len = 4;
	show("getpeername: room for 4", getpeername(fd, ADDR(name), &len));
	show("getpeername: length", len);
	len = (socklen_t)-1;
	show("getpeername: negative room", getpeername(fd, ADDR(name), &len));
	show("connect: AF_UNSPEC, connected",
	     connect(fd, ADDR(addr), sizeof(addr)));
	show("disconnected: recv", recv(fd, &one, 1, 0));
	show("disconnected: connect", dial_port(fd, closed_port));
	close(fd);

	fd = tcp();
	name = own_addr(0);
	name.sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1 */
	show("bind: not ours", bind(fd, ADDR(name), sizeof(name)));
	name = own_addr(0);
	show("bind: short address", bind(fd, ADDR(name), 8));
	show("bind: another family", bind(fd, ADDR(addr6), sizeof(addr6)));
	show("bind", bind(fd, ADDR(name), sizeof(name)));
	show("bind: again", bind(fd, ADDR(name), sizeof(name)));
	len = sizeof(name);
	show("bind: getsockname", getsockname(fd, ADDR(name), &len));
	show("bind: a port", name.sin_port != 0);
	show("bind: then connect", dial_port(fd, closed_port));
	other = name;
	len = sizeof(other);
	show("bind: getsockname after", getsockname(fd, ADDR(other), &len));
	show("bind: the same port", other.sin_port == name.sin_port);
	close(fd);
}

static void version_6(void)
{
	struct sockaddr_in6 addr = peer_addr6(closed_port), mapped = {0};
	struct sockaddr_in v4 = peer_addr(closed_port);
	socklen_t len = sizeof(mapped);
	int fd = talk6("say:six end");
	char text[8] = "";

	show("IPv6: recv", recv(fd, text, sizeof(text), 0));
	show_text("IPv6: text", "%s", text);
	show("IPv6: getpeername", getpeername(fd, ADDR(mapped), &len));
	show_text("IPv6: length", "%u", len);
	close(fd);
	fd = tcp6();
	show("IPv6: refused", connect(fd, ADDR(addr), sizeof(addr)));
	show("IPv6: short address", connect(fd, ADDR(addr), sizeof(v4)));
	show("IPv6: AF_INET", connect(fd, ADDR(v4), sizeof(v4)));
	close(fd);
	mapped = (struct sockaddr_in6){.sin6_family = AF_INET6,
				       .sin6_port = v4.sin_port};
	memset(mapped.sin6_addr.s6_addr + 10, 0xff, 2);
	memcpy(mapped.sin6_addr.s6_addr + 12, &v4.sin_addr, 4);
	fd = tcp6();
	show("::ffff: refused", connect(fd, ADDR(mapped), sizeof(mapped)));
	close(fd);
	fd = tcp6();
	set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	show("::ffff: V6ONLY", connect(fd, ADDR(mapped), sizeof(mapped)));
	close(fd);
}

void calls_that_connect(void)
{
	refusals();
	progress();
	addresses();
	version_6();
}

/* ---- listen ---- */

static void accepting(void)
{
	struct sockaddr_storage name;
	socklen_t len = sizeof(name);
	unsigned port;
	int listens = listener(&port), asked, fd;
	char byte, text[INET_ADDRSTRLEN];

	show("listener: SO_ACCEPTCONN",
	     get_int(listens, SOL_SOCKET, SO_ACCEPTCONN));
	show("listener: recv", recv(listens, &byte, 1, 0));
	show("listener: send", send(listens, &byte, 1, 0));
	show("listener: connect", dial_port(listens, closed_port));
	show("listener: getpeername", getpeername(listens, ADDR(name), &len));
	show("listener: listen again", listen(listens, 16));
	fcntl(listens, F_SETFL, O_NONBLOCK);
	show("accept: nobody", accept(listens, NULL, NULL));
	show("accept4: unknown flag", accept4(listens, NULL, NULL, 1));
	set_int(listens, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_int(listens, IPPROTO_TCP, TCP_KEEPIDLE, 77);
	asked = ask_to_dial(port, "say:hello end");
	show_poll("listener: poll", 1, wait_for(listens, POLLIN | POLLOUT));
	len = sizeof(name);
	fd = accept(listens, ADDR(name), &len);
	show("accept", fd < 0 ? fd : 0);
	show_text("accept: peer", "%d %u", name.ss_family, len);
	show("accept: O_NONBLOCK", fcntl(fd, F_GETFL) & O_NONBLOCK);
	show("accept: keepalive", get_int(fd, SOL_SOCKET, SO_KEEPALIVE));
	show("accept: TCP_KEEPIDLE", get_int(fd, IPPROTO_TCP, TCP_KEEPIDLE));
	show("accept: on it", accept(fd, NULL, NULL));
	close(fd);
	close(asked);

	asked = ask_to_dial(port, "end");
	wait_for(listens, POLLIN);
	len = 4;
	fd = accept4(listens, ADDR(name), &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
	show("accept4: length", len);
	show("accept4: O_NONBLOCK", fcntl(fd, F_GETFL) & O_NONBLOCK ? 1 : 0);
	show("accept4: FD_CLOEXEC", fcntl(fd, F_GETFD));
	close(fd);
	close(asked);

	asked = ask_to_dial(port, "say:gone reset");
	show("accept: the peer has gone", recv(asked, &byte, 1, 0));
	wait_for(listens, POLLIN);
	memset(&name, 0, sizeof(name));
	len = sizeof(name);
	fd = accept(listens, ADDR(name), &len);
	show("accept: reset before", fd < 0 ? fd : 0);
	inet_ntop(AF_INET, &((struct sockaddr_in *)&name)->sin_addr, text,
		  sizeof(text));
	show_text("accept: reset before: peer", "%d %u %s", name.ss_family, len,
		  text);
	show_poll("accept: reset before: poll", 1, wait_for(fd, POLLIN));
	close(fd);
	close(asked);
	close(listens);
}

static void check_ports(void)
{
	unsigned port;
	int first = listener(&port), second = tcp(), asked, off = 0;
	struct sockaddr_in name = own_addr(port);
	struct sockaddr_in6 name6 = {.sin6_family = AF_INET6};
	socklen_t len = sizeof(name);
	char byte;

	show("port in use: bind", bind(second, ADDR(name), sizeof(name)));
	close(second);
	second = tcp();
	set_int(second, SOL_SOCKET, SO_REUSEADDR, 1);
	show("port in use: SO_REUSEADDR",
	     bind(second, ADDR(name), sizeof(name)));
	close(second);
	second = tcp();
	set_int(second, SOL_SOCKET, SO_REUSEPORT, 1);
	show("port in use: SO_REUSEPORT of one",
	     bind(second, ADDR(name), sizeof(name)));
	close(second);
	asked = ask_to_dial(port, "end");
	wait_for(first, POLLIN);
	show("close with one waiting", close(first));
	show("close with one waiting: reset", recv(asked, &byte, 1, 0));
	close(asked);

	first = tcp();
	second = tcp();
	name = own_addr(0);
	set_int(first, SOL_SOCKET, SO_REUSEPORT, 1);
	set_int(second, SOL_SOCKET, SO_REUSEPORT, 1);
	bind(first, ADDR(name), sizeof(name));
	getsockname(first, ADDR(name), &len);
	show("SO_REUSEPORT: bind", bind(second, ADDR(name), sizeof(name)));
	show("SO_REUSEPORT: listen", listen(first, 4));
	show("SO_REUSEPORT: listen, second", listen(second, 4));
	close(first);
	asked = ask_to_dial(ntohs(name.sin_port), "end");
	show_poll("SO_REUSEPORT: second listener", 1, wait_for(second, POLLIN));
	close(asked);
	close(second);

	first = tcp6();
	show("::: V6ONLY", get_int(first, IPPROTO_IPV6, IPV6_V6ONLY));
	show("::: bind", bind(first, ADDR(name6), sizeof(name6)));
	show("::: V6ONLY after bind",
	     setsockopt(first, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)));
	listen(first, 4);
	len = sizeof(name6);
	getsockname(first, ADDR(name6), &len);
	asked = ask_to_dial(ntohs(name6.sin6_port), "end");
	len = sizeof(name6);
	second = accept(first, ADDR(name6), &len);
	show("::: accept of IPv4", second < 0 ? second : 0);
	show("::: mapped", IN6_IS_ADDR_V4MAPPED(&name6.sin6_addr));
	show("::: length", len);
	len = sizeof(name6);
	show("::: getsockname", getsockname(second, ADDR(name6), &len));
	show("::: mapped, too", IN6_IS_ADDR_V4MAPPED(&name6.sin6_addr));
	show("::: SO_DOMAIN", get_int(second, SOL_SOCKET, SO_DOMAIN));
	close(second);
	close(asked);
	close(first);
}

static void shut_listener(void)
{
	unsigned port;
	int fd = listener(&port);

	show("listener: shutdown of writing", shutdown(fd, SHUT_WR));
	show("listener: shutdown", shutdown(fd, SHUT_RD));
	show("listener: shutdown: accept", accept(fd, NULL, NULL));
	show_poll("listener: shutdown: poll", 1, wait_for(fd, POLLIN));
	show("listener: shutdown: listen", listen(fd, 4));
	close(fd);
}

void calls_that_listen(void)
{
	accepting();
	check_ports();
	shut_listener();
}
