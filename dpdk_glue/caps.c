/*
 * The capabilities that links need once they are open. Only DPDK's interrupt
 * thread keeps them when the process gives up root, and does what needs them.
 */
#include "dpdk_glue/bond.h"
#include "dpdk_glue/pci.h"
#include "dpdk_glue/thread.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BIT(cap) (UINT64_C(1) << (cap))

static bool kept; /* set while no shard runs */

/*
 * A bond sets the MAC addresses of its members' interfaces when another member
 * takes over. AF_XDP takes its program off the interface at the end. The driver
 * behind a port is unknown. TAPs and AF_PACKET need nothing once they are open.
 */
static uint64_t caps_of(const struct glue_link *link)
{
	switch (link->kind) {
	case GLUE_LINK_BOND:
		return link->on_ports ? 0 : BIT(CAP_NET_ADMIN);
	case GLUE_LINK_AF_XDP:
		return BIT(CAP_NET_ADMIN);
	case GLUE_LINK_PORT:
		return BIT(CAP_NET_ADMIN) | BIT(CAP_NET_RAW);
	case GLUE_LINK_TAP:
	case GLUE_LINK_AF_PACKET:
	case GLUE_LINK_MEMIF:
	case GLUE_LINK_VHOST:
	case GLUE_LINK_PCI:
	case GLUE_LINK_RING:
	case GLUE_LINK_PCAP:
		break;
	}
	return 0;
}

static bool is_without_iommu(const struct glue_link *link)
{
	struct glue_pci_device device;
	enum glue_pci_use use;

	if (link->kind != GLUE_LINK_PCI)
		return false;
	glue_pci_read("", link->name, &device);
	use = glue_pci_driver_use(device.driver);
	return use == GLUE_PCI_UIO ||
	       (use == GLUE_PCI_VFIO && !glue_pci_has_iommu(""));
}

bool glue_link_needs_root(const struct glue_link *link)
{
	struct glue_link parts[GLUE_BOND_MEMBERS];
	bool needs = false;

	for (unsigned i = glue_link_parts(link, parts); i-- > 0;)
		needs |= is_without_iommu(&parts[i]);
	return needs;
}

uint64_t glue_links_caps(void)
{

	const struct glue_link *link;
	uint64_t caps = 0;

	for (unsigned i = 0; (link = glue_eal_link(i)); i++)
		caps |= caps_of(link);
	return caps;
}

/* At no moment is the thread without capabilities: it may be at work. */
static void hold_caps(void *err)
{
	*(int *)err =
		prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0
			? -errno
			: 0;
}

int glue_caps_hold(void)
{
	int err = 0;

	glue_on_interrupt_thread(hold_caps, &err);
	return err;
}

struct keeping {
	uint64_t caps;
	int err;
};

static void keep_caps(void *arg)
{
	struct __user_cap_header_struct header = {
		.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};
	struct keeping *keeping = arg;

	/* Perhaps the process did not have all of them. */
	if (syscall(SYS_capget, &header, data) < 0)
		keeping->err = -errno;
	for (unsigned i = 0; i < 2; i++) {
		data[i].permitted &= (uint32_t)(keeping->caps >> 32 * i);
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	if (keeping->err == 0 && syscall(SYS_capset, &header, data) < 0)
		keeping->err = -errno;
}

int glue_caps_keep(uint64_t caps)
{
	struct keeping keeping = {.caps = caps};

	glue_on_interrupt_thread(keep_caps, &keeping);
	kept = keeping.err == 0;
	return keeping.err;
}

void glue_run_with_caps(void (*fn)(void *arg), void *arg)
{
	if (kept)
		glue_on_interrupt_thread(fn, arg);
	else
		fn(arg);
}
