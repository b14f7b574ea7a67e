/*
 * Gives up root once links and files are open (--user).
 *
 * Files that the program creates, and opens again later, are created as the
 * user from the start: a directory that the user may not use is reported then,
 * and root follows no symbolic link that the user could have planted. Only the
 * calling thread accesses files as the user; the C library's setresuid() then
 * changes all threads.
 *
 * A thread that becomes another user than root loses its capabilities. Those
 * that a link needs later stay with DPDK's interrupt thread alone
 * (dpdk_glue/caps.c).
 */
#include "netstack/program/privileges.h"
#include "netstack/program/log.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <coronet/net_user.h>

#include "dpdk_glue/glue.h"
#include "netstack/options/opt.h"

#define GROUPS_MAX 1024		     /* of a user; more are not used */
#define ID_MAX	   (UINT32_MAX - 1u) /* the highest means "leave it" */

static struct {
	struct net_user user; /* uid 0: none */
	bool files;	      /* between net_user_files_begin() and _end() */
	gid_t groups[GROUPS_MAX]; /* of root, meanwhile */
	int n_groups;
} privileges;

__attribute__((format(printf, 3, 4))) static int
report_failure(struct net_opts *opts, int err, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(opts->error, sizeof(opts->error), format, ap);
	va_end(ap);
	return err;
}

/* ---- NAME[:GROUP] ---- */

static bool parse_id(const char *text, unsigned *id)
{
	uint64_t number;

	if (opt_parse_number(text, 0, ID_MAX, &number) < 0)
		return false;
	*id = (unsigned)number;
	return true;
}

/* Returns whether there is a group of that name or number. */
static bool find_group(const char *text, gid_t *gid)
{
	const struct group *group = getgrnam(text);

	if (group)
		*gid = group->gr_gid;
	return group || parse_id(text, gid);
}

/*
 * Finds a user by name or number. *known: the table of users has it, and *out
 * its main group. Returns false if there is no such user.
 */
static bool find_name(const char *text, struct net_user *out, bool *known)
{
	const struct passwd *found = getpwnam(text);

	if (!found && !parse_id(text, &out->uid))
		return false;
	if (!found)
		found = getpwuid(out->uid);
	*known = found != NULL;
	if (found) {
		out->uid = found->pw_uid;
		out->gid = found->pw_gid;
		snprintf(out->name, sizeof(out->name), "%s", found->pw_name);
	}
	return true;
}

int net_user_parse(const char *text, struct net_user *out, char *err,
		   size_t err_len)
{
	size_t len = strcspn(text, ":");
	const char *group = text[len] ? text + len + 1 : NULL;
	struct net_user user = {0};
	bool known = false;
	char name[256];

	snprintf(name, sizeof(name), "%.*s", (int)len, text);
	*err = '\0';
	if (len >= sizeof(name) || !find_name(name, &user, &known))
		snprintf(err, err_len,
			 "a user of this machine, by name or number, and "
			 "optionally a colon and a group");
	else if (group && !find_group(group, &user.gid))
		snprintf(err, err_len,
			 "a group of this machine, by name or number, after "
			 "the colon");
	else if (!known && !group)
		snprintf(err, err_len,
			 "a group after the number of a user that this machine "
			 "has no name for, as in %u:%u",
			 user.uid, user.uid);
	else if (user.uid == 0 || user.gid == 0)
		snprintf(err, err_len, "a user and a group other than root");
	if (*err)
		return -EINVAL;
	*out = user;
	return 0;
}

/* Fills groups with the user's; returns how many. */
static int groups_of(const struct net_user *user, gid_t *groups)
{
	int n = GROUPS_MAX;

	groups[0] = user->gid;
	if (!user->name[0])
		return 1;
	getgrouplist(user->name, user->gid, groups, &n);
	return n < GROUPS_MAX ? n : GROUPS_MAX;
}

/* ---- before ---- */

/* Returns whether a user namespace has a number. */
static bool is_mapped(const char *map, unsigned id)
{
	FILE *file = fopen(map, "re");
	unsigned long first, outside, count;
	bool found = !file;

	while (!found &&
	       fscanf(file, "%lu %lu %lu", &first, &outside, &count) == 3)
		found = id >= first && id - first < count;
	if (file)
		fclose(file);
	return found;
}

/* Finds the user, unless the process is that user already or is not root. */
static int find_user(struct net_opts *opts, struct net_user *user)
{
	char expected[200];

	*user = (struct net_user){0};
	if (!opts->user)
		return 0;
	if (net_user_parse(opts->user, user, expected, sizeof(expected)) < 0)
		return report_failure(opts, -EINVAL,
				      "--user '%.100s': expected %s",
				      opts->user, expected);
	if (getuid() == user->uid && geteuid() == user->uid &&
	    getegid() == user->gid) {
		user->uid = 0;
		return 0;
	}
	if (opts->check)
		return 0;
	if (geteuid() != 0)
		return report_failure(
			opts, -EPERM,
			"--user %.100s: only root can become another user, "
			"but this process runs as user %u; start it as "
			"root, or leave out --user",
			opts->user, geteuid());
	if (!is_mapped("/proc/self/uid_map", user->uid) ||
	    !is_mapped("/proc/self/gid_map", user->gid))
		return report_failure(
			opts, -EPERM,
			"--user %.100s: this user namespace has no user %u "
			"or no group %u (/proc/self/uid_map, gid_map); "
			"leave out --user",
			opts->user, user->uid, user->gid);
	return 0;
}

static int check_links(struct net_opts *opts)
{
	struct glue_link link;
	char err[200];

	if (opts->dpdk_prefix)
		return report_failure(
			opts, -EINVAL,
			"--user %.100s cannot be used with --dpdk-prefix, "
			"since other processes attach as the same user; "
			"leave out one of the two",
			opts->user);
	for (unsigned i = 0; i < opts->n_links; i++)
		if (glue_link_parse(opts->links[i], &link, err, sizeof(err)) ==
			    0 &&
		    glue_link_needs_root(&link))
			return report_failure(
				opts, -EINVAL,
				"--user %.100s: link %.100s: this card "
				"needs root as long as it is open: bind it "
				"to vfio-pci behind an IOMMU, or leave out "
				"--user",
				opts->user, opts->links[i]);
	return 0; /* a wrong link is reported when it is opened */
}

int net_privileges_check(struct net_opts *opts)
{
	char why[200];
	int err = find_user(opts, &privileges.user);

	if (err == 0 && privileges.user.uid != 0)
		err = check_links(opts);
	if (err < 0)
		return err;
	err = net_seccomp_check(opts->seccomp, why, sizeof(why));
	if (err < 0)
		return report_failure(opts, err, "--seccomp: %s", why);
	return 0;
}

void net_privileges_ids(uid_t *uid, gid_t *gid)
{
	*uid = privileges.user.uid;
	*gid = privileges.user.gid;
}

/* ---- files ---- */

/* The C library's setgroups() would change all threads. */
static long set_own_groups(const gid_t *groups, int n)
{
	return syscall(SYS_setgroups, n, groups);
}

int net_user_files_begin(struct net_opts *opts)
{
	gid_t groups[GROUPS_MAX];
	struct net_user user;
	int err;

	if (!opts->user || opts->check || geteuid() != 0)
		return 0;
	err = find_user(opts, &user);
	if (err < 0 || user.uid == 0)
		return err;
	privileges.n_groups = getgroups(GROUPS_MAX, privileges.groups);
	if (privileges.n_groups < 0 ||
	    set_own_groups(groups, groups_of(&user, groups)) < 0)
		return report_failure(opts, -EPERM,
				      "--user %.100s: setgroups: %s",
				      opts->user, strerror(errno));
	setfsgid(user.gid);
	setfsuid(user.uid);
	privileges.files = true;
	return 0;
}

void net_user_files_end(void)
{
	if (!privileges.files)
		return;
	privileges.files = false;
	setfsuid(0);
	setfsgid(0);
	set_own_groups(privileges.groups, privileges.n_groups);
}

/* ---- giving up root ---- */

/* A client connects again when its server has restarted, now as the user. */
static void warn_of_links(const struct net_opts *opts)
{
	struct glue_link link;
	char err[200];

	for (unsigned i = 0; i < opts->n_links; i++)
		if (glue_link_parse(opts->links[i], &link, err, sizeof(err)) ==
			    0 &&
		    link.kind == GLUE_LINK_MEMIF && !link.server &&
		    access(link.name, W_OK) < 0)
			net_log_at(NET_LOG_WARNING,
				   "coronet: --user %s: may not write to %s "
				   "(%s), so the link will not come back when "
				   "its server restarts",
				   opts->user, link.name, strerror(errno));
}

/* Leases come and go while the program runs. */
static void warn_of_leases(const struct net_opts *opts)
{
	const char *where =
		opts->lease_dir ? opts->lease_dir : getenv("STATE_DIRECTORY");
	char folder[256];
	bool leased = false;

	for (unsigned i = 0; i < opts->n_addrs; i++)
		leased |= opts->addrs[i].prefix_len == 0;
	if (!leased || !where || strcmp(where, "off") == 0)
		return;
	snprintf(folder, sizeof(folder), "%.*s", (int)strcspn(where, ":"),
		 where);
	if (access(folder, W_OK | X_OK) < 0)
		net_log_at(NET_LOG_WARNING,
			   "coronet: --user %s: may not write to --lease-dir "
			   "'%s' (%s), so addresses are not kept for the next "
			   "start",
			   opts->user, folder, strerror(errno));
}

static int become_user(struct net_opts *opts)
{
	static const struct rlimit endless = {RLIM_INFINITY, RLIM_INFINITY};
	const struct net_user *user = &privileges.user;
	gid_t groups[GROUPS_MAX];
	uint64_t caps = glue_links_caps();
	int n = groups_of(user, groups), err;

	/* VFIO accounts for memory that DPDK maps later, such as after a reset;
	 * root has no limit. */
	setrlimit(RLIMIT_MEMLOCK, &endless);
	err = caps ? glue_caps_hold() : 0;
	if (err == 0 && (setgroups((size_t)n, groups) < 0 ||
			 setresgid(user->gid, user->gid, user->gid) < 0 ||
			 setresuid(user->uid, user->uid, user->uid) < 0))
		err = -errno;
	if (err == 0 && caps)
		err = glue_caps_keep(caps);
	if (err == 0 && (setuid(0) == 0 || geteuid() != user->uid))
		err = -EPERM; /* it can come back: nothing was given up */
	if (err < 0)
		return report_failure(opts, err, "--user %.100s: %s%s",
				      opts->user, strerror(-err),
				      err == -EAGAIN
					      ? " (the user has too many "
						"processes: ulimit -u)"
					      : "");
	return 0;
}

static bool has_kind(const struct net_opts *opts, const char *kind)
{
	for (unsigned i = 0; i < opts->n_links; i++)
		if (strncmp(opts->links[i], kind, strlen(kind)) == 0)
			return true;
	return false;
}

/* AF_XDP takes its program off the interface; cards may have I/O ports. */
static int filter_calls(const struct net_opts *opts)
{
	unsigned extra = 0;

	if (has_kind(opts, "af_xdp:"))
		extra |= NET_SECCOMP_XDP;
	if (has_kind(opts, "pci:") || has_kind(opts, "port:") ||
	    has_kind(opts, "bond:"))
		extra |= NET_SECCOMP_PORTS;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	return net_seccomp_apply(opts->seccomp, extra);
}

int net_privileges_drop(struct net_opts *opts)
{
	bool gives_up = privileges.user.uid != 0;
	int err = 0;

	if (opts->check || (!gives_up && opts->seccomp == NET_SECCOMP_OFF))
		return 0;
	if (gives_up)
		err = become_user(opts);
	if (err < 0)
		return err;
	if (gives_up) {
		warn_of_links(opts);
		warn_of_leases(opts);
	}
	err = filter_calls(opts);
	if (err < 0)
		return report_failure(
			opts, err,
			"the filter of system calls (%s) cannot be set up: "
			"%s",
			gives_up ? "--user, --seccomp" : "--seccomp",
			strerror(-err));
	return 0;
}
