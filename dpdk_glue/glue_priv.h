/*
 * Private to dpdk_glue/: calls between its files, without mbufs or ports
 * (port_priv.h).
 */
#pragma once

#include <sched.h>

#include "dpdk_glue/glue.h"

/* EAL's longest name of a device (RTE_ETH_NAME_MAX_LEN - 1). */
#define GLUE_PORT_NAME_MAX 63

/*
 * Returns whether DPDK has the link's port, or its members' ports, once it has
 * started; ports of other kinds are added after that.
 */
static inline bool glue_link_is_port(const struct glue_link *link)
{
	return link->kind == GLUE_LINK_PCI || link->kind == GLUE_LINK_PORT ||
	       link->on_ports;
}

/* Formats one line into err and returns code. */
__attribute__((format(printf, 4, 5))) int
glue_fail(char *err, size_t err_len, int code, const char *format, ...);

/*
 * The links for which DPDK makes ports: the members of a bond, or the link
 * itself. Returns how many; parts has room for GLUE_BOND_MEMBERS.
 */
unsigned glue_link_parts(const struct glue_link *link, struct glue_link *parts);

/* links[index], and its DPDK port; false: it has none. */
const struct glue_link *glue_eal_link(unsigned index);
bool glue_eal_port_id(unsigned index, uint16_t *port_id);
/* Called once every link is open and has its memory. */
void glue_eal_links_open(void);

/* A line for the log of the program; any thread. */
__attribute__((format(printf, 1, 2))) void glue_log_line(const char *format,
							 ...);

/* ---- fork.c ---- */

/* Called once EAL has started: keeps its memory out of forked children. */
void glue_fork_start(void);

/* ---- huge.c ---- */
/*
 * Checks whether `mib` MiB of 2 MiB pages can be used. If so, other programs
 * that check wait until glue_huge_settle(), at most 5 s. If not, `why` says
 * what prevents the use of free pages, or is empty if there are too few.
 */
bool glue_huge_take(unsigned mib, char *why, size_t why_len);
/* Lets other programs check for hugepages again. */
void glue_huge_settle(void);
/*
 * Advice for an error message, in case hugepages have vanished since the start;
 * "": none are used.
 */
const char *glue_huge_hint(void);

/* The number of shards; the CPU of one, or -1 if it is not pinned. */
unsigned glue_eal_shards(void);
int glue_eal_lcore(unsigned shard);
/* The MTU of every link, bytes of IP packet. */
unsigned glue_eal_mtu(void);
/* The CPUs that the process may run on: a cpu_set_t. */
const cpu_set_t *glue_eal_cpus(void);

/*
 * Writes the name of a link's virtual device, which ends in a unique number,
 * and its devargs. name has GLUE_PORT_NAME_MAX + 1 bytes. path: of DPDK's own
 * memif socket (vdev.c).
 */
void glue_vdev_describe(const struct glue_link *link, unsigned index,
			unsigned queues, const char *path, char *name,
			char *args, size_t args_len);

/* Has sockets of links belong to a user; 0: to that of the process. */
void glue_vdev_own(uid_t uid, gid_t gid);
/*
 * Has DPDK make a link's virtual device of that name and devargs, and a memif
 * server its relay. inner: path of DPDK's own socket. Returns 0 or -errno with
 * one clear line in err.
 */
int glue_vdev_make(const struct glue_link *link, unsigned index,
		   unsigned queues, const char *inner, const char *device,
		   const char *args, char *err, size_t err_len);

/* Queue pairs of a link: as requested, or as many as it allows. */
unsigned glue_eal_link_queues(unsigned index);

/*
 * Checks a link before DPDK opens it. Removes a socket file on which no process
 * listens. Returns 0 or -errno with one clear line in err.
 */
int glue_link_check(const struct glue_link *link, char *err, size_t err_len);
/*
 * Waits until each memif client has a server, for 10 s each at most: programs
 * may start in any order, and DPDK's client connects only once. If one of the
 * links is a server, it does not wait, since the other program may be waiting
 * for that server; glue_memif_start() then waits. Returns 0 or -errno with one
 * clear line in err.
 */
int glue_links_await(const struct glue_link *links, unsigned n, char *err,
		     size_t err_len);
/* Why a link's queues may fail to be set up, for the error message; or "". */
const char *glue_link_queues_hint(const struct glue_link *link);

/*
 * Checks that the queues of a link, requested or by default, suit the shards
 * and the interface. Returns 0 or -EINVAL with one clear line in err
 * (queues.c).
 */
int glue_queues_check(const struct glue_link *link, char *err, size_t err_len);

/*
 * Queue pairs to request from DPDK: the link's queues=, or one per shard.
 */
unsigned glue_queues_wanted(const struct glue_link *link);

/* The largest number of queue pairs that a kind of link can have. */
unsigned glue_link_max_queues(const struct glue_link *link);

/*
 * Redirects DPDK's output to log(), one line per call, also from DPDK's
 * threads; NULL: it stays on stderr (eal_log.c).
 */
void glue_log_redirect(void (*log)(unsigned level, const char *text,
				   size_t len));
/* DPDK prints to stderr again. */
void glue_log_restore(void);

/* Sets the levels of DPDK's types once EAL runs (log_level.c). */
void glue_log_settle(void);

/*
 * DPDK gives the reason of a failure only in its log, and EAL also prints its
 * whole usage on stdout. Between start and end both go into a memory file, so
 * that the error line can quote the reason and the rest is dropped.
 */
struct glue_captured {
	int fd, old_out, old_err;
	const char *text; /* after the end, until the next start */
};

/* If abort() is called before the end, the last lines go to the old stderr. */
void glue_capture_start(struct glue_captured *log);

/* Restores stdout and stderr; log->text is what was written. */
void glue_capture_end(struct glue_captured *log);

/*
 * Returns whether log->text says that DPDK cannot use the card at a PCI
 * address.
 */
bool glue_capture_has(const struct glue_captured *log, const char *address);

/* Copies the line of log->text that explains a failure best. */
void glue_capture_line(const struct glue_captured *log, char *out,
		       size_t out_len);
