/*
 * 802.1Q tags: added and removed here, so that above dpdk_glue/ no frame has
 * one. Private to dpdk_glue/.
 *
 * A port may also remove a tag itself (RTE_MBUF_F_RX_VLAN_STRIPPED); then the
 * tag is in the mbuf, and its ethertype is lost.
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
 * Removes the tag of a received frame. Returns GLUE_KEEP if there was one with
 * VID `vid`; GLUE_BAD_FRAME if the first segment ends within it;
 * GLUE_OTHER_VLAN for any other frame, including untagged ones and 802.1ad. A
 * second tag stays, and glue_check() finds it.
 */
enum glue_verdict glue_vlan_take(struct rte_mbuf *m, uint16_t vid);

/*
 * Adds a tag with priority 0 to a frame to be sent, and adjusts its offsets.
 * The first segment must have the Ethernet header in memory of its own, with
 * room before it; otherwise returns false and changes nothing.
 */
bool glue_vlan_add(struct rte_mbuf *m, struct glue_frame *f, uint16_t vid);

/*
 * By how much a port's MTU must exceed the link's so that the longest tagged
 * frame fits: 0 if the port has room for the tag beyond its MTU.
 */
unsigned glue_vlan_mtu(const struct glue_link *link,
		       const struct rte_eth_dev_info *info);

/* Receive offloads that a link with a VLAN requests from its port. */
uint64_t glue_vlan_offloads(const struct glue_link *link,
			    const struct rte_eth_dev_info *info);

/*
 * Makes a port, which was configured with these offloads and started, accept
 * the link's VLAN. Returns 0 or -errno.
 */
int glue_vlan_join(uint16_t port_id, const struct glue_link *link,
		   uint64_t offloads);
