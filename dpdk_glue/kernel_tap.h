/*
 * A TAP by which the kernel receives and sends the frames of a link that are
 * not the stack's. Independent of DPDK.
 *
 * It is a descriptor and not a port of net_tap: it costs two system calls where
 * there is traffic and an occasional one where there is none, needs no queues
 * or signals, and allows any MAC. It never blocks: frames that the kernel does
 * not accept at once are dropped.
 *
 * Threads: any shard writes; shard 0 alone opens, reads and closes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct glue_kernel_addr {
	uint8_t family;	    /* 4 or 6 */
	uint8_t prefix_len; /* bits */
	uint8_t ip[16];	    /* network byte order; IPv4 takes the first 4 */
};

struct glue_kernel_tap_conf {
	const char *name;   /* of the interface, at most 15 bytes */
	const uint8_t *mac; /* 6 bytes */
	unsigned mtu;	    /* bytes of IP packet */
	const struct glue_kernel_addr *addrs;
	unsigned n_addrs;
};

/*
 * Makes the interface, or attaches to a persistent one, gives it the MAC, the
 * MTU and the addresses, and brings it up. *fd is owned by the caller; closing
 * it removes an interface that this call has made. Everything in conf is
 * borrowed. Returns 0 or -errno with one clear line in err: -EPERM or -EACCES
 * (CAP_NET_ADMIN is missing), -ENOENT (no /dev/net/tun), -EBUSY (another
 * program has it, or it is no TAP).
 */
int glue_kernel_tap_open(const struct glue_kernel_tap_conf *conf, int *fd,
			 char *err, size_t err_len);

/*
 * Passes one frame to the kernel, in n pieces. Returns false if the kernel did
 * not accept it.
 */
bool glue_kernel_tap_write(int fd, const struct iovec *pieces, unsigned n);

/* Reads one frame of the kernel. Returns its length, or 0 if there is none. */
unsigned glue_kernel_tap_read(int fd, void *buf, unsigned room);

void glue_kernel_tap_close(int fd);
