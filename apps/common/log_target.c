/* Opens and checks what a log is written to. */
#include "apps/common/log_target.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "netstack/options/opt.h"

void log_target_init(struct log_target *target, const char *where)
{
	*target = (struct log_target){LOG_TO_FILE, where, -1};
	if (strncmp(where, "udp:", 4) == 0)
		*target = (struct log_target){LOG_TO_UDP, where + 4, -1};
	if (strncmp(where, "unix:", 5) == 0)
		*target = (struct log_target){LOG_TO_UNIX, where + 5, -1};
}

/* ---- opening ---- */

/* Returns a descriptor that never blocks, or a negative errno. */
static int open_file(const char *path, int flags)
{
	int fd = open(path,
		      O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC |
			      flags,
		      0640);

	return fd < 0 ? -errno : fd;
}

static int open_socket(const struct sockaddr *addr, socklen_t len)
{
	int fd = socket(addr->sa_family,
			SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (connect(fd, addr, len) < 0) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

static int open_udp(const char *at)
{
	struct opt_endpoint end;

	if (opt_parse_endpoint(at, &end) < 0)
		return -EINVAL;
	return open_socket((const struct sockaddr *)&end.addr, end.addr_len);
}

static int open_unix(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	if (!*path)
		return -EINVAL;
	if (strlen(path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	strcpy(addr.sun_path, path);
	return open_socket((const struct sockaddr *)&addr, sizeof(addr));
}

int log_target_open(const struct log_target *target, bool create)
{
	switch (target->kind) {
	case LOG_TO_UDP:
		return open_udp(target->path);
	case LOG_TO_UNIX:
		return open_unix(target->path);
	case LOG_TO_FILE:
		break;
	}
	return open_file(target->path, create ? O_CREAT : 0);
}

void log_target_use(struct log_target *target, int fd)
{
	if (target->fd >= 0)
		close(target->fd);
	target->fd = fd;
}

bool log_target_may_appear(const struct log_target *target, int err)
{
	struct stat st;

	switch (target->kind) {
	case LOG_TO_UDP:
		return false;
	case LOG_TO_UNIX:
		return err == -ENOENT ||
		       (err == -ECONNREFUSED && stat(target->path, &st) == 0 &&
			S_ISSOCK(st.st_mode));
	case LOG_TO_FILE:
		break;
	}
	return err == -ENXIO && stat(target->path, &st) == 0 &&
	       S_ISFIFO(st.st_mode);
}

/* ---- writing ---- */

size_t log_target_write(const struct log_target *target, const char *data,
			size_t len, int *err)
{
	size_t done = 0;

	*err = 0;
	while (done < len) {
		ssize_t n = target->kind == LOG_TO_FILE
				    ? write(target->fd, data + done, len - done)
				    : send(target->fd, data, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		*err = n < 0 ? -errno : 0;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	return done;
}

bool log_target_is_gone(const struct log_target *target, int err)
{
	if (target->fd < 0)
		return false;
	return target->kind == LOG_TO_UNIX ? err != -EAGAIN && err != -EMSGSIZE
					   : err == -EPIPE;
}

/* ---- checking ---- */

static int check_file(const char *path)
{
	struct stat st;

	if (!*path)
		return -ENOENT;
	if (stat(path, &st) == 0 && S_ISSOCK(st.st_mode))
		return -ENXIO;
	return opt_check_writable(path);
}

static int check_unix(const char *path)
{
	struct sockaddr_un addr;
	struct stat st;

	if (!*path)
		return -EINVAL;
	if (strlen(path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	if (stat(path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -ENOTSOCK;
	return access(path, W_OK) < 0 ? -errno : 0;
}

int log_target_check(const char *where)
{
	struct opt_endpoint end;
	struct log_target target;

	log_target_init(&target, where);
	switch (target.kind) {
	case LOG_TO_UDP:
		return opt_parse_endpoint(target.path, &end);
	case LOG_TO_UNIX:
		return check_unix(target.path);
	case LOG_TO_FILE:
		break;
	}
	return check_file(target.path);
}
