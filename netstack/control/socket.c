/*
 * The control socket's file: whether a program may use a path, and to which
 * program a file there belongs.
 */
#include "netstack/control/control_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "netstack/options/opt.h"

#define BACKLOG	   16
#define LOCK_TRIES 200 /* 10 ms apart */

__attribute__((format(printf, 4, 5))) static int
report_failure(int rc, char *err, size_t err_len, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(err, err_len, format, ap);
	va_end(ap);
	return rc;
}

/*
 * Programs that start together would all find a file left behind, and the last
 * would take the socket from the first: so each looks and binds while it holds
 * the lock of the folder. -1: the lock cannot be had, which is no reason not to
 * try.
 */
static int lock_folder(const char *path)
{
	static const struct timespec nap = {.tv_nsec = 10000000};
	char folder[sizeof(((struct net_socket *)0)->path)];
	char *slash;
	int fd;

	snprintf(folder, sizeof(folder), "%s", path);
	slash = strrchr(folder, '/');
	if (!slash)
		strcpy(folder, ".");
	else if (slash == folder)
		strcpy(folder, "/");
	else
		*slash = '\0';
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (unsigned i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
		if (errno != EWOULDBLOCK || i == LOCK_TRIES) {
			close(fd);
			return -1;
		}
		nanosleep(&nap, NULL);
	}
	return fd;
}

/* Returns whether there is a socket, or -errno if a socket cannot be there. */
static int look_at_path(const char *path, char *err, size_t err_len)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return 0; /* there is none, or bind() says why */
	if (!S_ISSOCK(st.st_mode))
		return report_failure(-EEXIST, err, err_len,
				      "--control %s: this file is not a "
				      "socket; remove it, or name another path",
				      path);
	return 1;
}

/* Returns 0 if nobody has the path now; a file left there has been removed. */
static int clear_path(const struct sockaddr_un *addr, char *err, size_t err_len)
{
	int fd, rc = look_at_path(addr->sun_path, err, err_len);

	if (rc <= 0)
		return rc;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	rc = connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0
		     ? errno
		     : 0;
	close(fd);
	if (rc != ECONNREFUSED)
		return report_failure(
			-EADDRINUSE, err, err_len,
			"--control %s: another program uses this socket; name "
			"another path for one of the two",
			addr->sun_path);
	unlink(addr->sun_path); /* if it cannot, bind() says EADDRINUSE */
	return 0;
}

/* Identifies the file at a path; false: there is none. */
static bool identify_file(const char *path, struct net_socket_file *out)
{
	struct statx st;

	if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME,
		  &st) < 0)
		return false;
	*out = (struct net_socket_file){
		.dev = (uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor,
		.ino = st.stx_ino,
	};
	if (st.stx_mask & STATX_BTIME)
		out->born_ns = st.stx_btime.tv_sec * INT64_C(1000000000) +
			       st.stx_btime.tv_nsec;
	return true;
}

static int bind_and_listen(const struct sockaddr_un *addr,
			   struct net_socket *out, char *err, size_t err_len)
{
	int rc = clear_path(addr, err, err_len);

	if (rc < 0)
		return rc;
	/* The file has the socket's own mode, from its first moment. */
	if (fchmod(out->fd, 0600) < 0 ||
	    bind(out->fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0 ||
	    listen(out->fd, BACKLOG) < 0 ||
	    !identify_file(addr->sun_path, &out->file))
		return report_failure(
			-errno, err, err_len, "--control %s: %s%s",
			addr->sun_path, strerror(errno),
			errno == ENOENT ? " (does the directory exist?)" : "");
	return 0;
}

int net_control_check(const struct net_opts *opts, char *err, size_t err_len)
{
	int rc;

	if (!opts->control || strcmp(opts->control, "off") == 0)
		return 0;
	rc = look_at_path(opts->control, err, err_len);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	rc = opt_check_writable(opts->control);
	return rc == 0 || rc == -EACCES /* the program's user may be another */
		       ? 0
		       : report_failure(rc, err, err_len, "--control %s: %s",
					opts->control, strerror(-rc));
}

int net_socket_open(const char *path, struct net_socket *out, char *err,
		    size_t err_len)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int lock, rc;

	out->fd = -1;
	if (strlen(path) >= sizeof(addr.sun_path))
		return report_failure(-ENAMETOOLONG, err, err_len,
				      "--control %s: the path of a socket has "
				      "at most %zu bytes",
				      path, sizeof(addr.sun_path) - 1);
	strcpy(addr.sun_path, path);
	strcpy(out->path, path);
	out->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
			 0);
	if (out->fd < 0)
		return report_failure(-errno, err, err_len, "--control %s: %s",
				      path, strerror(errno));
	lock = lock_folder(path);
	rc = bind_and_listen(&addr, out, err, err_len);
	if (lock >= 0)
		close(lock);
	if (rc < 0) {
		close(out->fd);
		out->fd = -1;
	}
	return rc;
}

void net_socket_close(struct net_socket *socket)
{
	struct net_socket_file now;

	if (socket->fd < 0)
		return;
	if (identify_file(socket->path, &now) && now.dev == socket->file.dev &&
	    now.ino == socket->file.ino && now.born_ns == socket->file.born_ns)
		unlink(socket->path);
	close(socket->fd);
	socket->fd = -1;
}
