/*
 * Checks whether a link can work, with clear messages, before DPDK tries it.
 */
#include "dpdk_glue/glue_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpdk_glue/memif_relay.h"

/* A socket file nobody listens on any more is removed; a live one is not. */
static int check_socket_path(const struct glue_link *link, char *err,
			     size_t err_len)
{
	const char *kind = glue_link_kind_name(link->kind);
	char dir[GLUE_PATH_MAX];
	char *slash;
	struct stat st;

	strcpy(dir, link->name);
	slash = strrchr(dir, '/');
	if (slash == dir)
		slash++;
	if (slash)
		*slash = '\0';
	else
		strcpy(dir, ".");
	if (stat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
		return glue_fail(err, err_len, -ENOENT,
				 "link %s:%s: there is no directory '%s'; "
				 "create it or name another path",
				 kind, link->name, dir);
	if (!link->server) {
		if (link->kind == GLUE_LINK_VHOST && stat(link->name, &st) < 0)
			return glue_fail(err, err_len, -ENOENT,
					 "link %s:%s: there is no such socket; "
					 "start the other side first (for "
					 "example dpdk-testpmd with net_vhost) "
					 "or use role=server",
					 kind, link->name);
		return 0;
	}
	if (access(dir, W_OK | X_OK) < 0)
		return glue_fail(err, err_len, -errno,
				 "link %s:%s: no socket can be made in '%s': "
				 "%s; name a path that you may write to",
				 kind, link->name, dir, strerror(errno));
	if (stat(link->name, &st) < 0)
		return 0;
	if (!S_ISSOCK(st.st_mode))
		return glue_fail(err, err_len, -EEXIST,
				 "link %s:%s: the path exists and is not a "
				 "socket; remove it or name another",
				 kind, link->name);
	if (!glue_socket_is_dead(link->name))
		return glue_fail(err, err_len, -EADDRINUSE,
				 "link %s:%s: another process serves this "
				 "socket; stop it or name another path",
				 kind, link->name);
	unlink(link->name);
	return 0;
}

/* A name that the kernel accepts, and no pattern. */
static bool is_interface_name(const char *name)
{
	return !strpbrk(name, "/:% \t\n\v\f\r") && strcmp(name, ".") != 0 &&
	       strcmp(name, "..") != 0;
}

/*
 * Tries a name that does not exist under another one: a program that waits for
 * the interface, and gives it an address when it comes, must not meet one that
 * vanishes again.
 */
static int try_tap(int fd, const char *name)
{
	struct ifreq ifr = {.ifr_flags = IFF_TAP | IFF_NO_PI};
	bool exists = if_nametoindex(name) != 0;

	if (!is_interface_name(name)) {
		errno = EINVAL;
		return -1;
	}
	if (exists)
		memcpy(ifr.ifr_name, name, strnlen(name, IFNAMSIZ - 1));
	else
		strcpy(ifr.ifr_name, "cocheck%d");
	if (ioctl(fd, TUNSETIFF, &ifr) == 0)
		return 0;
	if (errno == EINVAL && exists)
		errno = EBUSY; /* it exists, but is no TAP */
	return -1;
}

static int check_tap(const struct glue_link *link, char *err, size_t err_len)
{
	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
	int code;

	if (fd < 0)
		return glue_fail(err, err_len, -errno,
				 "link tap:%s: /dev/net/tun: %s; %s",
				 link->name, strerror(errno),
				 errno == ENOENT
					 ? "load the kernel's tun module "
					   "(modprobe tun) or use memif:"
					 : "run as root or with CAP_NET_ADMIN");
	if (try_tap(fd, link->name) < 0) {
		code = errno;
		close(fd);
		return glue_fail(
			err, err_len, -code, "link tap:%s: %s; %s", link->name,
			strerror(code),
			code == EPERM
				? "run as root or with CAP_NET_ADMIN (setcap "
				  "cap_net_admin+ep), or use memif:"
			: code == EBUSY
				? "the interface is in use, name another"
				: "name an interface such as tap:coro0");
	}
	close(fd);
	return 0;
}

static bool is_loopback(int fd, const char *name)
{
	struct ifreq ifr = {0};

	memcpy(ifr.ifr_name, name, strnlen(name, IFNAMSIZ - 1));
	return ioctl(fd, SIOCGIFFLAGS, &ifr) == 0 &&
	       ifr.ifr_flags & IFF_LOOPBACK;
}

static int check_iface(const struct glue_link *link, char *err, size_t err_len)
{
	bool loopback;
	int fd;

	if (if_nametoindex(link->name) == 0)
		return glue_fail(err, err_len, -ENODEV,
				 "link %s:%s: there is no interface '%s'; "
				 "'ip link' lists them",
				 glue_link_kind_name(link->kind), link->name,
				 link->name);
	fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return glue_fail(err, err_len, -errno,
				 "link %s:%s: %s; run as root or with "
				 "CAP_NET_RAW and CAP_NET_ADMIN",
				 glue_link_kind_name(link->kind), link->name,
				 strerror(errno));
	loopback = is_loopback(fd, link->name);
	close(fd);
	if (loopback && link->kind == GLUE_LINK_AF_XDP)
		return glue_fail(err, err_len, -EINVAL,
				 "link af_xdp:%s: AF_XDP does not work on the "
				 "loopback interface; name a NIC or one end of "
				 "a veth",
				 link->name);
	return 0;
}

static int check_file(const struct glue_link *link, char *err, size_t err_len)
{
	if (access(link->name, R_OK) < 0)
		return glue_fail(err, err_len, -errno, "link pcap:%s: %s",
				 link->name, strerror(errno));
	return 0;
}

const char *glue_link_queues_hint(const struct glue_link *link)
{
	return link->kind == GLUE_LINK_AF_XDP
		       ? " (XDP takes an MTU of about 3500 at most, at both "
			 "ends of a veth; another program may have the queue)"
		       : "";
}

int glue_link_check(const struct glue_link *link, char *err, size_t err_len)
{
	switch (link->kind) {
	case GLUE_LINK_MEMIF:
	case GLUE_LINK_VHOST:
		return check_socket_path(link, err, err_len);
	case GLUE_LINK_TAP:
		return check_tap(link, err, err_len);
	case GLUE_LINK_AF_PACKET:
	case GLUE_LINK_AF_XDP:
		return check_iface(link, err, err_len);
	case GLUE_LINK_PCAP:
		return check_file(link, err, err_len);
	case GLUE_LINK_PCI:
	case GLUE_LINK_PORT:
	case GLUE_LINK_BOND: /* its members are checked */
	case GLUE_LINK_RING:
		break;
	}
	return 0;
}

static int await_server(const struct glue_link *link, char *err, size_t err_len)
{
	int rc = glue_socket_await(link->name);

	if (rc == -EACCES)
		return glue_fail(err, err_len, rc,
				 "link memif:%s: %s; a client writes to the "
				 "socket: run as the server's user, or in a "
				 "group that may write to it",
				 link->name, strerror(-rc));
	if (rc < 0)
		return glue_fail(
			err, err_len, rc,
			"link memif:%s: no server listens there (%s; "
			"waited %d s at most); start it (role=server), "
			"or name its path",
			link->name, strerror(-rc), GLUE_SERVER_MS / 1000);
	return 0;
}

static bool has_server(const struct glue_link *links, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (links[i].kind == GLUE_LINK_MEMIF && links[i].server)
			return true;
	return false;
}

int glue_links_await(const struct glue_link *links, unsigned n, char *err,
		     size_t err_len)
{
	int rc = 0;

	if (has_server(links, n))
		return 0;
	for (unsigned i = 0; i < n && rc == 0; i++)
		if (links[i].kind == GLUE_LINK_MEMIF)
			rc = await_server(&links[i], err, err_len);
	return rc;
}
