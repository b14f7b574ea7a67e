/*
 * coronet: giving up root (net_opts.user), and the filter of system calls
 * (net_opts.seccomp). net_stack_open() does both; docs/deploy.md says what a
 * program can do after that.
 */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

struct net_opts;

/* What happens at a system call that a running program does not need. */
enum net_seccomp {
	NET_SECCOMP_OFF,  /* nothing: there is no filter */
	NET_SECCOMP_LOG,  /* the kernel logs it */
	NET_SECCOMP_KILL, /* the process ends with SIGSYS and a line on stderr
			   */
};

/*
 * For a program that creates files before net_stack_open(), and reopens them
 * later as the user of opts->user: the calling thread accesses files as that
 * user from here on, with the user's groups, until net_user_files_end(). Does
 * nothing without opts->user, with opts->check, or if the process is not
 * root's. Returns 0, or
 * -EINVAL (there is no such user) or -EPERM (root may not become this user),
 * with opts->error set. Blocks while it reads the tables of users. The two
 * calls do not nest.
 */
int net_user_files_begin(struct net_opts *opts);
void net_user_files_end(void);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
