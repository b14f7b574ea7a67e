/*
 * The TAP of the exception path: opens and configures it, reads and writes
 * frames.
 */
#include "dpdk_glue/kernel_tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dpdk_glue/glue_priv.h"

static struct ifreq request_for(const char *name)
{
	struct ifreq ifr = {0};

	memcpy(ifr.ifr_name, name, strnlen(name, IFNAMSIZ - 1));
	return ifr;
}

static const char *advice_for_errno(int code)
{
	switch (code) {
	case EPERM:
	case EACCES:
		return "run as root or with CAP_NET_ADMIN";
	case ENOENT:
		return "load the kernel's tun module (modprobe tun)";
	case EBUSY:
		return "another program has the interface, or it is not a TAP; "
		       "name another";
	default:
		return "name an interface such as tap:kern0";
	}
}

static int attach_tap(const char *name, char *err, size_t err_len)
{
	struct ifreq ifr = request_for(name);
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	int code;

	ifr.ifr_flags = IFF_TAP | IFF_NO_PI;
	if (fd >= 0 && ioctl(fd, TUNSETIFF, &ifr) == 0)
		return fd;
	code = errno;
	if (code == EINVAL && if_nametoindex(name))
		code = EBUSY; /* it exists, but is no TAP */
	if (fd >= 0)
		close(fd);
	return glue_fail(err, err_len, -code, "--exception tap:%s: %s; %s",
			 name, strerror(code), advice_for_errno(code));
}

/* ---- addresses, by rtnetlink: ioctl() gives an interface but one ---- */

struct addr_request {
	struct nlmsghdr header;
	struct ifaddrmsg addr;
	uint8_t attributes[2 * RTA_SPACE(16)];
};

static void put_attribute(struct addr_request *request, unsigned short type,
			  const void *data, unsigned short len)
{
	struct rtattr *attribute =
		(void *)((uint8_t *)request +
			 NLMSG_ALIGN(request->header.nlmsg_len));

	attribute->rta_type = type;
	attribute->rta_len = (unsigned short)RTA_LENGTH(len);
	memcpy(RTA_DATA(attribute), data, len);
	request->header.nlmsg_len =
		NLMSG_ALIGN(request->header.nlmsg_len) + RTA_SPACE(len);
}

/* Asks for no duplicate address detection: the address is ours, and our own
 * stack would be the duplicate. */
static struct addr_request addr_request(const struct glue_kernel_addr *addr,
					unsigned index)
{
	struct addr_request request = {
		.header = {.nlmsg_len = NLMSG_LENGTH(sizeof(request.addr)),
			   .nlmsg_type = RTM_NEWADDR,
			   .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK |
					  NLM_F_CREATE | NLM_F_EXCL},
		.addr = {.ifa_family = addr->family == 4 ? AF_INET : AF_INET6,
			 .ifa_prefixlen = addr->prefix_len,
			 .ifa_flags = IFA_F_PERMANENT | IFA_F_NODAD,
			 .ifa_index = index},
	};
	unsigned short len = addr->family == 4 ? 4 : 16;

	put_attribute(&request, IFA_LOCAL, addr->ip, len);
	put_attribute(&request, IFA_ADDRESS, addr->ip, len);
	return request;
}

/* Returns 0 or a negative errno, as the kernel answers. */
static int ask_kernel(int fd, struct addr_request *request)
{
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
		uint8_t more[256];
	} answer = {0};

	if (send(fd, request, request->header.nlmsg_len, 0) < 0 ||
	    recv(fd, &answer, sizeof(answer), 0) < 0)
		return -errno;
	return answer.header.nlmsg_type == NLMSG_ERROR ? answer.error.error
						       : -EPROTO;
}

static int add_addrs(const struct glue_kernel_tap_conf *conf)
{
	unsigned index = if_nametoindex(conf->name);
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	int rc = 0;

	if (fd < 0)
		return -errno;
	for (unsigned i = 0; i < conf->n_addrs && rc == 0; i++) {
		struct addr_request request =
			addr_request(&conf->addrs[i], index);

		rc = ask_kernel(fd, &request);
		if (rc == -EEXIST) /* a persistent interface has it */
			rc = 0;
	}
	close(fd);
	return rc;
}

/* ---- opening ---- */

/* Sets the MAC first: the link-local address of IPv6 is derived from it. */
static int set_up(const struct glue_kernel_tap_conf *conf)
{
	struct ifreq ifr = request_for(conf->name);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int rc = -EIO;

	if (fd < 0)
		return -errno;
	ifr.ifr_hwaddr.sa_family = ARPHRD_ETHER;
	memcpy(ifr.ifr_hwaddr.sa_data, conf->mac, 6);
	if (ioctl(fd, SIOCSIFHWADDR, &ifr) < 0)
		goto fail;
	ifr = request_for(conf->name);
	ifr.ifr_mtu = (int)conf->mtu;
	if (ioctl(fd, SIOCSIFMTU, &ifr) < 0)
		goto fail;
	ifr = request_for(conf->name);
	if (ioctl(fd, SIOCGIFFLAGS, &ifr) < 0)
		goto fail;
	ifr.ifr_flags |= IFF_UP;
	if (ioctl(fd, SIOCSIFFLAGS, &ifr) < 0)
		goto fail;
	close(fd);
	return 0;

fail:
	rc = -errno;
	close(fd);
	return rc;
}

int glue_kernel_tap_open(const struct glue_kernel_tap_conf *conf, int *fd,
			 char *err, size_t err_len)
{
	int tap = attach_tap(conf->name, err, err_len);
	int rc;

	if (tap < 0)
		return tap;
	rc = set_up(conf);
	if (rc < 0) {
		close(tap);
		return glue_fail(err, err_len, rc,
				 "--exception tap:%s: its MAC, MTU of %u and "
				 "flags: %s; %s",
				 conf->name, conf->mtu, strerror(-rc),
				 advice_for_errno(-rc));
	}
	rc = add_addrs(conf);
	if (rc < 0) {
		close(tap);
		return glue_fail(
			err, err_len, rc,
			"--exception tap:%s: it cannot get the stack's "
			"addresses: %s; with addr=off you assign them yourself",
			conf->name, strerror(-rc));
	}
	*fd = tap;
	return 0;
}

bool glue_kernel_tap_write(int fd, const struct iovec *pieces, unsigned n)
{
	return writev(fd, pieces, (int)n) > 0;
}

unsigned glue_kernel_tap_read(int fd, void *buf, unsigned room)
{
	ssize_t n = read(fd, buf, room);

	return n > 0 ? (unsigned)n : 0;
}

void glue_kernel_tap_close(int fd)
{
	close(fd);
}
