/*
 * Private to dpdk_glue/.
 */
#pragma once

#include <sched.h>

#include "dpdk_glue/glue.h"

/* EAL's longest name of a device (RTE_ETH_NAME_MAX_LEN - 1). */
#define GLUE_PORT_NAME_MAX 63

/*
 * DPDK has its port, or its members' ports, when it has started; the other
 * kinds' we add then.
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
 * The links that DPDK is asked for: the members of a bond, or the link itself.
 * Returns how many; parts has room for GLUE_BOND_MEMBERS.
 */
unsigned glue_link_parts(const struct glue_link *link, struct glue_link *parts);

/* The link behind index, and its DPDK port; false when there is none. */
const struct glue_link *glue_eal_link(unsigned index);
bool glue_eal_port_id(unsigned index, uint16_t *port_id);
/* Every link is open and has its memory. */
void glue_eal_links_open(void);

/* A line for the log of the program; any thread. */
__attribute__((format(printf, 1, 2))) void glue_log_line(const char *format,
							 ...);

/* ---- fork.c ---- */

/* Once EAL has started. */
void glue_fork_start(void);

/* ---- huge.c ---- */
/*
 * Whether so many MiB of 2 MiB pages can be used, which is tried. Then others
 * that ask wait, at most 5 s, until glue_huge_settle(). Otherwise why says what
 * keeps pages that are free from use, or is empty: there are not so many.
 */
bool glue_huge_take(unsigned mib, char *why, size_t why_len);
/* Others may look for hugepages. */
void glue_huge_settle(void);
/* What to do if hugepages have gone since; behind an error. "": none used. */
const char *glue_huge_hint(void);

/* Shards of the program, the CPU of one, or -1: it is not pinned. */
unsigned glue_eal_shards(void);
int glue_eal_lcore(unsigned shard);
/* Bytes of IP packet of every link. */
unsigned glue_eal_mtu(void);
/* The CPUs that the process may run on: a cpu_set_t. */
const cpu_set_t *glue_eal_cpus(void);

/*
 * Writes the name of a link's virtual device, which ends in a number of its
 * own, and its devargs. name has GLUE_PORT_NAME_MAX + 1 bytes. path is that of
 * DPDK's own memif socket (vdev.c).
 */
void glue_vdev_describe(const struct glue_link *link, unsigned index,
			unsigned queues, const char *path, char *name,
			char *args, size_t args_len);

/* Queue pairs that a link is to have: as asked for, or as many as it allows. */
unsigned glue_eal_link_queues(unsigned index);

/*
 * What can be told of a link before DPDK tries it. Removes a socket file that
 * nobody listens on. Returns 0 or -errno with one clear line in err.
 */
int glue_link_check(const struct glue_link *link, char *err, size_t err_len);
/*
 * Waits until each memif client has a server, for 10 s each at most: programs
 * that start together come in either order, and DPDK's client connects once.
 * Does not wait where a link is a server itself, which may be what the other
 * program waits for; glue_memif_start() does then. Returns 0 or -errno with one
 * clear line in err.
 */
int glue_links_await(const struct glue_link *links, unsigned n, char *err,
		     size_t err_len);
/* What may keep its queues from being set up, behind the error; or "". */
const char *glue_link_queues_hint(const struct glue_link *link);

/*
 * Whether the queues that a link names, or would have, suit the shards and the
 * interface: 0 or -EINVAL with one clear line in err (queues.c).
 */
int glue_queues_check(const struct glue_link *link, char *err, size_t err_len);

/* Queue pairs to ask DPDK for: those that the link names, or a shard each. */
unsigned glue_queues_wanted(const struct glue_link *link);

/* The most queue pairs that a kind of link has. */
unsigned glue_link_max_queues(const struct glue_link *link);

/*
 * From here on, what DPDK prints goes to log, a line a call, from threads of
 * DPDK's too; NULL: it stays on stderr (eal_log.c).
 */
void glue_log_redirect(void (*log)(unsigned level, const char *text,
				   size_t len));
/* DPDK prints to stderr again. */
void glue_log_restore(void);

/* Levels of DPDK's types once EAL runs (log_level.c). */
void glue_log_settle(void);

/*
 * DPDK says why it failed only in its log, and EAL prints its whole usage on
 * stdout besides. Between start and end both go into a memory file, so that
 * the reason ends up in our one line and the rest nowhere.
 */
struct glue_captured {
	int fd, old_out, old_err;
	const char *text; /* after the end, until the next start */
};

/* An abort() in between shows the last lines on the stderr of before. */
void glue_capture_start(struct glue_captured *log);

/* Gives stdout and stderr back; log->text is what was written. */
void glue_capture_end(struct glue_captured *log);

/* Whether DPDK said there that it cannot use a card. */
bool glue_capture_has(const struct glue_captured *log, const char *address);

/* The line of log->text that tells best why something failed. */
void glue_capture_line(const struct glue_captured *log, char *out,
		       size_t out_len);
