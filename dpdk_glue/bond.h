/*
 * bond: links, several links that work as one: DPDK's net_bonding over members
 * that are links of ours. Private to dpdk_glue/.
 *
 * Threads: a bond is made while EAL starts. DPDK's interrupt thread checks its
 * members (link_watch.c), and shard 0 sends the frames that they need.
 */
#pragma once

#include "dpdk_glue/port_priv.h"

#define GLUE_BOND_LOOK_US 50000 /* between two looks at the members */

/*
 * Makes DPDK's device for links[index], a bond. names: the names of its
 * members' ports, which DPDK has already. Returns 0 or -errno with one clear
 * line in err.
 */
int glue_bond_make(unsigned index, const char *name,
		   char names[][GLUE_PORT_NAME_MAX + 1], char *err,
		   size_t err_len);

/* How many queue pairs every member can have, at most `wanted`. */
unsigned glue_bond_queues(unsigned index, unsigned wanted);

/*
 * Whether a member is a TAP: then the kernel's interface has the bond's MAC,
 * and the stack needs another one.
 */
bool glue_bond_has_tap(unsigned index);

/* Called once the port runs and the device has its MAC. */
void glue_bond_start(struct glue_device *device);
/* Called before the port stops. Waits if a removed card is being released. */
void glue_bond_stop(struct glue_device *device);
/*
 * Closes the TAPs among the members of a port that is stopped, if it is a bond.
 * When a bond is closed, DPDK 24.11 releases the receive queues of its members
 * before their transmit queues, and net_tap then reads freed memory.
 */
void glue_bond_close_taps(uint16_t id);

/*
 * Checks the carriers of all members, logs each change, and makes an
 * active-backup bond send by a member that is up. Returns whether any member
 * is.
 */
bool glue_bond_look(struct glue_device *device);

/*
 * Writes the member that an active-backup bond sends by, such as "tap:a", to
 * name, and returns how often it has changed; "" and 0 for any other device.
 */
unsigned glue_bond_sender(const struct glue_device *device, char *name,
			  size_t room);

/* Sends the frames that glue_bond_look() has requested. On shard 0's thread. */
void glue_bond_send_due(struct glue_port *port);

static inline void glue_bond_turn(struct glue_port *port)
{
	if (unlikely(__atomic_load_n(&port->device->bond_due,
				     __ATOMIC_RELAXED)) &&
	    port->shard == 0)
		glue_bond_send_due(port);
}
