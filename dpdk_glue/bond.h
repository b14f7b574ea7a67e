/*
 * bond: links, several links that work as one: DPDK's net_bonding over members
 * that are links of ours. Private to dpdk_glue/.
 *
 * Threads: a bond is made while EAL starts, and its members are looked at by
 * DPDK's interrupt thread (link_watch.c). Shard 0 sends what they ask for.
 */
#pragma once

#include "dpdk_glue/port_priv.h"

#define GLUE_BOND_LOOK_US 50000 /* between two looks at the members */

/*
 * Makes DPDK's device of links[index], a bond, of members that DPDK has ports
 * for, which have these names. Returns 0 or -errno with one clear
 * line in err.
 */
int glue_bond_make(unsigned index, const char *name,
		   char names[][GLUE_PORT_NAME_MAX + 1], char *err,
		   size_t err_len);

/* Queue pairs that every member can have, wanted at most. */
unsigned glue_bond_queues(unsigned index, unsigned wanted);

/*
 * Whether a member is a TAP: then the kernel's interface has the bond's own
 * address, and the stack needs another.
 */
bool glue_bond_has_tap(unsigned index);

/* The port runs, and the device has its address. */
void glue_bond_start(struct glue_device *device);
/* Before the port stops. Waits for a card that is being given up. */
void glue_bond_stop(struct glue_device *device);

/*
 * Looks at the carriers of all members, logs each change, and makes an
 * active-backup bond send by a member that is up. Returns whether any is.
 */
bool glue_bond_look(struct glue_device *device);

/*
 * The member that an active-backup bond sends by, as in "tap:a", and how often
 * that has changed; "" and 0 of any other device.
 */
unsigned glue_bond_sender(const struct glue_device *device, char *name,
			  size_t room);

/* Sends what glue_bond_look() has asked for: on shard 0's thread. */
void glue_bond_send_due(struct glue_port *port);

static inline void glue_bond_turn(struct glue_port *port)
{
	if (unlikely(__atomic_load_n(&port->device->bond_due,
				     __ATOMIC_RELAXED)) &&
	    port->shard == 0)
		glue_bond_send_due(port);
}
