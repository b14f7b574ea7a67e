/*
 * Links of the kind bond: several links that work as one, by DPDK's
 * net_bonding. Private to dpdk_glue/.
 *
 * Threads: a bond is made while EAL starts. DPDK's interrupt thread checks its
 * members (link_watch.c), and shard 0 sends frames on their behalf.
 */
#pragma once

#include "dpdk_glue/port_priv.h"

#define GLUE_BOND_LOOK_US 50000 /* between two checks of the members */

/*
 * Makes DPDK's device for links[index], a bond. names: the names of its
 * members' ports, which DPDK has already. Returns 0 or -errno with one clear
 * line in err.
 */
int glue_bond_make(unsigned index, const char *name,
		   char names[][GLUE_PORT_NAME_MAX + 1], char *err,
		   size_t err_len);

/* Returns how many queue pairs every member can have, at most `wanted`. */
unsigned glue_bond_queues(unsigned index, unsigned wanted);

/*
 * Returns whether a member is a TAP: the kernel's interface then has the bond's
 * MAC, so that the stack needs another one.
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
 * active-backup bond send through a member that is up. Returns whether any
 * member is up.
 */
bool glue_bond_look(struct glue_device *device);

/*
 * Writes the member through which an active-backup bond sends, such as "tap:a",
 * to name. Returns how often it has changed. Any other device: "" and 0.
 */
unsigned glue_bond_sender(const struct glue_device *device, char *name,
			  size_t room);

/* Sends the frames that glue_bond_look() has requested. On shard 0's thread. */
void glue_bond_send_due(struct glue_port *port);

/* Called in each turn of the loop; only shard 0 does anything. */
static inline void glue_bond_turn(struct glue_port *port)
{
	if (unlikely(__atomic_load_n(&port->device->bond_due,
				     __ATOMIC_RELAXED)) &&
	    port->shard == 0)
		glue_bond_send_due(port);
}
