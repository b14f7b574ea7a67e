/*
 * bond: links. DPDK's net_bonding does the work; this makes one of links that
 * we know how to make, and sees what it does not: it believes what a driver
 * says of its carrier, which net_af_packet does not look at, and net_tap tells
 * no bond.
 *
 * After a change of the member that sends, switches must learn where our
 * address is now: a frame to all, RARP (RFC 903), which hosts ignore, says so.
 * The IEEE 802.1AX state machines of DPDK leave their frames in a ring that
 * only a burst empties, so an idle link sends an empty one.
 */
#define ALLOW_EXPERIMENTAL_API /* rte_eth_bond_member_add() of DPDK 23.11 */
#include "dpdk_glue/bond.h"

#include <errno.h>
#include <linux/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_errno.h>
#include <rte_eth_bond.h>
#include <rte_version.h>

#if RTE_VERSION < RTE_VERSION_NUM(23, 11, 0, 0)
#define rte_eth_bond_member_add rte_eth_bond_slave_add
#endif

#define ANNOUNCE_LOOKS 31 /* for which an address is announced again: 1.6 s */
#define RARP_BYTES     42

enum due { DUE_ANNOUNCE = 1, DUE_BURST = 2 };

/* Written while EAL starts, and then by DPDK's interrupt thread. */
struct bond {
	unsigned n;
	bool lacp;
	struct glue_link links[GLUE_BOND_MEMBERS];
	uint16_t ids[GLUE_BOND_MEMBERS];
	bool up[GLUE_BOND_MEMBERS];
	unsigned looks;	  /* since an event that is announced */
	unsigned sender;  /* atomic: which member sends */
	unsigned changes; /* atomic: of the sender */
};

static struct bond bonds[GLUE_MAX_LINKS];

/* ---- making one ---- */

static int add_members(struct bond *bond, uint16_t id,
		       char members[][GLUE_PORT_NAME_MAX + 1], unsigned *at)
{
	int rc = 0;

	for (*at = 0; *at < bond->n; ++*at) {
		uint16_t *member = &bond->ids[*at];

		rc = rte_eth_dev_get_port_by_name(members[*at], member);
		if (rc == 0)
			rc = rte_eth_bond_member_add(id, *member);
		if (rc != 0)
			break;
	}
	return rc;
}

int glue_bond_make(unsigned index, const char *name,
		   char members[][GLUE_PORT_NAME_MAX + 1], char *err,
		   size_t err_len)
{
	const struct glue_link *link = glue_eal_link(index);
	struct bond *bond = &bonds[index];
	struct glue_captured log;
	char reason[256];
	unsigned at = 0;
	int id, rc;

	*bond = (struct bond){.lacp = link->lacp};
	bond->n = glue_link_parts(link, bond->links);
	glue_capture_start(&log);
	id = rte_eth_bond_create(name,
				 link->lacp ? BONDING_MODE_8023AD
					    : BONDING_MODE_ACTIVE_BACKUP,
				 0);
	rc = id < 0 ? id : add_members(bond, (uint16_t)id, members, &at);
	if (id >= 0) /* 802.3ad: each connection by one member */
		rte_eth_bond_xmit_policy_set((uint16_t)id,
					     BALANCE_XMIT_POLICY_LAYER34);
	glue_capture_end(&log);
	glue_capture_line(&log, reason, sizeof(reason));
	if (id < 0)
		return glue_fail(err, err_len, -ENODEV,
				 "link bond:%s: DPDK's net_bonding: %s",
				 link->name, reason);
	if (rc != 0)
		return glue_fail(err, err_len, -ENODEV,
				 "link bond:%s: DPDK does not take %s:%s as a "
				 "member: %s",
				 link->name,
				 glue_link_kind_name(bond->links[at].kind),
				 bond->links[at].name, reason);
	return 0;
}

unsigned glue_bond_queues(unsigned index, unsigned wanted)
{
	const struct bond *bond = &bonds[index];
	struct rte_eth_dev_info info;

	for (unsigned i = 0; i < bond->n; i++)
		if (rte_eth_dev_info_get(bond->ids[i], &info) == 0)
			wanted = glue_usable_queues(&info, wanted);
	return wanted;
}

bool glue_bond_has_tap(unsigned index)
{
	const struct bond *bond = &bonds[index];

	for (unsigned i = 0; i < bond->n; i++)
		if (bond->links[i].kind == GLUE_LINK_TAP)
			return true;
	return false;
}

/*
 * Cards filter by the bond's address, which DPDK gives to the member that
 * sends. Other interfaces have one of their own, or of the kernel's.
 */
void glue_bond_start(struct glue_device *device)
{
	struct bond *bond = &bonds[device->index];

	if (!device->link->on_ports) {
		/* LACP's multicast address is received, too */
		rte_log_set_level_pattern("pmd.net.bond*", RTE_LOG_ERR);
		rte_eth_promiscuous_enable(device->id);
	}
	for (unsigned i = 0; i < bond->n; i++) {
		if (!device->link->on_ports)
			rte_eth_promiscuous_enable(bond->ids[i]);
		bond->up[i] = true;
	}
}

/* ---- its life ---- */

/* What the kernel says of an interface, whoever has it. */
static bool iface_is_up(const char *name)
{
	struct ifreq ifr = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool up;

	if (fd < 0)
		return true;
	memcpy(ifr.ifr_name, name, strnlen(name, IFNAMSIZ - 1));
	up = ioctl(fd, SIOCGIFFLAGS, &ifr) == 0 &&
	     (ifr.ifr_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING);
	close(fd);
	return up;
}

static bool is_up(const struct bond *bond, unsigned i)
{
	struct rte_eth_link link = {0};

	switch (bond->links[i].kind) {
	case GLUE_LINK_TAP:
	case GLUE_LINK_AF_PACKET:
		return iface_is_up(bond->links[i].name);
	default:
		return rte_eth_link_get_nowait(bond->ids[i], &link) == 0 &&
		       link.link_status == RTE_ETH_LINK_UP;
	}
}

static void log_member(const struct glue_device *device,
		       const struct bond *bond, unsigned i, const char *what)
{
	glue_log_line("link bond:%s: member %s:%s %s", device->link->name,
		      glue_link_kind_name(bond->links[i].kind),
		      bond->links[i].name, what);
}

static unsigned primary_of(const struct glue_device *device,
			   const struct bond *bond)
{
	int id = rte_eth_bond_primary_get(device->id);

	for (unsigned i = 0; i < bond->n; i++)
		if (bond->ids[i] == id)
			return i;
	return bond->sender;
}

/* DPDK moves the bond's address to the new one only when it is told again. */
static void send_by(const struct glue_device *device, const struct bond *bond,
		    unsigned member)
{
	struct rte_ether_addr addr;

	rte_eth_bond_primary_set(device->id, bond->ids[member]);
	if (rte_eth_macaddr_get(device->id, &addr) == 0)
		rte_eth_bond_mac_address_set(device->id, &addr);
}

/* DPDK may have changed it itself, as a driver has told it of a carrier. */
static void choose_sender(struct glue_device *device, struct bond *bond)
{
	unsigned now = primary_of(device, bond);

	for (unsigned i = 0; !bond->up[now] && i < bond->n; i++)
		if (bond->up[i]) {
			send_by(device, bond, i);
			now = primary_of(device, bond);
			break;
		}
	if (now == bond->sender)
		return;
	__atomic_store_n(&bond->sender, now, __ATOMIC_RELAXED);
	__atomic_fetch_add(&bond->changes, 1, __ATOMIC_RELAXED);
	bond->looks = 0;
	log_member(device, bond, now, "sends now");
}

/*
 * At once, and then after 1, 3, 7, 15 and 31 looks: the first may be lost, as
 * an interface takes its time to send again.
 */
static void ask(struct glue_device *device, struct bond *bond)
{
	unsigned due = bond->lacp ? DUE_BURST : DUE_ANNOUNCE;

	if (!bond->lacp && (bond->looks > ANNOUNCE_LOOKS ||
			    (bond->looks & (bond->looks + 1)) != 0))
		due = 0;
	if (bond->looks <= ANNOUNCE_LOOKS)
		bond->looks++;
	if (due)
		__atomic_fetch_or(&device->bond_due, due, __ATOMIC_RELAXED);
}

bool glue_bond_look(struct glue_device *device)
{
	struct bond *bond = &bonds[device->index];
	bool any = false, up;

	for (unsigned i = 0; i < bond->n; i++) {
		up = is_up(bond, i);
		if (up != bond->up[i]) {
			log_member(device, bond, i, up ? "up" : "down");
			bond->looks = 0;
		}
		bond->up[i] = up;
		any |= up;
	}
	if (!bond->lacp)
		choose_sender(device, bond);
	ask(device, bond);
	return any;
}

unsigned glue_bond_sender(const struct glue_device *device, char *name,
			  size_t room)
{
	const struct bond *bond = &bonds[device->index];
	unsigned sender = __atomic_load_n(&bond->sender, __ATOMIC_RELAXED);

	name[0] = '\0';
	if (device->link->kind != GLUE_LINK_BOND || bond->lacp)
		return 0;
	snprintf(name, room, "%s:%s",
		 glue_link_kind_name(bond->links[sender].kind),
		 bond->links[sender].name);
	return __atomic_load_n(&bond->changes, __ATOMIC_RELAXED);
}

/* ---- frames of its own ---- */

static void write_rarp(uint8_t *to, const uint8_t *mac)
{
	static const uint8_t reverse_request[] = {0x80, 0x35, 0, 1, 8,
						  0,	6,    4, 0, 3};

	memset(to, 0, RARP_BYTES);
	memset(to, 0xff, RTE_ETHER_ADDR_LEN);
	memcpy(to + 6, mac, RTE_ETHER_ADDR_LEN);
	memcpy(to + 12, reverse_request, sizeof(reverse_request));
	memcpy(to + 22, mac, RTE_ETHER_ADDR_LEN);
	memcpy(to + 32, mac, RTE_ETHER_ADDR_LEN);
}

void glue_bond_send_due(struct glue_port *port)
{
	unsigned due = __atomic_exchange_n(&port->device->bond_due, 0,
					   __ATOMIC_RELAXED);
	struct glue_frame *frame;

	if (due & DUE_BURST)
		glue_tx_burst(port, NULL, 0);
	if (!(due & DUE_ANNOUNCE))
		return;
	frame = glue_tx_alloc(port, RARP_BYTES);
	if (!frame)
		return; /* one of several */
	write_rarp(frame->data, port->device->mac);
	glue_tx(port, frame);
	glue_tx_flush(port); /* a round without work sends nothing */
}
