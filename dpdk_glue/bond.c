/*
 * bond: links. DPDK's net_bonding does the work. This file creates the bond and
 * its members, and handles two events that net_bonding does not see: a carrier
 * lost on an interface of net_af_packet, and a card that is removed.
 *
 * After a change of the member that sends, switches must learn where the bond's
 * MAC is now, from a broadcast frame: an RARP packet (RFC 903), which hosts
 * ignore. The IEEE 802.1AX state machines of DPDK leave their frames in a ring
 * that only a burst empties, so an idle link sends empty bursts.
 */
#define ALLOW_EXPERIMENTAL_API	/* rte_eth_bond_member_add(), rte_dev_event_*() \
				 */
#include "dpdk_glue/bond.h"
#include "dpdk_glue/link_watch.h"
#include "dpdk_glue/thread.h"

#include <errno.h>
#include <linux/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_eth_bond.h>
#include <rte_version.h>

#if RTE_VERSION < RTE_VERSION_NUM(23, 11, 0, 0)
#define rte_eth_bond_member_add	   rte_eth_bond_slave_add
#define rte_eth_bond_member_remove rte_eth_bond_slave_remove
#define rte_eth_bond_members_get   rte_eth_bond_slaves_get
#endif

#define ANNOUNCE_LOOKS 31 /* an address is announced for 1.6 s */
#define RARP_BYTES     42

enum due { DUE_ANNOUNCE = 1, DUE_BURST = 2 };

struct member {
	struct glue_link link;
	struct glue_device *device; /* of the bond */
	uint16_t id;
	bool up;
	bool gone; /* the card was taken away, and its port */
};

/* Written while EAL starts, and then by DPDK's interrupt thread. */
struct bond {
	unsigned n;
	bool lacp;
	struct member members[GLUE_BOND_MEMBERS];
	unsigned looks;	  /* since an event that is announced */
	unsigned sender;  /* atomic: which member sends */
	unsigned changes; /* atomic: of the sender */
};

static struct bond bonds[GLUE_MAX_LINKS];

/* ---- creating a bond ---- */

/*
 * net_bonding waits for link interrupts of drivers that set this flag. Those of
 * net_e1000 and net_vmxnet3 (QEMU, MSI-X) and of net_tap never came. Without
 * the flag net_bonding polls, and rte_eth_link_get_nowait() asks the driver.
 * DPDK has no call that clears it.
 */
static void poll_carrier(uint16_t id)
{
	struct rte_eth_dev_info info;

	if (rte_eth_dev_info_get(id, &info) == 0)
		*(uint32_t *)(uintptr_t)info.dev_flags &=
			~(uint32_t)RTE_ETH_DEV_INTR_LSC;
}

static int add_members(struct bond *bond, uint16_t id,
		       char names[][GLUE_PORT_NAME_MAX + 1], unsigned *at)
{
	int rc = 0;

	for (*at = 0; *at < bond->n; ++*at) {
		uint16_t *member = &bond->members[*at].id;

		rc = rte_eth_dev_get_port_by_name(names[*at], member);
		if (rc != 0)
			break;
		poll_carrier(*member);
		rc = rte_eth_bond_member_add(id, *member);
		if (rc != 0)
			break;
	}
	return rc;
}

int glue_bond_make(unsigned index, const char *name,
		   char names[][GLUE_PORT_NAME_MAX + 1], char *err,
		   size_t err_len)
{
	const struct glue_link *link = glue_eal_link(index);
	struct glue_link parts[GLUE_BOND_MEMBERS];
	struct bond *bond = &bonds[index];
	struct glue_captured log;
	char reason[256];
	unsigned at = 0;
	int id, rc;

	*bond = (struct bond){.lacp = link->lacp};
	bond->n = glue_link_parts(link, parts);
	for (unsigned i = 0; i < bond->n; i++)
		bond->members[i].link = parts[i];
	glue_capture_start(&log);
	id = rte_eth_bond_create(name,
				 link->lacp ? BONDING_MODE_8023AD
					    : BONDING_MODE_ACTIVE_BACKUP,
				 0);
	rc = id < 0 ? id : add_members(bond, (uint16_t)id, names, &at);
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
				 glue_link_kind_name(parts[at].kind),
				 parts[at].name, reason);
	return 0;
}

unsigned glue_bond_queues(unsigned index, unsigned wanted)
{
	const struct bond *bond = &bonds[index];
	struct rte_eth_dev_info info;

	for (unsigned i = 0; i < bond->n; i++)
		if (rte_eth_dev_info_get(bond->members[i].id, &info) == 0)
			wanted = glue_usable_queues(&info, wanted);
	return wanted;
}

bool glue_bond_has_tap(unsigned index)
{
	const struct bond *bond = &bonds[index];

	for (unsigned i = 0; i < bond->n; i++)
		if (bond->members[i].link.kind == GLUE_LINK_TAP)
			return true;
	return false;
}

/* ---- choosing the sender ---- */

/* Asks the kernel whether an interface is up and has a carrier. */
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

static bool member_is_up(const struct member *member)
{
	struct rte_eth_link link = {0};

	if (member->gone)
		return false;
	if (!glue_link_is_port(&member->link))
		return iface_is_up(member->link.name);
	return rte_eth_link_get_nowait(member->id, &link) == 0 &&
	       link.link_status == RTE_ETH_LINK_UP;
}

static void log_member(const struct glue_device *device,
		       const struct member *member, const char *what)
{
	glue_log_line("link bond:%s: member %s:%s %s", device->link->name,
		      glue_link_kind_name(member->link.kind), member->link.name,
		      what);
}

static unsigned primary_of(const struct glue_device *device,
			   const struct bond *bond)
{
	int id = rte_eth_bond_primary_get(device->id);

	for (unsigned i = 0; i < bond->n; i++)
		if (bond->members[i].id == id && !bond->members[i].gone)
			return i;
	return bond->sender;
}

/* DPDK moves the bond's address to the new sender when it is set again. */
static void set_sender(const struct glue_device *device,
		       const struct member *member)
{
	struct rte_ether_addr addr;

	rte_eth_bond_primary_set(device->id, member->id);
	if (rte_eth_macaddr_get(device->id, &addr) == 0)
		rte_eth_bond_mac_address_set(device->id, &addr);
}

/* DPDK changes the sender itself when a driver reports a lost carrier. */
static void choose_sender(struct glue_device *device, struct bond *bond)
{
	unsigned was = primary_of(device, bond), now = was;

	for (unsigned i = 0; !bond->members[now].up && i < bond->n; i++)
		if (bond->members[i].up)
			now = i;
	if (now != was || now != bond->sender) {
		set_sender(device, &bond->members[now]);
		now = primary_of(device, bond);
	}
	if (now == bond->sender)
		return;
	__atomic_store_n(&bond->sender, now, __ATOMIC_RELAXED);
	__atomic_fetch_add(&bond->changes, 1, __ATOMIC_RELAXED);
	bond->looks = 0;
	log_member(device, &bond->members[now], "sends now");
}

/*
 * Announces the address at once and again after 1, 3, 7, 15 and 31 looks. The
 * first frame may be lost: an interface takes up to a second to send again.
 */
static void request_frames(struct glue_device *device, struct bond *bond)
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
		struct member *member = &bond->members[i];

		up = member_is_up(member);
		if (up != member->up) {
			if (!member->gone)
				log_member(device, member, up ? "up" : "down");
			bond->looks = 0;
		}
		member->up = up;
		any |= up;
	}
	if (!bond->lacp)
		choose_sender(device, bond);
	request_frames(device, bond);
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
		 glue_link_kind_name(bond->members[sender].link.kind),
		 bond->members[sender].link.name);
	return __atomic_load_n(&bond->changes, __ATOMIC_RELAXED);
}

/* ---- a card that is taken away ---- */

/*
 * VFIO delays the removal until the program has closed the card. Bursts stop
 * while DPDK takes the member out.
 */
static void give_up(void *arg)
{
	struct member *member = arg;
	struct glue_device *device = member->device;
	uint16_t n_active = device->n_active;

	if (member->gone)
		return; /* a second request for the same card */
	log_member(device, member, "was removed from the machine");
	if (!glue_sync_works())
		return; /* a burst may be under way: it stays until the end */
	member->gone = true;
	glue_bond_look(device);
	__atomic_store_n(&device->n_active, 0, __ATOMIC_RELEASE);
	glue_sync_wait();
	pthread_mutex_lock(&device->port_lock);
	rte_eth_bond_member_remove(device->id, member->id);
	glue_card_release(member->id);
	pthread_mutex_unlock(&device->port_lock);
	__atomic_store_n(&device->n_active, n_active, __ATOMIC_RELEASE);
}

static void on_event(const char *name, enum rte_dev_event_type type, void *arg)
{
	(void)name;
	if (type == RTE_DEV_EVENT_REMOVE)
		rte_eal_alarm_set(1, give_up, arg);
}

/* ---- beginning and end ---- */

/*
 * Cards filter by the bond's address, which DPDK sets on the member that sends.
 * Other interfaces have an address of their own, or the kernel's, and are put
 * into promiscuous mode.
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
		struct member *member = &bond->members[i];

		if (!device->link->on_ports)
			rte_eth_promiscuous_enable(member->id);
		member->device = device;
		member->up = true;
		if (member->link.kind == GLUE_LINK_PCI)
			rte_dev_event_callback_register(member->link.name,
							on_event, member);
	}
}

void glue_bond_stop(struct glue_device *device)
{
	struct bond *bond = &bonds[device->index];

	for (unsigned i = 0; i < bond->n; i++) {
		struct member *member = &bond->members[i];

		if (member->link.kind == GLUE_LINK_PCI)
			rte_dev_event_callback_unregister(member->link.name,
							  on_event, member);
		rte_eal_alarm_cancel(give_up, member);
	}
}

static void do_nothing(void *arg)
{
	(void)arg;
}

void glue_bond_close_taps(uint16_t id)
{
	uint16_t members[RTE_MAX_ETHPORTS];
	struct rte_eth_dev_info info;
	int n = rte_eth_bond_members_get(id, members, RTE_MAX_ETHPORTS);

	if (n > 0) /* a timer of net_bonding may be reading their links */
		glue_on_interrupt_thread(do_nothing, NULL);
	for (int i = 0; i < n; i++) {
		if (rte_eth_dev_info_get(members[i], &info) != 0 ||
		    strcmp(info.driver_name, "net_tap") != 0)
			continue;
		rte_eth_dev_stop(members[i]);
		rte_eth_dev_close(members[i]);
	}
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
