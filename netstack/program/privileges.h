/*
 * Root and system calls that the program gives up once it is open.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include <coronet/net_stack.h>

/* ---- privileges.c ---- */

struct net_user {
	uid_t uid;
	gid_t gid;
	char name[33]; /* "": the table of users has none */
};

/*
 * Reads "NAME[:GROUP]", each a name or a number; a number that the table of
 * users does not have needs a group. Returns 0, or -EINVAL with what was
 * expected in err.
 */
int net_user_parse(const char *text, struct net_user *out, char *err,
		   size_t err_len);

/*
 * Checks that net_privileges_drop() can do what opts ask for, as far as that is
 * possible before links are open. Changes nothing. Returns 0, -EINVAL or
 * -EPERM, with opts->error set.
 */
int net_privileges_check(struct net_opts *opts);
/* The IDs for files that links create; 0: those of the process. */
void net_privileges_ids(uid_t *uid, gid_t *gid);

/*
 * Gives up root on every thread of the process, and sets up the filter of
 * system calls. Called by the thread that opens the program, when everything is
 * open. Returns 0 or -errno with opts->error set; the process is then in a
 * state between both users and must end.
 */
int net_privileges_drop(struct net_opts *opts);

/* ---- seccomp.c ---- */

#define NET_SECCOMP_XDP	  1u /* libxdp: bpf() and generic netlink */
#define NET_SECCOMP_PORTS 2u /* iopl(), for a card with I/O ports */

/* Returns 0, or -EINVAL with the reason in err. */
int net_seccomp_check(enum net_seccomp mode, char *err, size_t err_len);
/*
 * Filters the system calls of all threads, from here on. extra: NET_SECCOMP_
 * bits, what links need in addition. With NET_SECCOMP_OFF it only passes on
 * no_new_privs from the calling thread to the others. Returns 0 or -errno.
 */
int net_seccomp_apply(enum net_seccomp mode, unsigned extra);
