/*
 * Finds the descriptors from which a driver reads frames, by which the kernel
 * can wake a sleeping thread.
 *
 * DPDK's drivers of virtual links return them by their interrupt calls only if
 * they are set up for interrupts instead of polling. So they are found among
 * the process's own: a TAP's by its interface's name, an AF_PACKET socket's by
 * the interface that it is bound to. An AF_XDP socket does not reveal its
 * interface, so all of them are watched, which at worst wakes a thread too
 * often.
 */
#include "dpdk_glue/port_priv.h"

#include <dirent.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef AF_XDP
#define AF_XDP 44
#endif

static bool is_tap(int fd, const char *name)
{
	struct ifreq ifr = {0};

	return ioctl(fd, TUNGETIFF, &ifr) == 0 &&
	       strcmp(ifr.ifr_name, name) == 0;
}

static bool is_socket(int fd, int family)
{
	int domain = -1;
	socklen_t len = sizeof(domain);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
	       domain == family;
}

static bool is_bound_to(int fd, const char *name)
{
	struct sockaddr_ll sll = {0};
	socklen_t len = sizeof(sll);

	return getsockname(fd, (struct sockaddr *)&sll, &len) == 0 &&
	       sll.sll_ifindex != 0 &&
	       sll.sll_ifindex == (int)if_nametoindex(name);
}

static bool fd_is_of_link(const struct glue_link *link, int fd)
{
	switch (link->kind) {
	case GLUE_LINK_TAP:
		return is_tap(fd, link->name);
	case GLUE_LINK_AF_PACKET:
		return is_socket(fd, AF_PACKET) && is_bound_to(fd, link->name);
	case GLUE_LINK_AF_XDP:
		return is_socket(fd, AF_XDP);
	default:
		return false;
	}
}

static unsigned find_link_fds(const struct glue_link *link, int *fds,
			      unsigned max)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	unsigned n = 0;

	if (!dir)
		return 0;
	while (n < max && (entry = readdir(dir))) {
		int fd = atoi(entry->d_name);

		if (entry->d_name[0] != '.' && fd != dirfd(dir) &&
		    fd_is_of_link(link, fd))
			fds[n++] = fd;
	}
	closedir(dir);
	return n;
}

/* Returns 0 if a member has no descriptor: it would wake nobody. */
unsigned glue_port_wake_fds(const struct glue_port *port, int *fds,
			    unsigned max)
{
	struct glue_link parts[GLUE_BOND_MEMBERS];
	unsigned n_parts = glue_link_parts(port->device->link, parts), n = 0;

	for (unsigned i = 0; i < n_parts; i++) {
		unsigned found = find_link_fds(&parts[i], fds + n, max - n);

		if (found == 0)
			return 0;
		n += found;
	}
	return n;
}

bool glue_tx_pending(const struct glue_port *port)
{
	return port->n_pending > 0;
}
