/*
 * 802.1Q tags, put on and taken off at the border: above, no frame has one.
 * Private to dpdk_glue/.
 *
 * A port may also take a tag off itself (RTE_MBUF_F_RX_VLAN_STRIPPED); then it
 * is in the mbuf, and its ethertype is lost.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dpdk_glue/check.h"

#define GLUE_TAG_BYTES 4u
#define GLUE_VID_MASK  0xfffu

struct rte_eth_dev_info;
struct rte_mbuf;

/*
 * Takes the tag off a received frame: GLUE_KEEP if its VID is `vid` and it was
 * there. GLUE_BAD_FRAME: the first segment ends within it. GLUE_OTHER_VLAN: any
 * other frame, untagged ones and 802.1ad among them. A second tag behind it
 * stays for glue_check() to find.
 */
enum glue_verdict glue_vlan_take(struct rte_mbuf *m, uint16_t vid);

/*
 * Puts a tag with priority 0 on a frame to be sent and moves its offsets. Its
 * first segment has the Ethernet header, in memory of its own; false and
 * nothing done if not, or if there is no room before it.
 */
bool glue_vlan_add(struct rte_mbuf *m, struct glue_frame *f, uint16_t vid);

/*
 * By how much a port's MTU must exceed the link's, so that it takes the longest
 * frame with its tag: nothing where it has the room beside its MTU.
 */
unsigned glue_vlan_mtu(const struct glue_link *link,
		       const struct rte_eth_dev_info *info);

/* Receive offloads that a link with a VLAN asks of its port. */
uint64_t glue_vlan_offloads(const struct glue_link *link,
			    const struct rte_eth_dev_info *info);

/*
 * Has a port that was configured with these offloads, and started, let the
 * link's VLAN in. Returns 0 or -errno.
 */
int glue_vlan_join(uint16_t port_id, const struct glue_link *link,
		   uint64_t offloads);
